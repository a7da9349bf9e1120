// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// cluster checks the version of the API server, and the clocks.
func (k *checkCommand) cluster(ctx context.Context) error {
	version, skew, err := k.version(ctx)
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	found := []finding.Finding{Version(version)}
	if !k.exchange {
		found = append(found, Clocks(skew, k.clocksOfNodes(ctx))...)
	}
	k.add("cluster", found...)
	return nil
}

// version returns the version of the API server, and how far the clock of this machine is ahead of
// its clock.
func (k *checkCommand) version(ctx context.Context) (version string, skew time.Duration, err error) {
	config, err := k.Config()
	if err != nil {
		return "", 0, err
	}
	before, date := time.Now(), ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil {
				date = response.Header.Get("Date")
			}
			return response, err
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", 0, err
	}
	text, err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	info := new(apiversion.Info)
	if err == nil {
		err = json.Unmarshal(text, info)
	}
	if err != nil {
		return "", 0, err
	}
	return info.GitVersion, skewOfDate(date, before, time.Now()), nil
}

// skewOfDate returns how far a clock is ahead of a server's clock, given the Date header of a
// response that was sent between the two times. It returns 0 if there is no header. Date has a
// resolution of one second.
func skewOfDate(date string, before, after time.Time) time.Duration {
	at, err := http.ParseTime(date)
	switch {
	case err != nil:
		return 0
	case at.After(after):
		return after.Sub(at)
	case at.Add(time.Second).Before(before):
		return before.Sub(at)
	}
	return 0
}

// roundTripper is an http.RoundTripper that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// clocksOfNodes returns how far the clocks of nodes are ahead of the API server's clock, by
// comparing the time that a kubelet writes into its lease with the API server's timestamp of
// that write. The result is empty if the user may not read leases.
func (k *checkCommand) clocksOfNodes(ctx context.Context) map[string]time.Duration {
	nodes := map[string]time.Duration{}
	leases, err := k.client.CoordinationV1().Leases("kube-node-lease").List(ctx, metav1.ListOptions{Limit: maxNodes})
	if err != nil {
		return nil
	}
	for i := range leases.Items {
		lease := &leases.Items[i]
		for _, entry := range lease.ManagedFields {
			if entry.Manager == "kubelet" && entry.Time != nil && lease.Spec.RenewTime != nil {
				nodes[lease.Name] = lease.Spec.RenewTime.Sub(entry.Time.Time)
			}
		}
	}
	return nodes
}

// maxNodes limits the nodes whose clocks are compared.
const maxNodes = 500

// beforeInstall checks a cluster before the installation.
func (k *checkCommand) beforeInstall(ctx context.Context) {
	k.add("rights", k.rights(ctx)...)
	if all, err := k.survey.Configurations(ctx); err != nil {
		k.add("other webhooks", finding.Unreadable("webhook configurations", err))
	} else {
		peers, _ := Peers(all, "lanyard", nil) // the name that the manifests and the chart have
		k.add("other webhooks", append(Installed(cluster.Find(all)), peers...)...)
	}
	if left, err := k.survey.Leftovers(ctx); err == nil {
		k.add("leftovers", Leftovers(left, true)...)
	}
	k.issuer(ctx)
}

// installed checks each part of an installation that can be read.
func (k *checkCommand) installed(ctx context.Context) error {
	installation, err := k.survey.Installation(ctx)
	if err == nil && installation.Absent() {
		k.absent(ctx)
		return nil
	}
	accounts := k.readAccounts(ctx, installation)
	if installation != nil && installation.Policies != nil {
		k.add("policies", Injecting(installation.Policies, installation.InjectedBy()))
	}
	switch {
	case err != nil:
		unreadable := finding.Unreadable("webhook configurations", err)
		unreadable.Text += "; the replicas, the certificate, the guard and the fences were not checked"
		k.add("registration", unreadable)
	case len(installation.Registrations) == 0:
		k.add("fences", PolicyFences(installation.Policies)...)
	default:
		if len(installation.Registrations) > 1 {
			k.add("installations", Several(installation))
		}
		for i, registration := range installation.Registrations {
			k.parts(ctx, registration, i == 0, len(installation.Registrations) > 1)
		}
	}
	k.add("ServiceAccounts", accounts.findings()...)
	if left, err := k.survey.Leftovers(ctx); err == nil {
		k.add("leftovers", Leftovers(left, false)...)
	}
	k.issuer(ctx)
	config, err := k.Config()
	if err != nil {
		return err
	}
	asker, err := workload.NewAsker(config, k.settings, workload.Options{Registration: installation.Registration(), Unread: k.Webhook.Unread})
	if err != nil {
		return err
	}
	k.pods(ctx, accounts)
	k.dryRuns(ctx, asker, installation.Registration(), accounts)
	return nil
}

