// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check judges an installation of Lanyard, or a cluster that is to get
// one. It is pure: callers read the objects, and the functions of this package
// judge them and suggest fixes.
package check

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	certutil "k8s.io/client-go/util/cert"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// Version judges the version of the API server, such as v1.36.3.
func Version(version string) probe.Line {
	parsed, err := utilversion.ParseGeneric(version)
	switch {
	case err != nil:
		return probe.Skip("Compare it yourself: Lanyard needs 1.29 or newer.", "Kubernetes has the version %q, which cannot be compared", version)
	case !parsed.AtLeast(utilversion.MustParseGeneric("1.29.0")):
		return probe.Fail("Upgrade Kubernetes to 1.30 or newer.", "install/README.md", "Kubernetes is %s, but Lanyard needs 1.29 or newer", version)
	case !parsed.AtLeast(utilversion.MustParseGeneric("1.30.0")):
		return probe.Warn("Upgrade Kubernetes to 1.30 or newer.", "concepts/guard.md", "Kubernetes is %s: the guard and the fences need 1.30", version)
	}
	return probe.Passed("Kubernetes is %s", version)
}

// orPassed returns the lines, or a passed line without any.
func orPassed(lines []probe.Line, format string, args ...any) []probe.Line {
	if len(lines) > 0 {
		return lines
	}
	return []probe.Line{probe.Passed(format, args...)}
}

// Registration judges the webhook configurations. validating has the name of
// mutating; it is nil if it does not exist, or was not read because of unread.
func Registration(mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating *admissionregistrationv1.ValidatingWebhookConfiguration, unread error) []probe.Line {
	const again, link = "Install the manifests or the chart again.", "install/README.md"
	var lines []probe.Line
	for _, want := range []struct{ name, purpose string }{
		{cluster.PodWebhook, "injects pods"},
		{cluster.ServiceAccountWebhook, "labels ServiceAccounts"},
		{cluster.ProbeWebhook, "lets checks see the errors of the API server"},
	} {
		if cluster.Entry(mutating, want.name) == nil {
			lines = append(lines, probe.Fail(again, link, "MutatingWebhookConfiguration %s has no webhook %s, which %s", mutating.Name, want.name, want.purpose))
		}
	}
	if unread != nil {
		lines = append(lines, probe.Unreadable("ValidatingWebhookConfiguration "+mutating.Name, unread))
	} else if validating == nil || !slices.ContainsFunc(validating.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
		return w.Name == cluster.ServiceAccountWebhook
	}) {
		lines = append(lines, probe.Fail(again, link, "ValidatingWebhookConfiguration %s has no webhook %s, which denies malformed annotations", mutating.Name, cluster.ServiceAccountWebhook))
	}
	return orPassed(lines, "webhook configurations %s are complete", mutating.Name)
}

// Peers lists other webhooks that inject identities, and what happens beside Lanyard's
// configuration of this name. switching reports whether Lanyard adopts from one of them.
func Peers(all []admissionregistrationv1.MutatingWebhookConfiguration, name string, adopted []string) (lines []probe.Line, switching bool) {
	known := peer.All()
	for i := range all {
		found := cluster.Registered(&all[i])
		at := slices.IndexFunc(known, func(p *peer.Peer) bool { return p.Registers(found) })
		if found.Name == name || at < 0 {
			continue
		}
		line := probe.Warn("To take over from it, read the page. Lanyard does not change fields that a container already has.",
			"migrate/README.md", "MutatingWebhookConfiguration %s injects identities as well. %s", found.Name, known[at].Beside(found, name))
		if slices.Contains(adopted, known[at].Name) {
			line, switching = probe.Passed("%s Lanyard adopts its annotations.", line.Text), true
		}
		lines = append(lines, line)
	}
	return orPassed(lines, "no other webhook that injects identities was found"), switching
}

// DuringSwitch judges a guard that denies nothing while Lanyard takes over from another
// webhook, as docs/migrate has it. line is the judgement of the guard at any other time.
func DuringSwitch(line probe.Line) probe.Line {
	if line.Status != probe.Failed {
		return line
	}
	return probe.Warn("Turn the guard on after the switch.", "migrate/README.md",
		"the guard denies nothing during the switch: while no replica responds, pods start with the credentials of the other webhook only")
}

