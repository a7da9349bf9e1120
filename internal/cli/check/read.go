// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/status"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// beforeInstall checks a cluster that Lanyard is to be installed in.
func (k *checkCommand) beforeInstall(ctx context.Context) {
	k.add("rights", k.rights(ctx)...)
	if all, err := command.Configurations(ctx, k.client); err != nil {
		k.add("other webhooks", probe.Unreadable("webhook configurations", err))
	} else {
		peers, _ := Peers(all, "lanyard", nil) // the name that the manifests and the chart have
		k.add("other webhooks", append(Installed(cluster.Find(all)), peers...)...)
	}
	k.issuer(ctx)
}

// installed checks an installation. Each part is checked that can be read.
func (k *checkCommand) installed(ctx context.Context) error {
	all, err := command.Configurations(ctx, k.client)
	found := cluster.Find(all)
	if len(found) == 0 { // otherwise, k.Settings has read them
		err = cmp.Or(err, k.ReadPolicies(ctx, k.client, nil))
	}
	policies := err == nil && len(found) == 0 && k.Webhook.Policies != nil
	if err == nil && len(found) == 0 && !policies {
		k.add("registration", NotOne(found))
		k.issuer(ctx)
		if k.serviceAccount != "" {
			k.add("dry run", probe.Skip("Install Lanyard first.", "pods of ServiceAccount %s/%s were not tried: Lanyard is not installed", k.namespace, k.serviceAccount))
		}
		return nil
	}
	var mutating *admissionregistrationv1.MutatingWebhookConfiguration
	if len(found) == 1 {
		mutating = found[0]
	}
	s := k.survey(ctx, mutating)
	s.byPolicies = policies
	if k.Webhook.Policies != nil {
		k.add("policies", Injecting(k.Webhook.Policies, k.Webhook.InjectedBy))
	}
	switch {
	case mutating != nil:
		k.parts(ctx, all, mutating, s)
	case policies:
		k.add("fences", PolicyFences(k.Webhook.Policies)...)
		k.add("ServiceAccounts", s.lines()...)
	default:
		line := NotOne(found)
		if err != nil {
			line = probe.Unreadable("webhook configurations", err)
		}
		k.add("registration", line)
		for _, part := range []string{"replicas", "certificate", "guard", "fences"} {
			k.add(part, probe.Skip("", "the %s cannot be checked without one webhook configuration that can be read", part))
		}
		k.add("ServiceAccounts", s.lines()...)
	}
	k.issuer(ctx)
	config, err := k.Config()
	if err != nil {
		return err
	}
	asker, err := ask.New(config, k.settings, ask.Options{Registration: mutating, Unread: k.Webhook.Unread})
	if err != nil {
		return err
	}
	k.pods(ctx, s)
	k.dryRuns(ctx, asker, mutating, s)
	return nil
}

// parts checks the objects of an installation.
func (k *checkCommand) parts(ctx context.Context, all []admissionregistrationv1.MutatingWebhookConfiguration, mutating *admissionregistrationv1.MutatingWebhookConfiguration, s *survey) {
	validating, err := k.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, mutating.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		validating, err = nil, nil
	}
	k.add("replicas", k.replicas(ctx, mutating))
	k.add("certificate", Certificates(mutating, validating, time.Now())...)
	peers, switching := Peers(all, mutating.Name, k.settings.Peers)
	lines := append(Registration(mutating, validating, err), peers...)
	if err := k.Webhook.Unread; err != nil {
		lines = append(lines, Unread(err))
	}
	k.add("registration", lines...)
	k.policies(ctx, mutating, s, switching)
}

// replicas checks the pods behind the Service that the API server calls.
func (k *checkCommand) replicas(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) probe.Line {
	config := cluster.Entry(mutating, cluster.PodWebhook).ClientConfig
	if config.Service == nil {
		return probe.DoesNotApply("the webhook runs outside of the cluster, at %s", *config.URL)
	}
	k.redactor.name("namespace", config.Service.Namespace)
	name := config.Service.Namespace + "/" + config.Service.Name
	service, err := k.client.CoreV1().Services(config.Service.Namespace).Get(ctx, config.Service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return probe.Fail("Install Lanyard again, or remove its webhook configurations.", "operations/README.md#remove-it", "Service %s does not exist", name)
	}
	if err != nil {
		return probe.Unreadable("Service "+name, err)
	}
	pods, err := k.client.CoreV1().Pods(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return probe.Unreadable("the pods of Service "+name, err)
	}
	return Replicas(name, pods.Items)
}