// absent reports that Lanyard is not installed, and policies that still deny pods.
func (k *checkCommand) absent(ctx context.Context) {
	left, err := k.survey.Leftovers(ctx)
	found := append(Leftovers(left, true), Absent())
	if err != nil {
		found = append(found, finding.Unreadable("the policies of an earlier installation", err))
	}
	k.add("registration", found...)
	k.issuer(ctx)
	if k.serviceAccount != "" {
		k.add("dry run", finding.Skip("not_installed", "Install Lanyard first.", "install/README.md",
			"pods of ServiceAccount %s/%s were not tested: Lanyard is not installed", k.namespace, k.serviceAccount))
	}
}

// parts checks the objects of an installation. first is true for the installation with the most
// ready replicas, and named for one of several.
func (k *checkCommand) parts(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration, first, named bool) {
	of := ""
	if named {
		of = " of " + registration.Name
	}
	k.add("replicas"+of, k.replicas(ctx, registration))
	validating, errValidating := k.survey.Validating(ctx)
	k.add("certificate"+of, Certificates(registration, validatingOf(registration.Name, validating), time.Now())...)
	found, switching := Registration(registration, validating, errValidating), false
	if first {
		var peers []finding.Finding
		all, _ := k.survey.Configurations(ctx) // registration is one of them
		peers, switching = Peers(all, registration.Name, k.settings.Peers)
		if found = append(found, peers...); k.Webhook.Unread != nil {
			found = append(found, Unread(k.Webhook.Unread))
		}
	}
	k.add("registration"+of, found...)
	policies, err := k.survey.Policies(ctx)
	if err != nil {
		unreadable := finding.Unreadable("the guard", err)
		unreadable.Text += "; the fences were not checked"
		k.add("guard"+of, unreadable)
		return
	}
	guard := Guard(registration, policies)
	if switching {
		guard = DuringSwitch(guard)
	}
	k.add("guard"+of, guard)
	k.add("fences"+of, k.fences(ctx, registration, policies)...)
}

// replicas checks the pods behind the Service that the API server calls.
func (k *checkCommand) replicas(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration) finding.Finding {
	service, err := k.survey.Service(ctx, registration)
	reference := cluster.Entry(registration, cluster.PodWebhook).ClientConfig
	switch {
	case errors.Is(err, cluster.ErrOutside):
		return finding.DoesNotApply("the webhook runs outside the cluster, at %s", *reference.URL)
	case apierrors.IsNotFound(err):
		return noService(reference.Service.Namespace, reference.Service.Name)
	case err != nil:
		return finding.Unreadable("Service "+reference.Service.Namespace+"/"+reference.Service.Name, err)
	}
	k.redactor.name("namespace", service.Namespace)
	pods, err := k.survey.Replicas(ctx, registration)
	if err != nil {
		return finding.Unreadable("the pods of Service "+service.Namespace+"/"+service.Name, err)
	}
	deployment := ""
	if found, err := k.survey.Deployment(ctx, registration); err == nil {
		deployment = found.Name
	}
	return Replicas(service.Namespace, service.Name, deployment, pods)
}

// fences checks the fences. The source of the certificate is an argument of the Deployment; the
// file of --config does not contain it.
func (k *checkCommand) fences(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration, policies *cluster.Policies) []finding.Finding {
	webhook, _, err := k.survey.Options(ctx, registration)
	if err != nil {
		return Fences(registration, policies, false, err)
	}
	return Fences(registration, policies, webhook.SelfManaged(), nil)
}

