// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Bounds of Exchange.
const (
	maxServiceAccounts = 1000
	maxExchanges       = 8 // at the same time
	maxDuration        = 5 * time.Minute
)

// Target selects the tokens that Exchange presents, and the clouds.
type Target struct {
	// Namespace is empty for all namespaces.
	Namespace string
	// ServiceAccount is empty for all ServiceAccounts that ask for an identity.
	ServiceAccount string
	// Endpoint is Request.Endpoint.
	Endpoint string
	// Client sends the requests to the clouds.
	Client *http.Client

	*reader
}

// Exchange presents a token of each ServiceAccount to its clouds, from this machine, and
// returns a line for each: accepted, denied with the cause and its repair, or skipped. No
// line has a token or a credential.
func (x *Target) Exchange(ctx context.Context, c *command.CLI) (lines []probe.Line, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	if x.reader, err = newReader(ctx, c, true); err != nil {
		return nil, err
	}
	all, omitted, err := x.selected(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return []probe.Line{probe.DoesNotApply("no ServiceAccount asks for an identity")}, nil
	}
	found := x.exchangeAll(ctx, all)
	if omitted > 0 {
		found.add(unknown("the tokens of more ServiceAccounts", fmt.Errorf("%d were left out; use --namespace", omitted)))
	}
	return append(found.lines, fromHere(found.inPod)), nil
}

// findings are the lines of one or more ServiceAccounts, and the command that exchanges a
// token in a pod of the first of them that has a cloud.
type findings struct {
	lines []probe.Line
	inPod string
}

func (f *findings) add(lines ...probe.Line) { f.lines = append(f.lines, lines...) }

// selected returns the metadata of the ServiceAccounts, and how many are over the limit.
func (x *Target) selected(ctx context.Context) (all []*metav1.ObjectMeta, omitted int, err error) {
	if x.ServiceAccount != "" {
		one, err := x.serviceAccount(ctx, x.Namespace, x.ServiceAccount)
		return []*metav1.ObjectMeta{one}, 0, err
	}
	err = x.EachServiceAccount(ctx, x.Namespace, func(object *metav1.PartialObjectMetadata) error {
		switch _, labelled := object.Labels[x.settings.Keys.IdentityLabel]; {
		case !labelled && !x.settings.Keys.AskForIdentity(object.Annotations):
		case len(all) == maxServiceAccounts:
			omitted++
		default:
			all = append(all, &object.ObjectMeta)
		}
		return nil
	})
	return all, omitted, err
}

