// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check judges an installation of Lanyard, or a cluster before the
// installation.
//
//	check.go          judges objects, and says what to do; pure
//	read.go           looks at the parts of the cluster
//	check_command.go  the command
package check

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	certutil "k8s.io/client-go/util/cert"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/policies"
)

// Version checks the version of the API server, for example v1.36.3.
func Version(version string) finding.Finding {
	parsed, err := utilversion.ParseGeneric(version)
	switch {
	case err != nil:
		return finding.Skip("version_unknown", "Lanyard needs 1.29 or newer.", "",
			"the Kubernetes version %q cannot be parsed", version)
	case !parsed.AtLeast(utilversion.MustParseGeneric("1.29.0")):
		return finding.Fail("version_too_old", "Upgrade Kubernetes to 1.30 or newer.", "install/README.md",
			"Kubernetes is %s, but Lanyard needs 1.29 or newer", version)
	case !parsed.AtLeast(utilversion.MustParseGeneric("1.30.0")):
		return finding.Warn("version_without_guard", "Upgrade Kubernetes to 1.30 or newer.", "concepts/guard.md",
			"Kubernetes is %s: the guard and the fences need 1.30", version)
	}
	return finding.Passed("Kubernetes is %s", version)
}

// maxSkew is the clock skew that clouds and the API server tolerate.
const maxSkew = 30 * time.Second

// Clocks compares the clocks of this machine and of the nodes with the API server's. The
// skew of a clock that is ahead is positive. nodes contains the nodes whose skew is known.
func Clocks(here time.Duration, nodes map[string]time.Duration) []finding.Finding {
	var found []finding.Finding
	if here.Abs() > maxSkew {
		found = append(found, finding.Warn("clock_skew", "Synchronize the clock of this machine.", "troubleshooting/cloud-denies.md",
			"the clock of this machine is %s that of the API server: times in the output of lanyard are wrong", skewOf(here, " of")))
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if nodes[name].Abs() > maxSkew {
			wrong = append(wrong, fmt.Sprintf("%s (%s)", name, skewOf(nodes[name], "")))
		}
	}
	if len(wrong) > 0 {
		found = append(found, finding.Warn("clock_skew", "Synchronize the clocks of these nodes, for example with chrony.", "troubleshooting/cloud-denies.md",
			"the clocks of nodes differ from that of the API server: %s: kubelets may renew tokens too late, and clouds may reject the tokens", strings.Join(wrong, ", ")))
	}
	if len(nodes) == 0 {
		return orPassed(found, "no clock skew between this machine and the API server")
	}
	return orPassed(found, "no clock skew between this machine, the API server and %s", texts.Count(len(nodes), "node"))
}

// skewOf formats a skew. of is appended to "ahead".
func skewOf(skew time.Duration, of string) string {
	if skew < 0 {
		return skew.Abs().Round(time.Second).String() + " behind"
	}
	return skew.Round(time.Second).String() + " ahead" + of
}

// orPassed returns the findings or, if there are none, one that passed.
func orPassed(found []finding.Finding, format string, args ...any) []finding.Finding {
	if len(found) > 0 {
		return found
	}
	return []finding.Finding{finding.Passed(format, args...)}
}

// Registration checks the webhook configurations. validating contains all of the cluster;
// unread is the error if they could not be read.
func Registration(mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating []admissionregistrationv1.ValidatingWebhookConfiguration, unread error) []finding.Finding {
	var found []finding.Finding
	incomplete := func(format string, args ...any) {
		found = append(found, finding.Fail("registration_incomplete", "Install the manifests or the chart again.", "install/README.md",
			format, args...))
	}
	for _, want := range []struct{ name, purpose string }{
		{cluster.PodWebhook, "injects pods"},
		{cluster.ServiceAccountWebhook, "labels ServiceAccounts"},
		{cluster.ProbeWebhook, "lets checks see the errors of the API server"},
	} {
		if cluster.Entry(mutating, want.name) == nil {
			incomplete("MutatingWebhookConfiguration %s has no webhook %s, which %s", mutating.Name, want.name, want.purpose)
		}
	}
	own := validatingOf(mutating.Name, validating)
	if unread != nil {
		found = append(found, finding.Unreadable("ValidatingWebhookConfiguration "+mutating.Name, unread))
	} else if own == nil || !slices.ContainsFunc(own.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
		return w.Name == cluster.ServiceAccountWebhook
	}) {
		incomplete("ValidatingWebhookConfiguration %s has no webhook %s, which denies malformed annotations", mutating.Name, cluster.ServiceAccountWebhook)
	}
	return orPassed(found, "webhook configurations %s are complete", mutating.Name)
}