// issuer checks the cluster's issuer from this machine, as a cloud would. With --issuer, the
// documents at that URL are checked and must be readable.
func (k *checkCommand) issuer(ctx context.Context) {
	cluster, err := cloud.FromCluster(ctx, k.client.CoreV1().RESTClient())
	if apierrors.IsForbidden(err) { // without the message of the API server: the response is not a Status
		k.add("issuer", finding.NoRight("get "+cloud.DiscoveryPath, "the issuer cannot be read"))
		return
	}
	if err != nil {
		k.add("issuer", finding.Unreadable("the issuer", err))
		return
	}
	var public *cloud.Documents
	if at := cmp.Or(k.issuerURL, cluster.Discovery.Issuer); k.issuerURL != "" || k.caFile != "" || cloud.Public(at) {
		limited, cancel := context.WithTimeout(ctx, issuerTimeout)
		public, err = cloud.FromURL(limited, k.internet, at)
		cancel()
	}
	if k.issuerURL != "" && err != nil {
		k.add("issuer", finding.Skip("", "Check the URL, and that this machine reaches it. To publish the documents: lanyard trust issuer --to PLACE", "issuer.md#publish-the-documents",
			"the documents of %s cannot be read: %v", k.issuerURL, err))
		return
	}
	signing := ""
	if public != nil {
		signing, _ = cloud.SigningKey(ctx, k.CLI, k.client) // without the right, all keys must still be public
	}
	found := Issuer(cluster, public, err, signing)
	if injecting, err := k.survey.Injecting(ctx); err == nil {
		found = append(found, ReservedIssuer(injecting, cluster.Discovery.Issuer)...)
	}
	k.add("issuer", found...)
	if len(k.fleetContexts) > 0 {
		k.fleet(ctx, cluster, public)
	}
}

// issuerTimeout is how long reading the documents of an issuer may take.
const issuerTimeout = 10 * time.Second

// rights checks whether the user may create the objects of an install.
func (k *checkCommand) rights(ctx context.Context) []finding.Finding {
	const roles, admission = ".rbac.authorization.k8s.io", ".admissionregistration.k8s.io"
	all := [][2]string{ // each with its namespace
		{"namespaces"}, {"serviceaccounts", k.installTo}, {"secrets", k.installTo}, {"services", k.installTo},
		{"deployments.apps", k.installTo}, {"poddisruptionbudgets.policy", k.installTo}, {"roles" + roles, k.installTo}, {"rolebindings" + roles, k.installTo},
		{"clusterroles" + roles}, {"clusterrolebindings" + roles}, {"mutatingwebhookconfigurations" + admission},
		{"validatingwebhookconfigurations" + admission}, {"validatingadmissionpolicies" + admission}, {"validatingadmissionpolicybindings" + admission},
	}
	var found []finding.Finding
	for _, object := range all {
		allowed, err := command.May(ctx, k.client, "create", object[0], object[1])
		if err != nil {
			return []finding.Finding{finding.Unreadable("your rights", err)}
		}
		if !allowed {
			found = append(found, noRight(object[0], object[1]))
		}
	}
	return orPassed(found, "you may create all %d kinds of objects that the installation needs", len(all))
}

// exchangeTokens adds a line for each token that was presented to its cloud.
func (k *checkCommand) exchangeTokens(ctx context.Context) {
	target := cloud.Target{ServiceAccount: k.serviceAccount, Endpoint: k.endpoint, Client: k.internet}
	if k.serviceAccount != "" || *k.Flags.Namespace != "" {
		target.Namespace = k.namespace
	}
	if command.Exists(ctx, k.client, target.Namespace) != nil {
		k.add("exchange", noNamespace(k.namespace))
		return
	}
	found, err := target.Exchange(ctx, k.CLI)
	switch {
	case apierrors.IsNotFound(err):
		found = []finding.Finding{probe.NoServiceAccount(target.Namespace + "/" + target.ServiceAccount)}
	case err != nil:
		found = []finding.Finding{finding.Unreadable("the ServiceAccounts", err)}
	}
	k.add("exchange", found...)
}

// accounts describes the ServiceAccounts that need credentials, as far as they can be read.
type accounts struct {
	// namespace is the only namespace whose ServiceAccounts were read; empty for all.
	namespace string
	// namespaces are the namespaces that Lanyard is called for, with their ServiceAccounts.
	namespaces map[string]*workload.Namespace
	// chosen is a ServiceAccount to try, or nil if no ServiceAccount asks for an identity.
	chosen    *metav1.PartialObjectMetadata
	unguarded int
	example   string // of an unguarded ServiceAccount
	// policies are those that inject if no webhook does, or nil.
	policies *cluster.Injecting
	// unread contains findings about parts that could not be read. err is set if no
	// ServiceAccount could be read.
	unread []finding.Finding
	err    error
}