// Replicas judges the pods behind the Service of the webhook. Pods that ended, such as evicted
// pods, and pods that end at present are not replicas.
func Replicas(service string, pods []corev1.Pod) probe.Line {
	const link, look = "troubleshooting/webhook-down.md#are-the-replicas-ready", "See why: kubectl describe the pods, and read their logs."
	replicas, ready := 0, 0
	for i := range pods {
		if phase := pods[i].Status.Phase; phase == corev1.PodFailed || phase == corev1.PodSucceeded || pods[i].DeletionTimestamp != nil {
			continue
		}
		replicas++
		if slices.ContainsFunc(pods[i].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	switch {
	case replicas == 0:
		return probe.Fail("Scale its Deployment up, or see in its events why it creates no pods.", link, "Service %s has no pods", service)
	case ready == 0:
		return probe.Fail(look, link, "Service %s has no ready replica, of %d", service, replicas)
	case ready == 1:
		return probe.Warn("Run two replicas: with one, every restart is an outage.", "operations/README.md#when-it-is-down", "Service %s has 1 ready replica, of %d", service, replicas)
	case ready < replicas:
		return probe.Warn(look, link, "Service %s has %d ready replicas, of %d", service, ready, replicas)
	}
	return probe.Passed("Service %s has %d ready replicas", service, ready)
}

// Certificates judges the CA certificates that the API server trusts, by the names
// of the webhooks that have them.
func Certificates(mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time) []probe.Line {
	const link, renew = "troubleshooting/webhook-down.md#the-cabundle-is-wrong", "Find the program that must renew the CA, and the cause of its failure."
	var lines []probe.Line
	var first time.Time // the end of the CA that expires first
	var of string       // its webhook
	judge := func(name string, bundle []byte) {
		end, err := lastDay(bundle)
		switch {
		case err != nil:
			lines = append(lines, probe.Fail("Find the program that must write the caBundle, and the cause of its failure.", link, "webhook %s: caBundle: %v", name, err))
		case end.Before(now):
			lines = append(lines, probe.Fail(renew, link, "webhook %s: caBundle: the last CA expired at %s", name, end.UTC().Format(time.RFC3339)))
		case first.IsZero() || end.Before(first):
			first, of = end, name
		}
	}
	for i := range mutating.Webhooks {
		judge(mutating.Webhooks[i].Name, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := 0; validating != nil && i < len(validating.Webhooks); i++ {
		judge(validating.Webhooks[i].Name+" (validating)", validating.Webhooks[i].ClientConfig.CABundle)
	}
	end := first.UTC().Format(time.RFC3339)
	if len(lines) == 0 && first.Sub(now) < 7*24*time.Hour {
		lines = append(lines, probe.Warn(renew, "install/certificates.md#renewal", "webhook %s: caBundle: the last CA expires at %s", of, end))
	}
	return orPassed(lines, "the CA in the caBundle is valid until %s", end)
}

// lastDay returns when the last certificate of a caBundle expires.
func lastDay(bundle []byte) (last time.Time, err error) {
	if len(bundle) == 0 {
		return last, errors.New("it is empty, but must have the CA of the webhook")
	}
	certificates, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return last, fmt.Errorf("it has no certificate in the form PEM: %w", err)
	}
	newest := slices.MaxFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return newest.NotAfter, nil
}

// Guard judges the creation of pods while no replica of the webhook responds. policies is nil
// for an API server before 1.30, which cannot have the guard.
func Guard(mutating *admissionregistrationv1.MutatingWebhookConfiguration, policies *cluster.Policies) probe.Line {
	const link = "concepts/guard.md"
	wrong, install, then := "this Kubernetes has no guard", "Upgrade Kubernetes to 1.30 or newer", "."
	if policies != nil {
		wrong, install, then = policies.Guard(mutating), "Install the guard", ", and set failurePolicy to Ignore."
	}
	policy := cluster.Entry(mutating, cluster.PodWebhook).FailurePolicy
	ignores := policy != nil && *policy == admissionregistrationv1.Ignore
	switch {
	case wrong == "" && ignores:
		return probe.Passed("the guard denies pods that would lack their credentials; no other pod waits for the webhook")
	case wrong == "":
		return probe.Warn("Set failurePolicy to Ignore: the guard is enough.", link,
			"the guard is on, but webhook %s has failurePolicy Fail: while no replica responds, all pods are denied", cluster.PodWebhook)
	case ignores:
		return probe.Fail(install+", or set failurePolicy to Fail.", link,
			"%s, and webhook %s has failurePolicy Ignore: while no replica responds, pods start without their credentials", wrong, cluster.PodWebhook)
	}
	return probe.Warn(install+then, link, "%s: while no replica responds, all pods are denied", wrong)
}

// scope returns the end of a sentence about the objects of a namespace, and the flag that selects
// the objects: of all namespaces if namespace is empty.
func scope(namespace string) (where, flag string) {
	if namespace == "" {
		return "", "--all-namespaces"
	}
	return " in the namespace " + namespace, "--namespace " + namespace
}

// Unguarded judges the number of ServiceAccounts of a namespace, or of all namespaces, that
// need credentials and lack the label that the guard selects by. example is one of them. With
// byPolicies, no webhook injects: the policies select by the label, too.
func Unguarded(namespace string, n int, example string, byPolicies bool) probe.Line {
	where, flag := scope(namespace)
	if n == 0 {
		return probe.Passed("every ServiceAccount%s that needs credentials has the guard's label", where)
	}
	fix := "Run: lanyard label serviceaccounts " + flag
	if byPolicies {
		return probe.Fail(fix, "policies.md#install",
			"%d ServiceAccounts%s are older than the policies and lack their label, such as %s: new pods start without credentials", n, where, example)
	}
	return probe.Warn(fix, "operations/monitoring.md#lanyardunguardedserviceaccounts",
		"%d ServiceAccounts%s need credentials but lack the guard's label, such as %s", n, where, example)
}

// Outdated judges the numbers of pods of a namespace, or of all namespaces, that have a former
// identity or none. Pods that ended are not among them.
func Outdated(namespace string, stale, without int) probe.Line {
	where, flag := scope(namespace)
	pods := "pods"
	switch stale + without {
	case 0:
		return probe.Passed("every pod%s has the credentials that its ServiceAccount asks for", where)
	case 1:
		pods = "pod"
	}
	return probe.Warn("Run: lanyard status --stale "+flag, "troubleshooting/no-credentials.md#pods-with-an-old-identity-or-none",
		"%d %s%s must be replaced: %d stale, %d without credentials", stale+without, pods, where, stale, without)
}

// Unread judges the settings of the webhook, which were not read because of an error.
func Unread(err error) probe.Line {
	if right := probe.MissingRight(err); right != "" {
		return probe.NoRight(right, "the settings of the webhook cannot be read, so that the built-in defaults are used")
	}
	return probe.Warn("Pass the webhook's configuration file with --config.", "cli/README.md#settings-of-the-webhook",
		"the settings of the webhook cannot be read, so that the built-in defaults are used: %v", err)
}

// Attempts judges the dry runs that several connections sent, by their lines of
// probe.Probe. servers is the number of API servers; 0 if it is not known.
func Attempts(lines []probe.Line, servers int) probe.Line {
	of := fmt.Sprintf("%d dry runs, each over its own connection", len(lines))
	if servers > 1 {
		of += fmt.Sprintf(" to one of %d API servers", servers)
	}
	bad := slices.IndexFunc(lines, func(l probe.Line) bool { return l.Status == probe.Failed })
	passed := 0
	for _, line := range lines {
		if line.Status == probe.OK {
			passed++
		}
	}
	switch {
	case len(lines) == 1, passed == 0:
		return lines[0]
	case bad >= 0:
		return probe.Fail("Find the API server that cannot reach the webhook: see its log, and its route to the pods.", "troubleshooting/webhook-down.md#the-probe",
			"the webhook was called in %d of %s: %s", passed, of, lines[bad].Text)
	}
	return probe.Passed("the API server can call the webhook: it did in %d of %s", passed, of)
}

// Only some installations need these fences.
const (
	serviceAccountFence = "-guard-serviceaccounts"
	registrationFence   = "-guard-registration"
)

// fences are the policies other than the guard, by the ends of their names. inPolicies is the end
// in an installation by policies; empty if it needs no such fence. without is the effect of a
// fence that is missing.
var fences = []struct{ suffix, inPolicies, without string }{
	{"-guard-marks", policies.KeepMarks(""), "users who may write the status of a pod can change the annotations that Lanyard wrote on it"},
	{serviceAccountFence, policies.LimitServiceAccounts(""), "very large ServiceAccounts slow the API server down"},
	{registrationFence, "", "who has the webhook's token can change its webhook configurations"},
}

// Fences checks the policies that limit who may write what. selfManaged reports whether the webhook
// issues its own certificate, because it may then write its webhook configurations. unread says why
// that is not known.
func Fences(mutating *admissionregistrationv1.MutatingWebhookConfiguration, policies *cluster.Policies, selfManaged bool, unread error) []probe.Line {
	guarded := slices.ContainsFunc(cluster.GuardPolicies(mutating), func(name string) bool { return policies.Policies[name] != nil })
	var lines []probe.Line
	for _, fence := range fences {
		wrong := policies.Denies(mutating.Name + fence.suffix)
		switch {
		case wrong == "":
		case fence.suffix == serviceAccountFence && !guarded: // only the guard reads ServiceAccounts
		case fence.suffix == registrationFence && unread != nil:
			lines = append(lines, maybeFence(wrong, unread))
		case fence.suffix == registrationFence && !selfManaged:
		default:
			lines = append(lines, probe.Warn("Install the fences.", fencesPage, "%s: %s", wrong, fence.without))
		}
	}
	return orPassed(lines, "the fences are in place")
}

// PolicyFences judges the fences of an installation by policies.
func PolicyFences(p *cluster.Injecting) (lines []probe.Line) {
	for _, fence := range fences {
		if fence.inPolicies == "" {
			continue
		}
		if wrong := p.Fences.Denies(p.Prefix() + fence.inPolicies); wrong != "" {
			lines = append(lines, probe.Warn(applyPolicies, "policies.md", "%s: %s", wrong, fence.without))
		}
	}
	return orPassed(lines, "the fences are in place")
}

// ReservedIssuer judges whether policies that inject keep pods from a token for the API server,
// which usually accepts tokens whose audience is the issuer.
func ReservedIssuer(p *cluster.Injecting, issuer string) []probe.Line {
	if p == nil || slices.Contains(slices.Concat(annotations.CommonAPIServerAudiences(), p.Source.ReservedAudiences), issuer) {
		return nil
	}
	return []probe.Line{probe.Fail("Apply the output of lanyard policies again, with the issuer in --reserved-audiences.", "policies.md",
		"a ServiceAccount can ask for tokens that are valid for the API server: the policies do not reserve the audience %s", issuer)}
}

const fencesPage = "concepts/guard.md#the-fences"

// maybeFence reports a missing fence that the installation may not need.
func maybeFence(wrong string, unread error) probe.Line {
	wrong += ", and it is not known whether it is needed"
	if right := probe.MissingRight(unread); right != "" {
		return probe.NoRight(right, "%s", wrong)
	}
	return probe.Warn("Install the fences if the webhook issues its own certificate.", fencesPage, "%s: %v", wrong, unread)
}

// Issuer judges the issuer of the cluster's tokens. public are the documents that a
// cloud reads; nil with publicErr, and both are nil if the documents were not read.
func Issuer(cluster, public *cloud.Documents, publicErr error) []probe.Line {
	const link = "issuer.md#choose-where-the-documents-are"
	name := cluster.Discovery.Issuer
	switch {
	case !cloud.Public(name):
		return []probe.Line{probe.Warn("For AWS and Azure, set an issuer that they can read. For Google Cloud, upload the keys to the provider.", link,
			"the issuer %s is not public", name)}
	case publicErr != nil:
		return []probe.Line{probe.Warn("Publish the discovery document and the keys, unless this machine cannot reach the internet.", link,
			"the issuer %s cannot be read from here: %v", name, publicErr)}
	}
	var lines []probe.Line
	wrong, _ := cloud.Compare(cluster, public, "")
	for _, wrong := range wrong {
		lines = append(lines, probe.Fail("Publish the documents of the cluster again.", link, "%s: clouds deny the tokens", wrong))
	}
	return orPassed(lines, "the issuer %s is public, and its %d keys are the cluster's", name, len(cluster.Keys))
}

// noRight is the line for an object that the user may not create.
func noRight(resource, namespace string) probe.Line {
	where, _ := scope(namespace)
	return probe.Fail("Install as an administrator of the cluster.", "install/README.md", "you may not create %s%s", resource, where)
}

// NotOne is the line for a cluster that has no installation, or more than one.
func NotOne(found []*admissionregistrationv1.MutatingWebhookConfiguration) probe.Line {
	if len(found) == 0 {
		return probe.Fail("Install it; lanyard check --pre reports whether the cluster is ready.", "install/README.md", "Lanyard is not installed: no MutatingWebhookConfiguration has a webhook %s", cluster.PodWebhook)
	}
	return probe.Fail("Remove one of them.", "operations/README.md#remove-it", "Lanyard is installed %d times: MutatingWebhookConfigurations %s", len(found), cluster.Names(found))
}

// Installed warns of an installation that is there before the install.
func Installed(found []*admissionregistrationv1.MutatingWebhookConfiguration) []probe.Line {
	if len(found) == 0 {
		return nil
	}
	return []probe.Line{probe.Warn("Upgrade it, or remove it first.", "install/upgrade.md", "Lanyard is installed already: MutatingWebhookConfiguration %s", cluster.Names(found))}
}

const applyPolicies = "Apply the output of lanyard policies again."

// Injecting judges the policies with which the API server injects by itself. by describes the
// whole installation.
func Injecting(p *cluster.Injecting, by string) probe.Line {
	if p.Problem != "" {
		return probe.Fail(applyPolicies, "policies.md", "%s: new pods may lack credentials", p.Problem)
	}
	return probe.Passed("pods are injected by %s: the API server needs no replica", by)
}
