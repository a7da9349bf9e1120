// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

// survey is what is known of the ServiceAccounts that need credentials.
type survey struct {
	// namespace is the only namespace whose ServiceAccounts were read; empty for all.
	namespace string
	// called are the namespaces that Lanyard is called for.
	called map[string]*metav1.ObjectMeta
	// asking are the ServiceAccounts that need credentials, by namespace and name.
	asking map[string]map[string]*metav1.ObjectMeta
	// chosen is one of them to try; nil if no ServiceAccount needs credentials.
	chosen    *metav1.PartialObjectMetadata
	unguarded int
	example   string // of an unguarded ServiceAccount
	// unread are the lines about parts that could not be read. err is set if no
	// ServiceAccount could be read.
	unread []probe.Line
	err    error
}

// lines returns the lines about the ServiceAccounts.
func (s *survey) lines() []probe.Line {
	if s.err != nil {
		return s.unread
	}
	return append([]probe.Line{Unguarded(s.namespace, s.unguarded, s.example)}, s.unread...)
}

// survey reads the ServiceAccounts of all namespaces or, without the right, of the namespace
// of the command line. mutating is nil if it was not read.
func (k *checkCommand) survey(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) *survey {
	s := &survey{called: map[string]*metav1.ObjectMeta{}, asking: map[string]map[string]*metav1.ObjectMeta{}}
	list, err := k.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		s.namespace = k.namespace
		s.unread = append(s.unread, probe.Unreadable("the other namespaces", err))
		list = &corev1.NamespaceList{Items: []corev1.Namespace{{ObjectMeta: *command.ReadNamespace(ctx, k.client, k.namespace)}}}
	}
	for i := range list.Items {
		namespace := &list.Items[i].ObjectMeta
		if called, err := cluster.CalledFor(mutating, k.settings, namespace); err == nil && called {
			s.called[namespace.Name] = namespace
		}
	}
	judge := func(object *metav1.PartialObjectMetadata) error {
		k.judge(s, object)
		return nil
	}
	s.err = k.EachServiceAccount(ctx, s.namespace, judge)
	if s.err != nil && s.namespace == "" {
		s.unread = append(s.unread, probe.Unreadable("the ServiceAccounts of other namespaces", s.err))
		s.namespace, s.unguarded = k.namespace, 0
		s.err = k.EachServiceAccount(ctx, s.namespace, judge)
	}
	if s.err != nil {
		s.unread = append(s.unread, probe.Unreadable("the ServiceAccounts", s.err))
	}
	return s
}

// judge adds a ServiceAccount to a survey.
func (k *checkCommand) judge(s *survey, object *metav1.PartialObjectMetadata) {
	if s.called[object.Namespace] == nil {
		return
	}
	if cluster.Unguarded(k.settings, object) {
		s.unguarded++
		s.example = cmp.Or(s.example, object.Namespace+"/"+object.Name)
	}
	if !k.settings.Keys.AskForIdentity(object.Annotations) {
		return
	}
	if s.asking[object.Namespace] == nil {
		s.asking[object.Namespace] = map[string]*metav1.ObjectMeta{}
	}
	s.asking[object.Namespace][object.Name] = &object.ObjectMeta
	if s.chosen == nil || s.chosen.Namespace != k.namespace && object.Namespace == k.namespace {
		s.chosen = object
	}
}

// target is a ServiceAccount whose pods are tried.
type target struct {
	namespace      *metav1.ObjectMeta
	serviceAccount *metav1.ObjectMeta // nil if it was not read
	name           string
	err            error // why it was not read
}

func (t *target) String() string { return t.namespace.Name + "/" + t.name }

// target returns the ServiceAccount of the command line, or the chosen ServiceAccount, or one
// that needs no credentials.
func (k *checkCommand) target(ctx context.Context, s *survey) *target {
	if s.chosen != nil && k.serviceAccount == "" {
		return &target{s.called[s.chosen.Namespace], &s.chosen.ObjectMeta, s.chosen.Name, nil}
	}
	t := &target{namespace: s.called[k.namespace], name: cmp.Or(k.serviceAccount, cluster.DefaultServiceAccount)}
	if t.namespace == nil {
		t.namespace = command.ReadNamespace(ctx, k.client, k.namespace)
	}
	object, err := k.client.CoreV1().ServiceAccounts(k.namespace).Get(ctx, t.name, metav1.GetOptions{})
	if t.err = err; err == nil {
		t.serviceAccount = &object.ObjectMeta
	}
	return t
}