// findings returns the findings about the ServiceAccounts.
func (s *accounts) findings() []finding.Finding {
	if s.err != nil || s.compiled() {
		return s.unread
	}
	return append([]finding.Finding{Unguarded(s.namespace, s.unguarded, s.example, s.policies != nil)}, s.unread...)
}

// compiled reports whether the policies contain the identities, and therefore ignore the label of
// ServiceAccounts.
func (s *accounts) compiled() bool { return s.policies.Compiled() }

// readAccounts reads the ServiceAccounts of all namespaces or, without the right, of the namespace
// of the command line. installation is nil if it is not known.
func (k *checkCommand) readAccounts(ctx context.Context, installation *cluster.Installation) *accounts {
	s := k.accountsOf(ctx, installation.Registration(), metav1.NamespaceAll)
	if err := s.err; err != nil {
		s = k.accountsOf(ctx, installation.Registration(), k.namespace)
		s.unread = []finding.Finding{finding.Unreadable("the other namespaces", err)}
		if s.err != nil {
			s.unread = append(s.unread, finding.Unreadable("the ServiceAccounts", s.err))
		}
	}
	s.policies = installation.OnlyPolicies()
	return s
}

// accountsOf reads the ServiceAccounts of one namespace, or of all.
func (k *checkCommand) accountsOf(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration, scope string) *accounts {
	s := &accounts{namespace: scope, namespaces: map[string]*workload.Namespace{}}
	list, err := command.Namespaces(ctx, k.client, scope)
	if len(list) == 0 {
		s.err = err
		return s
	}
	exists := func(namespace *metav1.ObjectMeta) bool { return namespace.Name == k.namespace }
	if scope == metav1.NamespaceAll && *k.Flags.Namespace != "" && !slices.ContainsFunc(list, exists) {
		s.unread = append(s.unread, noNamespace(k.namespace))
	}
	for _, namespace := range list {
		if cluster.CalledFor(registration, k.settings, namespace) {
			s.namespaces[namespace.Name] = workload.NewNamespace(k.settings, namespace, registration)
		}
	}
	s.err = k.EachServiceAccount(ctx, scope, func(object *metav1.PartialObjectMetadata) error {
		k.addServiceAccount(s, object)
		return nil
	})
	return s
}