// validatingOf returns the configuration of this name, or nil.
func validatingOf(name string, all []admissionregistrationv1.ValidatingWebhookConfiguration) *admissionregistrationv1.ValidatingWebhookConfiguration {
	i := slices.IndexFunc(all, func(v admissionregistrationv1.ValidatingWebhookConfiguration) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Peers lists other webhooks that inject identities, and what happens if Lanyard's
// configuration, which has this name, exists as well. switching reports whether Lanyard
// adopts from one of them.
func Peers(all []admissionregistrationv1.MutatingWebhookConfiguration, name string, adopted []string) (found []finding.Finding, switching bool) {
	known := peer.All()
	for i := range all {
		registered := cluster.Registered(&all[i])
		at := slices.IndexFunc(known, func(p *peer.Peer) bool { return p.Registers(registered) })
		if registered.Name == name || at < 0 {
			continue
		}
		text := fmt.Sprintf("MutatingWebhookConfiguration %s injects identities as well. %s", registered.Name, known[at].Beside(registered, name))
		if slices.Contains(adopted, known[at].Name) {
			found, switching = append(found, finding.Passed("%s Lanyard adopts its annotations.", text)), true
			continue
		}
		found = append(found, finding.Warn("other_webhook", "The page shows how to migrate from it. Lanyard does not change fields that a container already sets.", "migrate/README.md",
			"%s", text))
	}
	return orPassed(found, "no other webhook injects identities"), switching
}

// DuringSwitch replaces the finding f about a guard that denies nothing, as docs/migrate
// recommends during a migration from another webhook.
func DuringSwitch(f finding.Finding) finding.Finding {
	if f.Status != finding.Failed {
		return f
	}
	return finding.Warn("guard_off_during_switch", "Turn on the guard after the migration.", "migrate/README.md",
		"the guard is off during the migration: while no replica responds, pods get only the credentials of the other webhook")
}

// noService reports that the Service of the webhook does not exist.
func noService(namespace, name string) finding.Finding {
	return finding.Fail("no_service", "Install Lanyard again. To remove it instead, remove its guard, too: alone, it denies pods that need credentials.",
		"operations/README.md#switch-it-off", "Service %s/%s does not exist", namespace, name)
}

// Replicas checks the pods behind the Service of the webhook, except finished, evicted and
// terminating pods. deployment is the name of their Deployment, or empty if it is unknown.
func Replicas(namespace, service, deployment string, pods []corev1.Pod) finding.Finding {
	replicas, ready, why := 0, 0, ""
	for i := range pods {
		if phase := pods[i].Status.Phase; phase == corev1.PodFailed || phase == corev1.PodSucceeded || pods[i].DeletionTimestamp != nil {
			continue
		}
		replicas++
		if slices.ContainsFunc(pods[i].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		} else {
			why = whyNotReady(&pods[i])
		}
	}
	name, in := namespace+"/"+service, " --namespace "+namespace
	f := finding.Fail("replicas_not_ready", "To see why: "+why+in, "troubleshooting/webhook-down.md#are-the-replicas-ready",
		"Service %s has no ready replica, of %d", name, replicas)
	switch {
	case replicas == 0:
		f.Reason, f.Text = "no_replicas", fmt.Sprintf("Service %s has no pods", name)
		f.Fix = "Create its Deployment again: the Service selects none."
		if deployment != "" {
			f.Fix = "Scale it up, or see why: kubectl describe deployment/" + deployment + in
		}
	case ready == 0:
	case ready == 1:
		f = finding.Warn("one_replica", "Run two replicas: with only one, every restart is an outage.", "operations/README.md#when-it-is-down",
			"Service %s has 1 ready replica, of %d", name, replicas)
	case ready < replicas:
		f.Status, f.Text = finding.Warning, fmt.Sprintf("Service %s has %d ready replicas, of %d", name, ready, replicas)
	default:
		return finding.Passed("Service %s has %d ready replicas", name, ready)
	}
	return f
}

// whyNotReady returns the command that shows why a replica is not ready: its log if its container
// has started, or else its description.
func whyNotReady(pod *corev1.Pod) string {
	if slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil || s.RestartCount > 0 }) {
		return "kubectl logs pod/" + pod.Name + " --tail 20"
	}
	return "kubectl describe pod/" + pod.Name
}