// dryRuns asks the API server for a pod of a ServiceAccount: whether the API server can call
// the webhook, and whether the pod gets its credentials. mutating is nil if it was not read.
func (k *checkCommand) dryRuns(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration, s *survey) error {
	defer k.Progress("waiting for the webhook")()
	config, err := k.Config()
	if err != nil {
		return err
	}
	asker, err := ask.New(config, k.settings, ask.Options{Registration: mutating})
	if err != nil {
		return err
	}
	t := k.target(ctx, s)
	k.redactor.name("namespace", t.namespace.Name)
	k.redactor.name("serviceaccount", t.name)
	pod := k.ProbePod(t.name)
	answer := asker.Ask(ctx, t.namespace, t.serviceAccount, pod)
	called, tried := k.judgeAnswer(t, &answer)
	if !answer.Local && called.Status != probe.Skipped {
		called = k.attempt(ctx, t.namespace.Name, pod, called)
	}
	// Without an entry for the probe, the API server stores a pod without calling the webhook.
	registered := mutating != nil && cluster.Entry(mutating, cluster.ProbeWebhook) != nil
	if called.Status == probe.OK && tried.Status != probe.OK && !registered && !probe.Denied(answer.Problem()) {
		called = probe.Skip("", "it is not known whether the API server called the webhook: the webhook configurations were not read")
	}
	k.add("probe", called)
	switch {
	case k.serviceAccount != "", s.chosen != nil && (answer.Local || called.Status == probe.OK):
		k.add("dry run", tried)
	case s.chosen == nil && len(s.unread) > 0:
		k.add("dry run", probe.Skip("Name a ServiceAccount with --service-account.", "no ServiceAccount was tried: not all of them can be read"))
	case s.chosen == nil:
		k.add("dry run", probe.DoesNotApply("no ServiceAccount needs credentials yet, so that none was tried"))
	}
	return nil
}

// judgeAnswer returns the lines for the probe and for the pods of the ServiceAccount.
func (k *checkCommand) judgeAnswer(t *target, answer *ask.Answer) (called, tried probe.Line) {
	if !answer.Local {
		sections := probe.DryRun(k.settings.Keys, t.String(), response(answer))
		return sections[0].Lines[0], sections[1].Lines[0]
	}
	called = probe.Unasked(answer.Missing.String())
	switch {
	case apierrors.IsNotFound(t.err):
		return called, probe.NoServiceAccount(t.String())
	case answer.Err != nil && t.err != nil:
		return called, probe.Unreadable("ServiceAccount "+t.String(), t.err)
	case answer.Err != nil:
		return called, probe.Skip("", "pods of ServiceAccount %s were not tried: %v", t, answer.Err)
	}
	tried = probe.Injection(k.settings.Keys, t.String(), response(answer))
	tried.Text += " (evaluated here, not by the cluster)"
	return called, tried
}

// response returns an answer with the API server's own error, so that the text is the text of
// "lanyard-webhook check".
func response(answer *ask.Answer) probe.Answer {
	a := probe.Answer{Pod: answer.Pod, Warnings: answer.Warnings, Err: answer.Err}
	if d := answer.Denial; d != nil && d.Err != nil {
		a.Err = d.Err
	} else if d != nil {
		a.Err = fmt.Errorf("lanyard: %s: %s", d.Reason, d.Message)
	}
	return a
}

// maxAttempts is the highest number of --attempts. attemptsEach is the default for each of
// several API servers.
const (
	maxAttempts  = 100
	attemptsEach = 3
)

// attempt repeats the dry run that the first line is about. A load balancer chooses an API
// server for each connection, so each dry run has a connection of its own.
func (k *checkCommand) attempt(ctx context.Context, namespace string, pod *unstructured.Unstructured, first probe.Line) probe.Line {
	servers := k.apiServers(ctx)
	n := cmp.Or(k.attempts, 1)
	if k.attempts == 0 && servers > 1 {
		n = min(attemptsEach*servers, maxAttempts)
	}
	lines := make([]probe.Line, n)
	lines[0] = first
	var group errgroup.Group
	group.SetLimit(ask.DefaultConcurrent)
	for i := 1; i < n; i++ {
		group.Go(func() error {
			config, err := k.Config()
			if err != nil {
				return err
			}
			config.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext // a function of its own: no connection is shared
			client, err := probe.NewClient(config)
			if err == nil {
				lines[i] = probe.Probe(client.Create(ctx, namespace, pod).Err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return probe.Unreadable("the connections", err)
	}
	return Attempts(lines, servers)
}

// apiServers returns the number of API servers; 0 if it is not known.
func (k *checkCommand) apiServers(ctx context.Context) (servers int) {
	list, err := k.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return 0
	}
	for i := range list.Items {
		servers = max(servers, len(list.Items[i].Endpoints)) // a slice for each family of addresses
	}
	return servers
}