// policies checks the guard, its labels and the fences. switching reports whether Lanyard
// takes over from another webhook.
func (k *checkCommand) policies(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration, s *survey, switching bool) {
	names := cluster.GuardPolicies(mutating)
	for _, fence := range fences {
		names = append(names, mutating.Name+fence.suffix)
	}
	var guard probe.Line
	var limits []probe.Line
	switch policies, err := cluster.ReadPolicies(ctx, k.client, names...); {
	case err == nil:
		guard, limits = Guard(mutating, policies), k.fences(ctx, mutating, policies)
	case apierrors.IsNotFound(err):
		guard, limits = Guard(mutating, nil), []probe.Line{probe.DoesNotApply("this Kubernetes has no fences: they need 1.30")}
	default:
		guard, limits = probe.Unreadable("the guard", err), []probe.Line{probe.Unreadable("the fences", err)}
	}
	if switching {
		guard = DuringSwitch(guard)
	}
	k.add("guard", append([]probe.Line{guard}, s.lines()...)...)
	k.add("fences", limits...)
}

// fences checks the fences. The source of the certificate is an argument of the Deployment; the
// file of --config does not contain it.
func (k *checkCommand) fences(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration, policies *cluster.Policies) []probe.Line {
	webhook, _, err := cluster.Options(ctx, k.client, mutating)
	if err != nil {
		return Fences(mutating, policies, false, err)
	}
	return Fences(mutating, policies, webhook.SelfManaged(), nil)
}

// issuer checks the cluster's issuer, from here as a cloud would.
func (k *checkCommand) issuer(ctx context.Context) {
	defer k.Progress("reading the issuer")()
	cluster, err := cloud.FromCluster(ctx, k.client.CoreV1().RESTClient())
	if apierrors.IsForbidden(err) { // without the message of the API server: the response is no object
		k.add("issuer", probe.NoRight("get "+cloud.DiscoveryPath, "the issuer cannot be read"))
		return
	}
	if err != nil {
		k.add("issuer", probe.Unreadable("the issuer", err))
		return
	}
	var public *cloud.Documents
	if cloud.Public(cluster.Discovery.Issuer) {
		public, err = cloud.FromURL(ctx, &http.Client{Timeout: 10 * time.Second}, cluster.Discovery.Issuer)
	}
	k.add("issuer", append(Issuer(cluster, public, err), ReservedIssuer(k.Webhook.Policies, cluster.Discovery.Issuer)...)...)
}

// rights checks whether the user may create the objects of an install.
func (k *checkCommand) rights(ctx context.Context) []probe.Line {
	const roles, admission = ".rbac.authorization.k8s.io", ".admissionregistration.k8s.io"
	all := [][2]string{ // each with its namespace
		{"namespaces"}, {"serviceaccounts", k.installTo}, {"secrets", k.installTo}, {"services", k.installTo},
		{"deployments.apps", k.installTo}, {"poddisruptionbudgets.policy", k.installTo}, {"roles" + roles, k.installTo}, {"rolebindings" + roles, k.installTo},
		{"clusterroles" + roles}, {"clusterrolebindings" + roles}, {"mutatingwebhookconfigurations" + admission},
		{"validatingwebhookconfigurations" + admission}, {"validatingadmissionpolicies" + admission}, {"validatingadmissionpolicybindings" + admission},
	}
	var lines []probe.Line
	for _, object := range all {
		allowed, err := command.May(ctx, k.client, "create", object[0], object[1])
		if err != nil {
			return []probe.Line{probe.Unreadable("your rights", err)}
		}
		if !allowed {
			lines = append(lines, noRight(object[0], object[1]))
		}
	}
	return orPassed(lines, "you may create all %d kinds of objects that an install creates", len(all))
}