// Certificates checks the CA certificates that the API server trusts for each webhook.
// Webhooks with the same mistake share a finding.
func Certificates(mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time) []finding.Finding {
	bundles := map[string][]byte{}
	var names []string
	add := func(name string, bundle []byte) { names, bundles[name] = append(names, name), bundle }
	for i := range mutating.Webhooks {
		add(mutating.Webhooks[i].Name, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := 0; validating != nil && i < len(validating.Webhooks); i++ {
		add(validating.Webhooks[i].Name+" (validating)", validating.Webhooks[i].ClientConfig.CABundle)
	}
	var found []finding.Finding
	var first time.Time // the end of the CA that expires first
	var of string       // its webhook
	same := map[string][]string{}
	for _, name := range names {
		end, err := lastDay(bundles[name])
		switch {
		case err != nil:
			same[err.Error()] = append(same[err.Error()], name)
		case end.Before(now):
			text := "the last CA expired at " + end.UTC().Format(time.RFC3339)
			same[text] = append(same[text], name)
		case first.IsZero() || end.Before(first):
			first, of = end, name
		}
	}
	for _, text := range slices.Sorted(maps.Keys(same)) {
		of := "webhook " + strings.Join(same[text], ", ")
		if len(same[text]) > 1 {
			of = "webhooks " + strings.Join(same[text], ", ")
		}
		found = append(found, finding.Fail("ca_bundle", "Find out why the program that sets the caBundle did not set it.", "troubleshooting/webhook-down.md#the-cabundle-is-wrong",
			"%s: caBundle: %s", of, text))
	}
	end := first.UTC().Format(time.RFC3339)
	if len(found) == 0 && first.Sub(now) < 7*24*time.Hour {
		found = append(found, finding.Warn("ca_expires", "Find out why the program that renews the CA did not renew it.", "install/certificates.md#renewal",
			"webhook %s: caBundle: the last CA expires at %s", of, end))
	}
	return orPassed(found, "the CA in the caBundle is valid until %s", end)
}

// lastDay returns the time at which the last certificate of a caBundle expires.
func lastDay(bundle []byte) (last time.Time, err error) {
	if len(bundle) == 0 {
		return last, errors.New("it is empty, but must contain the CA of the webhook")
	}
	certificates, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return last, fmt.Errorf("it contains no PEM certificate: %w", err)
	}
	newest := slices.MaxFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return newest.NotAfter, nil
}

// Guard checks what happens to new pods while no replica of the webhook responds. policies is
// nil before Kubernetes 1.30, which has no guard.
func Guard(mutating *admissionregistrationv1.MutatingWebhookConfiguration, policies *cluster.Policies) finding.Finding {
	const page = "concepts/guard.md"
	wrong, install, then := "the guard needs Kubernetes 1.30", "Upgrade Kubernetes to 1.30 or newer", "."
	if policies != nil {
		wrong, install, then = policies.Guard(mutating), "Install the guard", ", and set failurePolicy to Ignore."
	}
	policy := cluster.Entry(mutating, cluster.PodWebhook).FailurePolicy
	ignores := policy != nil && *policy == admissionregistrationv1.Ignore
	switch {
	case wrong == "" && ignores:
		return finding.Passed("the guard denies pods that would lack their credentials; no other pod needs the webhook")
	case wrong == "":
		return finding.Warn("fail_closed", "Set failurePolicy to Ignore: the guard is enough.", page,
			"the guard is on, but webhook %s has failurePolicy Fail: while no replica responds, all pods are denied", cluster.PodWebhook)
	case ignores:
		return finding.Fail("guard_missing", install+", or set failurePolicy to Fail.", page,
			"%s, and webhook %s has failurePolicy Ignore: while no replica responds, pods start without their credentials", wrong, cluster.PodWebhook)
	}
	return finding.Warn("fail_closed", install+then, page, "%s: while no replica responds, all pods are denied", wrong)
}

// Leftovers reports objects of a removed installation. alone reports whether there is no
// other installation, so that nothing injects the pods that the guard denies.
func Leftovers(left []cluster.Leftover, alone bool) []finding.Finding {
	if len(left) == 0 {
		return nil
	}
	const page = "operations/README.md#remove-it"
	var names []string
	denies := false
	for _, l := range left {
		names, denies = append(names, l.Name), denies || l.DeniesPods
	}
	all, remove := strings.Join(names, ", "), cluster.Remove(left)
	if denies && alone {
		return []finding.Finding{finding.Fail("guard_leftover", "Remove it, or install Lanyard again: "+remove, page,
			"the guard of a removed installation still denies pods: ValidatingAdmissionPolicyBindings %s", all)}
	}
	return []finding.Finding{finding.Warn("leftover", "Remove them: "+remove, page,
		"a removed installation left policies behind: ValidatingAdmissionPolicyBindings %s", all)}
}

// scope returns the phrase and the flag for a namespace, or for all namespaces if it is
// empty.
func scope(namespace string) (where, flag string) {
	if namespace == "" {
		return "", "--all-namespaces"
	}
	return " in the namespace " + namespace, "--namespace " + namespace
}

// Unguarded reports ServiceAccounts that need credentials but lack the guard's label, in a
// namespace or all. example is one of them. With byPolicies, only policies inject, and they
// select ServiceAccounts with this label, too.
func Unguarded(namespace string, n int, example string, byPolicies bool) finding.Finding {
	where, flag := scope(namespace)
	f := finding.Warn("unguarded", "Run: lanyard label serviceaccounts "+flag, "operations/monitoring.md#lanyardunguardedserviceaccounts",
		"the guard's label is missing on %s%s, for example %s", texts.Count(n, "ServiceAccount"), where, example)
	switch {
	case n == 0:
		return finding.Passed("every ServiceAccount%s that needs credentials has the guard's label", where)
	case byPolicies:
		f.Status, f.Link = finding.Failed, finding.Page("policies.md#install")
		f.Text = fmt.Sprintf("the label is missing on %s%s from before the policies, for example %s: new pods start without credentials", texts.Count(n, "ServiceAccount"), where, example)
	}
	return f
}

// Pods reports the states of the running pods of a namespace, or of all namespaces.
func Pods(namespace string, states map[injected.State]int) []finding.Finding {
	where, flag := scope(namespace)
	count := func(n int) string { return texts.Count(n, "pod") + where }
	var found []finding.Finding
	if n := workload.Outdated(states); n > 0 {
		found = append(found, finding.Warn("outdated", "Run: lanyard status --stale "+flag, "troubleshooting/no-credentials.md#pods-with-an-old-identity-or-none",
			"%s must be replaced: %d stale, %d without credentials", count(n), states[injected.Stale], states[injected.Without]))
	}
	if shadowed := states[workload.Shadowed]; shadowed > 0 {
		found = append(found, finding.Warn(string(workload.Shadowed), "To see the variables, run: lanyard status "+flag, "cli/status.md",
			"SDKs may ignore the credentials of %s, because of variables in their containers", count(shadowed)))
	}
	return orPassed(found, "every pod%s has the credentials that its ServiceAccount asks for", where)
}

// Unread reports that the settings of the webhook could not be read.
func Unread(err error) finding.Finding {
	if right := finding.LackedRight(err); right != "" {
		return finding.NoRight(right, "the settings of the webhook cannot be read, so the built-in defaults are used")
	}
	return finding.Warn("settings_unread", "Pass the webhook's configuration file with --config.", "cli/README.md#settings-of-the-webhook",
		"the settings of the webhook cannot be read, so the built-in defaults are used: %v", err)
}

// Attempts combines the findings about dry runs over several connections. servers is the
// number of API servers, or 0 if it is unknown.
func Attempts(tried []finding.Finding, servers int) finding.Finding {
	of := fmt.Sprintf("%d dry runs, each over its own connection", len(tried))
	if servers > 1 {
		of += fmt.Sprintf(" to one of %d API servers", servers)
	}
	bad := slices.IndexFunc(tried, func(f finding.Finding) bool { return f.Status == finding.Failed })
	passed := finding.Summarize(tried)[finding.OK]
	switch {
	case len(tried) == 1, passed == 0:
		return tried[0]
	case bad >= 0:
		return finding.Fail("one_api_server", "Find the API server that cannot reach the webhook: look at its log and its route to the pods.", "troubleshooting/webhook-down.md#the-probe",
			"the webhook was called in %d of %s: %s", passed, of, tried[bad].Text)
	}
	return finding.Passed("the API server can call the webhook: it did in %d of %s", passed, of)
}

// fences are the policies other than the guard, by the suffixes of their names. inPolicies is
// the suffix in an installation by policies, or empty if that needs no such fence. without
// describes the risk without the fence.
var fences = []struct{ suffix, inPolicies, without string }{
	{cluster.FenceMarks, policies.KeepMarks(""), "users who may write the status of a pod can change the annotations that Lanyard wrote on it"},
	{cluster.FenceServiceAccounts, policies.LimitServiceAccounts(""), "very large ServiceAccounts can slow down the API server"},
	{cluster.FenceRegistration, "", "anyone with the webhook's token can change its webhook configurations"},
}

// Fences checks the policies that restrict writes. selfManaged reports whether the webhook
// issues its own certificate and so may write its webhook configurations. unread is the error
// if that is unknown.
func Fences(mutating *admissionregistrationv1.MutatingWebhookConfiguration, policies *cluster.Policies, selfManaged bool, unread error) []finding.Finding {
	if policies == nil {
		return []finding.Finding{finding.DoesNotApply("the fences need Kubernetes 1.30")}
	}
	guarded := slices.ContainsFunc(cluster.GuardPolicies(mutating), func(name string) bool { return policies.Policies[name] != nil })
	var found []finding.Finding
	for _, fence := range fences {
		wrong := policies.Denies(mutating.Name + fence.suffix)
		switch {
		case wrong == "":
		case fence.suffix == cluster.FenceServiceAccounts && !guarded: // only the guard reads ServiceAccounts
		case fence.suffix == cluster.FenceRegistration && unread != nil:
			found = append(found, maybeFence(wrong, unread))
		case fence.suffix == cluster.FenceRegistration && !selfManaged:
		default:
			found = append(found, finding.Warn("fence_missing", "Install the fences.", fencesPage,
				"%s: %s", wrong, fence.without))
		}
	}
	return orPassed(found, "the fences are in place")
}

// PolicyFences checks the fences of an installation by policies. Compiled policies do not
// read ServiceAccounts, so they need no limit on their size.
func PolicyFences(p *cluster.Injecting) (found []finding.Finding) {
	for _, fence := range fences {
		if fence.inPolicies == "" || p.Source.Compiled && fence.suffix == cluster.FenceServiceAccounts {
			continue
		}
		if wrong := p.Fences.Denies(p.Prefix() + fence.inPolicies); wrong != "" {
			found = append(found, finding.Warn("fence_missing", applyPolicies, "policies.md",
				"%s: %s", wrong, fence.without))
		}
	}
	return orPassed(found, "the fences are in place")
}

// ReservedIssuer checks that policies deny tokens whose audience is the issuer, because the
// API server usually accepts these.
func ReservedIssuer(p *cluster.Injecting, issuer string) []finding.Finding {
	if p == nil || slices.Contains(slices.Concat(annotations.CommonAPIServerAudiences(), p.Source.ReservedAudiences), issuer) {
		return nil
	}
	return []finding.Finding{finding.Fail("issuer_not_reserved", "Apply the output of lanyard policies again, with the issuer in --reserved-audiences.", "policies.md",
		"a ServiceAccount can ask for tokens that are valid for the API server: the policies do not reserve the audience %s", issuer)}
}

const applyPolicies = "Apply the output of lanyard policies again."

const fencesPage = "concepts/guard.md#the-fences"

// maybeFence reports a missing fence that the installation may or may not need.
func maybeFence(wrong string, unread error) finding.Finding {
	wrong += ", and it is unknown whether it is needed"
	if right := finding.LackedRight(unread); right != "" {
		return finding.NoRight(right, "%s", wrong)
	}
	return finding.Warn("fence_missing", "Install the fences if the webhook issues its own certificate.", fencesPage,
		"%s: %v", wrong, unread)
}

// Issuer checks the issuer of the cluster's tokens. public contains the documents that a
// cloud reads, or is nil with publicErr; both are nil if they were not read. signing is the
// ID of the current signing key, or empty if it is unknown.
func Issuer(cluster, public *cloud.Documents, publicErr error, signing string) []finding.Finding {
	name := cluster.Discovery.Issuer
	const documentsPage = "issuer.md#choose-where-the-documents-are"
	switch {
	case publicErr != nil:
		return []finding.Finding{finding.Warn("issuer_not_public", "If this machine has internet access, publish the discovery document and the keys.", documentsPage,
			"the issuer %s cannot be read from here: %v", name, publicErr)}
	case public == nil:
		return []finding.Finding{finding.Warn("issuer_not_public", "For AWS and Azure, set an issuer that they can read. For Google Cloud, upload the keys to the provider.", documentsPage,
			"the issuer %s is not public", name)}
	}
	var found []finding.Finding
	if signing != "" && cluster.Keys[signing] == "" {
		found = append(found, finding.Fail("key_not_served", "Pass the public key to every API server with --service-account-key-file.", "issuer.md#change-the-key",
			"the cluster signs tokens with key %s, but does not serve it", signing))
	}
	wrong, foreign := cloud.Compare(cluster, public, signing)
	fix := "Publish the documents of the cluster again: lanyard trust issuer --to PLACE, with --fleet if other clusters have this issuer."
	if public.Age > 0 {
		fix = fmt.Sprintf("A cache, such as a CDN, has had these documents for %s. If you published since, purge it. Otherwise: %s", public.Age, fix)
	}
	for _, wrong := range wrong {
		found = append(found, finding.Fail("issuer_differs", fix, "issuer.md#publish-the-documents", "%s: clouds deny the tokens", wrong))
	}
	found = orPassed(found, "the issuer %s is public and serves all keys of the cluster", name)
	if len(foreign) > 0 {
		found = append(found, finding.Passed("other published keys: %s. Clusters that sign with them can act as this one. If no cluster does, remove them: lanyard trust issuer --remove-key KID --to PLACE", strings.Join(foreign, ", ")))
	}
	return found
}

// noRight returns the finding for an object that the user may not create.
func noRight(resource, namespace string) finding.Finding {
	where, _ := scope(namespace)
	return finding.Fail(finding.MissingRight, "Install as a cluster administrator.", "install/README.md",
		"you may not create %s%s", resource, where)
}

// noNamespace returns the finding for a namespace that does not exist.
func noNamespace(name string) finding.Finding {
	return finding.Fail("namespace_not_found", "Correct the name. To see all: kubectl get namespaces", "cli/check.md",
		"the namespace %s does not exist", name)
}

// Absent returns the finding for a cluster without an installation.
func Absent() finding.Finding {
	return finding.Fail("not_installed", "Install it. To see whether the cluster is ready: lanyard check --pre", "install/README.md",
		"Lanyard is not installed: no MutatingWebhookConfiguration has a webhook %s", cluster.PodWebhook)
}

// Several returns the finding for a cluster with several installations, of which the first
// has the most ready replicas.
func Several(i *cluster.Installation) finding.Finding {
	var names []string
	var others []cluster.Leftover
	for at, r := range i.Registrations {
		ready := "replicas unknown"
		if n := i.Ready[at]; n >= 0 {
			ready = texts.Count(n, "ready replica")
		}
		names = append(names, fmt.Sprintf("%s (%s)", r.Name, ready))
		if at > 0 {
			others = append(others, cluster.Leftover{Kind: "mutatingwebhookconfiguration", Name: r.Name}, cluster.Leftover{Kind: "validatingwebhookconfiguration", Name: r.Name})
		}
	}
	fix := "Keep " + i.Registrations[0].Name + ", and remove the other: "
	if i.Ready[0] == i.Ready[1] { // both serve, or nobody knows
		fix = "Choose one to keep. To remove all but " + i.Registrations[0].Name + ": "
	}
	return finding.Fail("several_installations", fix+cluster.Remove(others), "operations/README.md#remove-it",
		"Lanyard is installed %d times: MutatingWebhookConfigurations %s", len(i.Registrations), strings.Join(names, ", "))
}

// Installed warns about an existing installation.
func Installed(found []*admissionregistrationv1.MutatingWebhookConfiguration) []finding.Finding {
	if len(found) == 0 {
		return nil
	}
	return []finding.Finding{finding.Warn("installed", "Upgrade it, or remove it first.", "install/upgrade.md",
		"Lanyard is already installed: MutatingWebhookConfiguration %s", cluster.Names(found))}
}

// Injecting checks the policies with which the API server itself injects. by describes the
// whole installation.
func Injecting(p *cluster.Injecting, by string) finding.Finding {
	if p.Problem != "" {
		return finding.Fail("policies_incomplete", applyPolicies, "policies.md",
			"%s: new pods may lack credentials", p.Problem)
	}
	return finding.Passed("pods are injected by %s: the API server needs no replica", by)
}