// exchangeAll returns the findings of the ServiceAccounts, in their order.
func (x *Target) exchangeAll(ctx context.Context, all []*metav1.ObjectMeta) (found findings) {
	each := make([]findings, len(all))
	var group errgroup.Group
	group.SetLimit(maxExchanges)
	report, done := x.Periodically(), 0
	var mu sync.Mutex
	namespaces := map[string]*metav1.ObjectMeta{}
	for i, serviceAccount := range all {
		namespace := namespaces[serviceAccount.Namespace]
		if namespace == nil {
			namespace = command.ReadNamespace(ctx, x.client, serviceAccount.Namespace)
			namespaces[serviceAccount.Namespace] = namespace
		}
		group.Go(func() error {
			each[i] = x.exchange(ctx, namespace, serviceAccount)
			mu.Lock()
			defer mu.Unlock()
			done++
			report("exchanged the tokens of %d of %d ServiceAccounts ...", done, len(all))
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	for i := range each {
		found.add(each[i].lines...)
		found.inPod = cmp.Or(found.inPod, each[i].inPod)
	}
	return found
}

// exchange returns the findings of a ServiceAccount: a line for each identity.
func (x *Target) exchange(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta) (found findings) {
	who := serviceAccount.Namespace + "/" + serviceAccount.Name
	pod, err := x.pod(ctx, namespace, serviceAccount)
	denial, denied := errors.AsType[*ask.Denial](err)
	switch {
	case denied:
		found.add(probe.Fail("lanyard explain serviceaccount "+serviceAccount.Name+" --namespace "+serviceAccount.Namespace+" has the fix.",
			"troubleshooting.md#a-pod-is-not-created", "%s: new pods are denied: %s", who, denial.Message))
		return found
	case err != nil:
		found.add(unknown("the identity of "+who, err))
		return found
	case len(pod.Providers) == 0:
		found.add(probe.DoesNotApply("%s: its pods get no token", who))
	}
	for _, name := range pod.Providers {
		cloud, exchanges := apis()[name]
		if !exchanges {
			found.add(probe.DoesNotApply("%s: lanyard cannot exchange tokens for %s", who, name))
			continue
		}
		r, err := x.request(pod, serviceAccount, name)
		switch {
		case err != nil:
			found.add(unknown("the identity of "+who, err))
		case cloud.identity != "" && r.Variables[cloud.identity] == "":
			found.add(probe.DoesNotApply("%s: its pods get a token for %s, but no identity", who, cloud.title))
		default:
			found.add(x.present(ctx, r, who, cloud.title)...)
			found.inPod = cmp.Or(found.inPod, r.inPod())
		}
	}
	return found
}

// present presents a new token, for each identity of the Request.
func (x *Target) present(ctx context.Context, r *Request, who, title string) []probe.Line {
	text, err := requestToken(ctx, x.client, r.Namespace, r.ServiceAccount, r.Audience, r.ExpirationSeconds)
	if err != nil {
		return []probe.Line{unknown("a token of "+who, err)}
	}
	r.Token, r.Endpoint = text, x.Endpoint
	var lines []probe.Line
	for _, one := range r.identities() {
		subject := who + ": " + title
		if one.Profile != "" {
			subject += ", profile " + one.Profile
		}
		if one.Source != "" {
			lines = append(lines, probe.DoesNotApply("%s needs the credentials of the profile %s in place of a token", subject, one.Source))
			continue
		}
		answer, err := Do(ctx, x.Client, one)
		if err != nil {
			lines = append(lines, unknown(subject, err))
			continue
		}
		lines = append(lines, answer.line(subject))
	}
	return lines
}

// line returns the Answer as a line about its subject.
func (a *Answer) line(subject string) probe.Line {
	if a.Granted {
		return probe.Passed("%s accepts the token, as %s", subject, a.Identity)
	}
	fix := ""
	if a.Cause != "" {
		fix = "Cause: " + a.Cause
	}
	line := probe.Fail(fix, "troubleshooting.md#the-cloud-denies-the-token", "%s denies the token: %s: %s", subject, a.Code, a.Message)
	line.Commands = a.Repair
	return line
}

// unknown returns the line for something that could not be checked. A missing right has its
// name.
func unknown(what string, err error) probe.Line {
	if right := probe.MissingRight(err); right != "" {
		line := probe.Skip("Ask an administrator for the right.", "%s: not known: you may not %s", what, right)
		line.Missing = right
		return line
	}
	return probe.Skip("", "%s: not known: %v", what, err)
}

// inPod returns the command that exchanges the token in a new pod of the ServiceAccount.
func (r *Request) inPod() string {
	trust, err := r.trust()
	if err != nil {
		return ""
	}
	return trust.Text("shell", "pod")
}

// notFromAPod is a limit of every exchange.
const notFromAPod = "this machine asked the cloud. The network of a pod may differ: NetworkPolicies, proxies, private endpoints and DNS"

// fromHere is the line about the network. inPod is the command that exchanges a token in a
// pod, if any.
func fromHere(inPod string) probe.Line {
	line := probe.DoesNotApply("%s", notFromAPod)
	if line.Commands = inPod; inPod != "" {
		line.Fix = "Exchange a token from inside a pod:"
	}
	line.Link = probe.Link("troubleshooting.md#from-inside-a-pod")
	return line
}

// reader reads in the cluster which tokens the pods of ServiceAccounts present to the clouds.
// It may be used concurrently.
type reader struct {
	*command.CLI
	settings *settings.Settings
	client   kubernetes.Interface
	asker    *ask.Asker
}

// newReader returns a reader. With evaluate, the reader evaluates the rules of the webhook and
// sends no dry runs, if the settings are known: otherwise only the webhook itself knows the
// identities of new pods.
func newReader(ctx context.Context, c *command.CLI, evaluate bool) (*reader, error) {
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	client, _, err := c.Clients()
	if err != nil {
		return nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	asker, err := ask.New(config, s, ask.Options{NoDryRun: evaluate && c.Webhook.Unread == nil})
	return &reader{CLI: c, settings: s, client: client, asker: asker}, err
}

// serviceAccount returns the metadata of a ServiceAccount.
func (r *reader) serviceAccount(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error) {
	found, err := r.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get serviceaccount %s/%s: %w", namespace, name, err)
	}
	return &found.ObjectMeta, nil
}

// pod returns the injection into a new pod of a ServiceAccount. The error is an
// *ask.Denial if no pod would be created.
func (r *reader) pod(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta) (*injected.Pod, error) {
	answer := r.asker.Ask(ctx, namespace, serviceAccount, r.ProbePod(serviceAccount.Name))
	if unread := r.Webhook.Unread; unread != nil && answer.Local {
		return nil, fmt.Errorf("you may not %s, and the settings of the webhook could not be read: %w; pass its configuration file with --config", answer.Missing, unread)
	}
	if err := answer.Problem(); err != nil {
		return nil, err
	}
	return injected.Read(answer.Pod.Object, r.settings.Keys)
}

// request returns the Request of a pod of the ServiceAccount to a provider, without a token.
func (r *reader) request(pod *injected.Pod, serviceAccount *metav1.ObjectMeta, provider string) (*Request, error) {
	request, err := FromPod(pod, r.settings.Keys, provider)
	if err != nil {
		return nil, err
	}
	request.Namespace, request.ServiceAccount, request.Prefix = serviceAccount.Namespace, serviceAccount.Name, r.settings.Keys.Prefix
	return request, nil
}

// requestToken returns a new token of a ServiceAccount.
func requestToken(ctx context.Context, client kubernetes.Interface, namespace, name, audience string, seconds int64) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &seconds}}
	response, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of serviceaccount %s/%s: %w", namespace, name, err)
	}
	return response.Status.Token, nil
}