// exchangeTokens adds a line for each token that was presented to its cloud.
func (k *checkCommand) exchangeTokens(ctx context.Context) error {
	client, err := cloud.NewClient(k.caFile)
	if err != nil {
		return err
	}
	target := cloud.Target{ServiceAccount: k.serviceAccount, Endpoint: k.endpoint, Client: client}
	if k.serviceAccount != "" || *k.Flags.Namespace != "" {
		target.Namespace = k.namespace
	}
	lines, err := target.Exchange(ctx, k.CLI)
	switch {
	case apierrors.IsNotFound(err):
		lines = []probe.Line{probe.NoServiceAccount(target.Namespace + "/" + target.ServiceAccount)}
	case err != nil:
		lines = []probe.Line{probe.Unreadable("the ServiceAccounts", err)}
	}
	k.add("exchange", lines...)
	return nil
}

// survey is the ServiceAccounts that need credentials, as far as they can be read.
type survey struct {
	// namespace is the only namespace whose ServiceAccounts were read; empty for all.
	namespace string
	// namespaces are the namespaces that Lanyard is called for, with their ServiceAccounts.
	namespaces map[string]*status.Namespace
	// chosen is a ServiceAccount to try; nil if no ServiceAccount asks for an identity.
	chosen    *metav1.PartialObjectMetadata
	unguarded int
	// byPolicies is true if no webhook injects, only policies.
	byPolicies bool
	example    string // of an unguarded ServiceAccount
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
	return append([]probe.Line{Unguarded(s.namespace, s.unguarded, s.example, s.byPolicies)}, s.unread...)
}

// survey reads the ServiceAccounts of all namespaces or, without the right, of the namespace
// of the command line. mutating is nil if it was not read.
func (k *checkCommand) survey(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) *survey {
	all := k.surveyOf(ctx, mutating, metav1.NamespaceAll)
	if all.err == nil {
		return all
	}
	s := k.surveyOf(ctx, mutating, k.namespace)
	s.unread = []probe.Line{probe.Unreadable("the other namespaces", all.err)}
	if s.err != nil {
		s.unread = append(s.unread, probe.Unreadable("the ServiceAccounts", s.err))
	}
	return s
}

// surveyOf reads the ServiceAccounts of one namespace, or of all. One namespace need not be read.
func (k *checkCommand) surveyOf(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration, scope string) *survey {
	s := &survey{namespace: scope, namespaces: map[string]*status.Namespace{}}
	list, err := command.Namespaces(ctx, k.client, scope)
	if len(list) == 0 {
		s.err = err
		return s
	}
	for _, namespace := range list {
		if cluster.CalledFor(mutating, k.settings, namespace) {
			s.namespaces[namespace.Name] = status.NewNamespace(k.settings, namespace, mutating, true)
		}
	}
	s.err = k.EachServiceAccount(ctx, scope, func(object *metav1.PartialObjectMetadata) error {
		k.addServiceAccount(s, object)
		return nil
	})
	return s
}

// addServiceAccount adds a ServiceAccount to a survey. A ServiceAccount of the namespace of the
// command line is chosen first.
func (k *checkCommand) addServiceAccount(s *survey, object *metav1.PartialObjectMetadata) {
	namespace := s.namespaces[object.Namespace]
	if namespace == nil {
		return
	}
	namespace.AddServiceAccount(object)
	if cluster.Unguarded(k.settings, object) {
		s.unguarded++
		s.example = cmp.Or(s.example, object.Namespace+"/"+object.Name)
	}
	first := s.chosen == nil || s.chosen.Namespace != k.namespace && object.Namespace == k.namespace
	if first && k.settings.AskForIdentity(object.Annotations) {
		s.chosen = object
	}
}

