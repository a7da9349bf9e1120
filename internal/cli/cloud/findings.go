// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/provider"
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
}

// Exchange presents a token of each ServiceAccount to its clouds, from this machine, and
// returns a line for each: accepted, denied with the cause and its repair, or skipped. No
// line has a token or a credential.
func Exchange(ctx context.Context, c *command.CLI, target Target) ([]probe.Line, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	x, err := newExchanger(ctx, c, target)
	if err != nil {
		return nil, err
	}
	all, err := x.serviceAccounts(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([][]probe.Line, len(all))
	var group errgroup.Group
	group.SetLimit(maxExchanges)
	report, done := c.Periodically(), 0
	var mu sync.Mutex
	for i, serviceAccount := range all {
		group.Go(func() error {
			lines[i] = x.lines(ctx, serviceAccount)
			mu.Lock()
			defer mu.Unlock()
			done++
			report("exchanged the tokens of %d of %d ServiceAccounts ...", done, len(all))
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	result := slices.Concat(lines...)
	switch {
	case len(all) == 0:
		return []probe.Line{probe.DoesNotApply("no ServiceAccount asks for an identity")}, nil
	case x.omitted > 0:
		result = append(result, unknown("the tokens of more ServiceAccounts", fmt.Errorf("%d were left out; use --namespace", x.omitted)))
	}
	return append(result, x.fromHere()), nil
}

// exchanger presents the tokens of one cluster.
type exchanger struct {
	*command.CLI
	target   Target
	settings *settings.Settings
	client   kubernetes.Interface
	asker    *ask.Asker
	omitted  int // ServiceAccounts over the limit

	mu         sync.Mutex
	namespaces map[string]*metav1.ObjectMeta
	// inPod is the command that exchanges a token in a pod of inPodOf.
	inPod, inPodOf string
}

func newExchanger(ctx context.Context, c *command.CLI, target Target) (*exchanger, error) {
	x := &exchanger{CLI: c, target: target, namespaces: map[string]*metav1.ObjectMeta{}}
	var err error
	if x.settings, err = c.Settings(ctx); err != nil {
		return nil, err
	}
	if x.client, _, err = c.Clients(); err != nil {
		return nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	// With unknown settings, only the webhook itself knows the identities of new pods.
	x.asker, err = ask.New(config, x.settings, ask.Options{NoDryRun: c.Webhook.Unread == nil, Unread: c.Webhook.Unread, Concurrent: maxExchanges})
	return x, err
}

// serviceAccounts returns the metadata of the ServiceAccounts.
func (x *exchanger) serviceAccounts(ctx context.Context) ([]*metav1.ObjectMeta, error) {
	if x.target.ServiceAccount != "" {
		one, err := x.client.CoreV1().ServiceAccounts(x.target.Namespace).Get(ctx, x.target.ServiceAccount, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get serviceaccount %s/%s: %w", x.target.Namespace, x.target.ServiceAccount, err)
		}
		return []*metav1.ObjectMeta{&one.ObjectMeta}, nil
	}
	var all []*metav1.ObjectMeta
	err := x.EachServiceAccount(ctx, x.target.Namespace, func(object *metav1.PartialObjectMetadata) error {
		switch _, labelled := object.Labels[x.settings.Keys.IdentityLabel]; {
		case !labelled && !x.settings.Keys.AskForIdentity(object.Annotations):
		case len(all) == maxServiceAccounts:
			x.omitted++
		default:
			all = append(all, &object.ObjectMeta)
		}
		return nil
	})
	return all, err
}

// lines returns a line for each identity of a ServiceAccount.
func (x *exchanger) lines(ctx context.Context, serviceAccount *metav1.ObjectMeta) []probe.Line {
	who := serviceAccount.Namespace + "/" + serviceAccount.Name
	pod, err := podOf(ctx, x.CLI, x.asker, x.settings, x.namespace(ctx, serviceAccount.Namespace), serviceAccount)
	denial, denied := errors.AsType[*ask.Denial](err)
	switch {
	case denied:
		return []probe.Line{probe.Fail("lanyard explain serviceaccount "+serviceAccount.Name+" --namespace "+serviceAccount.Namespace+" has the fix.",
			"troubleshooting.md#a-pod-is-not-created", "%s: new pods are denied: %s", who, denial.Message)}
	case err != nil:
		return []probe.Line{unknown("the identity of "+who, err)}
	case len(pod.Providers) == 0:
		return []probe.Line{probe.DoesNotApply("%s: its pods get no token", who)}
	}
	var lines []probe.Line
	for _, name := range pod.Providers {
		if !slices.Contains(clouds, name) {
			lines = append(lines, probe.DoesNotApply("%s: lanyard cannot exchange tokens for %s", who, name))
			continue
		}
		p, err := FromPod(pod, x.settings.Keys, name)
		if err != nil {
			lines = append(lines, unknown("the identity of "+who, err))
			continue
		}
		if !identified(&p) {
			lines = append(lines, probe.DoesNotApply("%s: its pods get a token for %s, but no identity", who, cloudNames[name]))
			continue
		}
		lines = append(lines, x.present(ctx, who, serviceAccount, p)...)
	}
	return lines
}

// present presents one token, for each identity that the provider has.
func (x *exchanger) present(ctx context.Context, who string, serviceAccount *metav1.ObjectMeta, p provider.Provider) []probe.Line {
	text, err := requestToken(ctx, x.client, serviceAccount.Namespace, serviceAccount.Name, p.Token)
	if err != nil {
		return []probe.Line{unknown("a token of "+who, err)}
	}
	var lines []probe.Line
	for _, r := range requests(p, text) {
		subject := who + ": " + cloudNames[p.Name]
		if r.Profile != "" {
			subject += ", profile " + r.Profile
		}
		if r.Source != "" {
			lines = append(lines, probe.DoesNotApply("%s needs the credentials of the profile %s in place of a token", subject, r.Source))
			continue
		}
		r.Endpoint = x.target.Endpoint
		answer, err := Do(ctx, x.target.Client, r)
		switch {
		case err != nil:
			lines = append(lines, unknown(subject, err))
		case answer.Granted:
			lines = append(lines, probe.Passed("%s accepts the token, as %s", subject, answer.Identity))
		default:
			answer.explain(r, serviceAccount.Namespace, serviceAccount.Name, x.settings.Keys.Prefix)
			fix := ""
			if answer.Cause != "" {
				fix = "Cause: " + answer.Cause
			}
			line := probe.Fail(fix, "troubleshooting.md#the-cloud-denies-the-token", "%s denies the token: %s: %s", subject, answer.Code, answer.Message)
			line.Commands = answer.Repair
			lines = append(lines, line)
		}
		x.rememberPod(r, serviceAccount)
	}
	return lines
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

// rememberPod keeps the command that exchanges a token in a pod: of the first ServiceAccount
// by name, because exchanges end in any order.
func (x *exchanger) rememberPod(r *Request, serviceAccount *metav1.ObjectMeta) {
	x.mu.Lock()
	defer x.mu.Unlock()
	name := serviceAccount.Namespace + "/" + serviceAccount.Name
	if command := inPod(r, serviceAccount.Namespace, serviceAccount.Name); command != "" && (x.inPod == "" || name < x.inPodOf) {
		x.inPod, x.inPodOf = command, name
	}
}

// inPod returns the command that exchanges the token in a new pod of the ServiceAccount.
func inPod(r *Request, namespace, name string) string {
	trust, err := trustOf(r, namespace, name, "")
	if err != nil {
		return ""
	}
	return trust.Text("shell", "pod")
}

// notFromAPod is a limit of every exchange.
const notFromAPod = "this machine asked the cloud. The network of a pod may differ: NetworkPolicies, proxies, private endpoints and DNS"

// fromHere is the line about the network.
func (x *exchanger) fromHere() probe.Line {
	line := probe.DoesNotApply("%s", notFromAPod)
	if line.Commands = x.inPod; x.inPod != "" {
		line.Fix = "Exchange a token from inside a pod:"
	}
	line.Link = probe.Link("troubleshooting.md#from-inside-a-pod")
	return line
}

// namespace returns the metadata of a namespace, which is only its name if the user may
// not read it.
func (x *exchanger) namespace(ctx context.Context, name string) *metav1.ObjectMeta {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.namespaces[name] == nil {
		x.namespaces[name] = command.ReadNamespace(ctx, x.client, name)
	}
	return x.namespaces[name]
}

// podOf returns the injection into a new pod of a ServiceAccount. The error is an
// *ask.Denial if no pod would be created.
func podOf(ctx context.Context, c *command.CLI, asker *ask.Asker, s *settings.Settings, namespace, serviceAccount *metav1.ObjectMeta) (*injected.Pod, error) {
	answer := asker.Ask(ctx, namespace, serviceAccount, c.ProbePod(serviceAccount.Name))
	if err := answer.Problem(); err != nil {
		return nil, err
	}
	return injected.Read(answer.Pod.Object, s.Keys)
}