// addServiceAccount adds a ServiceAccount. It prefers to choose one in the namespace of the
// command line.
func (k *checkCommand) addServiceAccount(s *accounts, object *metav1.PartialObjectMetadata) {
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

// pods counts the pods by their states. It needs the settings of the webhook, because
// it sends no dry runs: one for each ServiceAccount would load the cluster.
func (k *checkCommand) pods(ctx context.Context, s *accounts) {
	if s.compiled() {
		k.add("pods", finding.DoesNotApply("pods were not compared with the annotations of ServiceAccounts: the identities are in the policies"))
		return
	}
	if s.err != nil || k.Webhook.Unread != nil {
		return
	}
	states, configMaps := map[injected.State]int{}, workload.ConfigMapLimit{}
	if err := workload.FindInjected(ctx, k.CLI, s.namespace, s.namespaces); err != nil {
		k.add("pods", finding.Unreadable("the pods", err))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		namespace := s.namespaces[name]
		if namespace.Empty() {
			continue
		}
		if err := namespace.ReadPods(ctx, k.client, "", &configMaps); err != nil {
			k.add("pods", finding.Unreadable("the pods", err))
			return
		}
		for _, row := range namespace.Rows() {
			for state, n := range row.States {
				states[state] += n
			}
		}
		delete(s.namespaces, name) // with its pods
	}
	if s.chosen == nil && len(states) == 0 {
		return
	}
	found := Pods(s.namespace, states)
	if f := configMaps.Finding(); f.Text != "" {
		found = append(found, f)
	}
	k.add("pods", found...)
}

// dryRuns sends the dry run of a pod to find out whether the API server can call the webhook,
// and whether the pod gets its credentials. registration is nil if it was not read.
func (k *checkCommand) dryRuns(ctx context.Context, asker *workload.Asker, registration *admissionregistrationv1.MutatingWebhookConfiguration, s *accounts) {
	// Without a ServiceAccount that asks for an identity, the dry run only tests the call.
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
	if s.compiled() && tried.Status == finding.Failed && answer.Problem() == nil {
		tried.Text = fmt.Sprintf("pods of ServiceAccount %s/%s get no credentials: the policies do not have it", namespace, name)
		tried.Fix, tried.Link = "Compile it into the policies: lanyard policies --cluster, or --compile with its manifest.", finding.Page("policies.md#compile-the-identities")
	}
	if s.policies != nil {
		called = finding.DoesNotApply("the API server injects by itself, and calls no webhook")
	} else if answer.Local == "" && called.Status != finding.Skipped {
		called = k.attempt(ctx, namespace, pod, called)
	}
	// Without an entry for the probe, the API server stores a pod without calling the webhook.
	registered := registration != nil && cluster.Entry(registration, probe.Webhook) != nil
	if called.Status == finding.OK && tried.Status != finding.OK && !registered && !probe.Denied(answer.Problem()) {
		called = finding.Skip("not_known", "Ask an administrator for the ClusterRole lanyard-view.", "operations/README.md#rights-of-readers",
			"could not determine whether the API server called the webhook: the webhook configurations were not read")
	}
	k.add("probe", called)
	switch {
	case k.serviceAccount != "", s.chosen != nil && (answer.Local != "" || called.Status == finding.OK || s.policies != nil):
		k.add("dry run", tried)
	case s.chosen == nil && len(s.unread) > 0:
		k.add("dry run", finding.Skip("not_known", "Name a ServiceAccount with --service-account.", "",
			"no ServiceAccount was tested: not all of them can be read"))
	case s.compiled():
		k.add("dry run", finding.DoesNotApply("no ServiceAccount was tested, because the policies have the identities; to test one, use --service-account"))
	case s.chosen == nil:
		k.add("dry run", finding.DoesNotApply("no ServiceAccount needs credentials yet, so none was tested"))
	}
}

// judge returns the findings about the probe and the pods of a ServiceAccount. unread is the
// error if the ServiceAccount could not be read.
func (k *checkCommand) judge(serviceAccount string, unread error, answer *workload.Answer) (called, tried finding.Finding) {
	response := answer.Answer
	if answer.Denial != nil {
		response.Err = answer.Denial.Err // the text is then the text of "lanyard-webhook check"
	}
	if answer.Local == "" {
		return probe.DryRun(k.settings, serviceAccount, response)
	}
	called = probe.Unasked(answer.Missing)
	switch {
	case apierrors.IsNotFound(unread):
		return called, probe.NoServiceAccount(serviceAccount)
	case answer.Err != nil && unread != nil:
		return called, finding.Unreadable("ServiceAccount "+serviceAccount, unread)
	case answer.Err != nil:
		return called, finding.Skip("not_known", "Pass the webhook's configuration file with --config.", "cli/README.md#settings-of-the-webhook",
			"pods of ServiceAccount %s were not tested: %v", serviceAccount, answer.Err)
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

// attempt repeats the dry run of the first finding. Each dry run uses its own connection,
// because a load balancer chooses an API server per connection.
func (k *checkCommand) attempt(ctx context.Context, namespace string, pod *unstructured.Unstructured, first finding.Finding) finding.Finding {
	servers := k.apiServers(ctx)
	n := cmp.Or(k.attempts, 1)
	if k.attempts == 0 && servers > 1 {
		n = min(attemptsEach*servers, maxAttempts)
	}
	tried := make([]finding.Finding, n)
	tried[0] = first
	var group errgroup.Group
	group.SetLimit(workload.DefaultConcurrent)
	for i := 1; i < n; i++ {
		group.Go(func() error {
			config, err := k.Config()
			if err != nil {
				return err
			}
			config.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext // a function of its own: no connection is shared
			client, err := probe.NewClient(config)
			if err == nil {
				tried[i] = probe.Probe(client.Create(ctx, namespace, pod).Err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return finding.Unreadable("the connections", err)
	}
	return Attempts(tried, servers)
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