// pods counts the pods with a former identity or none. It sends no dry run, because one for
// each ServiceAccount would load the cluster, so it needs the settings of the webhook.
func (k *checkCommand) pods(ctx context.Context, s *survey) {
	if s.chosen == nil || k.Webhook.Unread != nil {
		return
	}
	defer k.Progress("reading pods")()
	stale, without := 0, 0
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		namespace := s.namespaces[name]
		if namespace.Empty() {
			continue
		}
		if err := namespace.ReadPods(ctx, k.client); err != nil {
			k.add("pods", probe.Unreadable("the pods", err))
			return
		}
		for _, row := range namespace.Rows() {
			stale += row.States[injected.Stale]
			without += row.States[injected.Without]
		}
		delete(s.namespaces, name) // with its pods
	}
	k.add("pods", Outdated(s.namespace, stale, without))
}

// dryRuns asks the API server for a pod of a ServiceAccount: whether the API server can call
// the webhook, and whether the pod gets its credentials. mutating is nil if it was not read.
func (k *checkCommand) dryRuns(ctx context.Context, asker *ask.Asker, mutating *admissionregistrationv1.MutatingWebhookConfiguration, s *survey) {
	defer k.Progress("waiting for the webhook")()
	// Without a ServiceAccount that asks for an identity, the dry run is only for the probe.
	namespace, name := k.namespace, cmp.Or(k.serviceAccount, cluster.DefaultServiceAccount)
	if s.chosen != nil && k.serviceAccount == "" {
		namespace, name = s.chosen.Namespace, s.chosen.Name
	}
	k.redactor.name("namespace", namespace)
	k.redactor.name("serviceaccount", name)
	var meta *metav1.ObjectMeta
	serviceAccount, errRead := k.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if errRead == nil {
		meta = &serviceAccount.ObjectMeta
	}
	pod := k.ProbePod(name)
	answer := asker.Ask(ctx, command.ReadNamespace(ctx, k.client, namespace), meta, pod)
	called, tried := k.judge(namespace+"/"+name, errRead, &answer)
	if s.byPolicies {
		called = probe.DoesNotApply("the API server injects by itself, and calls no webhook")
	} else if answer.Local == "" && called.Status != probe.Skipped {
		called = k.attempt(ctx, namespace, pod, called)
	}
	// Without an entry for the probe, the API server stores a pod without calling the webhook.
	registered := mutating != nil && cluster.Entry(mutating, cluster.ProbeWebhook) != nil
	if called.Status == probe.OK && tried.Status != probe.OK && !registered && !probe.Denied(answer.Problem()) {
		called = probe.Skip("", "it is not known whether the API server called the webhook: the webhook configurations were not read")
	}
	k.add("probe", called)
	switch {
	case k.serviceAccount != "", s.chosen != nil && (answer.Local != "" || called.Status == probe.OK || s.byPolicies):
		k.add("dry run", tried)
	case s.chosen == nil && len(s.unread) > 0:
		k.add("dry run", probe.Skip("Name a ServiceAccount with --service-account.", "no ServiceAccount was tried: not all of them can be read"))
	case s.chosen == nil:
		k.add("dry run", probe.DoesNotApply("no ServiceAccount needs credentials yet, so that none was tried"))
	}
}

// judge returns the lines for the probe and for the pods of a ServiceAccount. unread is why the
// ServiceAccount was not read.
func (k *checkCommand) judge(serviceAccount string, unread error, answer *ask.Answer) (called, tried probe.Line) {
	response := answer.Answer
	if answer.Denial != nil {
		response.Err = answer.Denial.Err // the text is then the text of "lanyard-webhook check"
	}
	if answer.Local == "" {
		sections := probe.DryRun(k.settings, serviceAccount, response)
		return sections[0].Lines[0], sections[1].Lines[0]
	}
	called = probe.Unasked(answer.Missing)
	switch {
	case apierrors.IsNotFound(unread):
		return called, probe.NoServiceAccount(serviceAccount)
	case answer.Err != nil && unread != nil:
		return called, probe.Unreadable("ServiceAccount "+serviceAccount, unread)
	case answer.Err != nil:
		return called, probe.Skip("", "pods of ServiceAccount %s were not tried: %v", serviceAccount, answer.Err)
	}
	tried = probe.Injection(k.settings, serviceAccount, response)
	tried.Text += " (evaluated here, not by the cluster)"
	return called, tried
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
