// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// input contains the objects and the answers about new pods.
type input struct {
	// Namespace is the namespace of the object, with only a name if it was not read.
	*Namespace
	// Object is the object that the user asked about, for example deployment/cart.
	Object string
	// ServiceAccountName is the name that the pod has, and Named reports whether the pod itself names
	// it. ServiceAccount is nil if it was not read, or if it is Absent.
	ServiceAccountName string
	Named              bool
	ServiceAccount     *metav1.ObjectMeta
	Absent             bool
	// Live is the pod that the user asked about, if any, and Owner is the workload that
	// creates pods.
	Live  metav1.Object
	Owner topOwner
	// Answer is the answer about the pod Sent. Template is the same pod if it comes from a
	// template, and nil if the running pod has none.
	Sent, Template *unstructured.Unstructured
	Answer         Answer
	// Probe is the answer about a second pod, which has the label of the probe, or nil if that
	// pod was not sent.
	Probe *Answer
	// Installation is nil if the user may not read it.
	Installation *cluster.Installation
	// Askers contains the ServiceAccounts of the namespace that ask for an identity, and Elsewhere
	// the namespaces in which one with the same name does. They are only set if the ServiceAccount
	// itself asks for nothing.
	Askers    []string
	Elsewhere []string
}

// Outcomes for new pods only. New pods also have the outcomes Without, LeftOut, None, Excluded,
// OptedOut and Unknown of pods that exist.
const (
	// Injected means that a new pod gets credentials.
	Injected injected.State = "injected"
	// Denied means that no new pod is created.
	Denied injected.State = "denied"
)

// Explanation is the result of explain.
type Explanation struct {
	Object         string         `json:"object"`
	Namespace      string         `json:"namespace"`
	ServiceAccount ServiceAccount `json:"serviceAccount"`
	// New is the outcome for a new pod.
	New NewPod `json:"new"`
	// Live describes the pod that the user asked about.
	Live *Live `json:"live,omitempty"`
	// Pods counts the running pods of the workload or the ServiceAccount that the user asked
	// about. It is nil if they were not read, or if there are none.
	Pods *summary `json:"pods,omitempty"`
	// InjectedBy describes an installation with policies; empty for the webhook only.
	InjectedBy string `json:"injectedBy,omitempty"`
	// AllowedIdentities is the policy of the namespace, or empty if it uses the cluster's default.
	AllowedIdentities string `json:"allowedIdentities,omitempty"`
	// Guard says whether the ServiceAccount is guarded, in the words of lanyard status. It is
	// empty if the ServiceAccount does not ask for an identity or was not read.
	Guard cluster.Guard `json:"guard,omitempty"`
	// GuardProblem is Row.GuardProblem.
	GuardProblem string `json:"guardProblem,omitempty"`
	// Findings are all findings: about the ServiceAccount, new pods, the pod, its newest event, and
	// rights that the user lacks.
	Findings []finding.Finding `json:"findings"`
	// event is the finding about the newest event, if any.
	event *finding.Finding
}

// ServiceAccount describes a ServiceAccount and its identities.
type ServiceAccount struct {
	Name   string `json:"name"`
	Exists bool   `json:"exists"`
	// Read reports whether the user may read it.
	Read       bool       `json:"read"`
	Identities []Identity `json:"identities,omitempty"`
	// Required reports whether it needs an identity that it does not ask for yet.
	Required bool `json:"required,omitempty"`
	// Annotated is when Lanyard's annotations were last written, or empty if unknown.
	Annotated string `json:"annotated,omitempty"`
	// label is the finding about the label; its Text is empty if there is nothing to do.
	label finding.Finding
}

// Identity is an identity in the annotations of a ServiceAccount.
type Identity struct {
	Provider string `json:"provider"`
	// Profile is empty for the ServiceAccount's own identity.
	Profile string `json:"profile,omitempty"`
	Name    string `json:"name"`
}

// NewPod is the outcome for a new pod.
type NewPod struct {
	Outcome injected.State `json:"outcome"`
	// Finding describes the outcome. Its Reason is a word of package reason, or empty if
	// Lanyard did not decide.
	finding.Finding `json:"-"`
	// Local reports whether this program, and not the cluster, evaluated the rules of the
	// webhook. Limits lists what is then unknown.
	Local      bool        `json:"local,omitempty"`
	Limits     string      `json:"limits,omitempty"`
	Containers []Container `json:"containers,omitempty"`
	// Warnings are the webhook's own warnings. They are set if the program cannot work out the
	// reasons itself.
	Warnings []string `json:"warnings,omitempty"`
}

// Container describes the credentials of a container.
type Container struct {
	Name string `json:"name"`
	// Type is container, init or ephemeral.
	Type string `json:"type"`
	// Token reports whether the token volume is mounted.
	Token bool `json:"token"`
	// Providers are the providers whose variables point to a file in the token volume.
	Providers []string `json:"providers,omitempty"`
	// Reasons are the findings of Lanyard about this container, whose name they do not repeat.
	Reasons []mutate.Finding `json:"reasons,omitempty"`
}

// Live is about a running pod.
type Live struct {
	State           injected.State `json:"state"`
	finding.Finding `json:"-"`
	// Injected are the providers, as the pod's annotation has them.
	Injected string `json:"injected,omitempty"`
	Created  string `json:"created"`
	// OlderThanAnnotations reports whether the pod is older than the last write of its
	// ServiceAccount's annotations.
	OlderThanAnnotations bool        `json:"olderThanAnnotations"`
	Containers           []Container `json:"containers,omitempty"`
	// Differences is set for a pod that another webhook injected.
	Differences []injected.Difference `json:"differences,omitempty"`
}

// Problem reports whether action is needed because a pod lacks the credentials that its
// ServiceAccount asks for, or has others.
func (e *Explanation) Problem() bool {
	return slices.ContainsFunc(e.Findings, func(f finding.Finding) bool {
		return f.Status == finding.Failed || f.Status == finding.Warning
	})
}

// explain computes the explanation.
func explain(in *input) *Explanation {
	e := &Explanation{
		Object: in.Object, Namespace: in.Namespace.Name,
		ServiceAccount:    in.serviceAccount(),
		New:               in.new(),
		InjectedBy:        in.Installation.InjectedBy(),
		AllowedIdentities: in.Namespace.Annotations[annotations.AllowedIdentities],
	}
	if object := in.metadata(); in.asks() || in.waits() || cluster.Unguarded(in.Settings, object) {
		e.Guard, e.GuardProblem = in.guardOf(object)
	}
	if in.Answer.Local != "" && e.New.Outcome != injected.Unknown {
		e.New.Local, e.New.Limits = true, "other webhooks, policies and quotas were not asked, so it is unknown whether the API server can call Lanyard"
	}
	if e.ServiceAccount.label.Text != "" {
		e.Findings = append(e.Findings, e.ServiceAccount.label)
	}
	e.New.About = "new pods"
	e.Findings = append(e.Findings, e.New.Finding)
	if in.Live != nil {
		e.Live = in.explainLive(&e.New)
		e.Live.About = "this pod"
		e.Findings = append(e.Findings, e.Live.Finding)
		e.Findings = append(e.Findings, in.verification()...)
	}
	e.Findings = append(e.Findings, in.secrets()...)
	return e
}

// secrets returns a finding for each Secret that the pod takes variables from.
func (in *input) secrets() (found []finding.Finding) {
	if !in.asks() {
		return nil
	}
	_, secrets, _ := sourcesOf(in.text()) // the API server reports what is wrong with the template of a custom kind
	for _, name := range secrets {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			continue // no Secret can have it, and the command would be another one
		}
		found = append(found, finding.Finding{
			Status: finding.NotApplicable, About: "secret/" + name, Reason: "secret_not_read",
			Text: fmt.Sprintf("the pod takes variables from the Secret %s, which lanyard does not read. A key such as AWS_ACCESS_KEY_ID makes SDKs ignore the injected identity", name),
			Fix:  fmt.Sprintf(`To list its keys: kubectl get secret %s --namespace %s -o go-template='{{range $key, $value := .data}}{{println $key}}{{end}}'`, name, in.Namespace.Name),
		})
	}
	return found
}

// metadata returns the metadata of the ServiceAccount. It is empty if the ServiceAccount was not
// read.
func (in *input) metadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: *cmp.Or(in.ServiceAccount, new(metav1.ObjectMeta))}
}

// asks reports whether the ServiceAccount was read and asks for an identity.
func (in *input) asks() bool { return in.AskForIdentity(in.metadata().Annotations) }

// waits reports whether the ServiceAccount was read and needs an identity that it does not
// ask for yet.
func (in *input) waits() bool {
	object := in.metadata()
	return in.Waits(object.Labels[annotations.IdentityLabel], object.Annotations)
}

func (in *input) serviceAccount() ServiceAccount {
	object := in.metadata()
	account := ServiceAccount{
		Name: in.ServiceAccountName, Exists: !in.Absent, Read: in.ServiceAccount != nil,
		Identities: identitiesOf(in.Settings, object.Annotations), Required: in.waits(),
	}
	if in.called && in.asks() && !annotations.IsGuarded(object.Labels[annotations.IdentityLabel]) {
		account.label = finding.Finding{
			Status: finding.Warning, About: "serviceaccount/" + account.Name, Reason: "unguarded", Text: "it lacks the guard's label",
			Fix: "Add the guard's label: lanyard label serviceaccounts --namespace " + in.Namespace.Name,
		}
	}
	if annotated := cluster.Annotated(&object.ObjectMeta); !annotated.IsZero() {
		account.Annotated = annotated.UTC().Format(time.RFC3339)
	}
	return account
}

// identitiesOf returns the identities as written in the annotations of a ServiceAccount,
// without the cluster's defaults.
func identitiesOf(s *annotations.Settings, values map[string]string) []Identity {
	var identities []Identity
	for _, d := range s.Asked(values) {
		identities = append(identities, Identity{Provider: d.Name, Name: principal(d, values)})
		if d.Profiles == nil {
			continue
		}
		for _, name := range annotations.ProfilesWith(d, d.Profiles.Parameter, values) {
			identities = append(identities, Identity{d.Name, name, values[annotations.ProfileKey(d, d.Profiles.Parameter, name)]})
		}
	}
	return identities
}

// principal returns the name of an identity, or of a token without one.
func principal(d *annotations.Provider, values map[string]string) string {
	identity := annotations.Identity{Provider: d, Values: annotations.Values{}}
	if d.Plain() {
		identity.Audience = values[annotations.Audience]
	}
	for _, parameter := range d.PrincipalParameters {
		identity.Values[parameter] = values[annotations.Key(d, parameter)]
	}
	_, tokens := values[annotations.Tokens]
	identity.TokenAlone = tokens && identity.Principal() == ""
	return identity.Principal()
}

// problem returns an outcome that needs action.
func problem(outcome injected.State, why reason.Reason, text, fix string) NewPod {
	return NewPod{Outcome: outcome, Finding: finding.Finding{Status: finding.Failed, Reason: string(why), Text: text, Fix: fix}}
}

// fine returns an outcome that needs no action. hint is an optional next step.
func fine(outcome injected.State, why reason.Reason, text, hint string) NewPod {
	return NewPod{Outcome: outcome, Finding: finding.Finding{Status: finding.NotApplicable, Reason: string(why), Text: text, Fix: hint}}
}

// new describes the outcome for a new pod.
func (in *input) new() NewPod {
	switch answer := &in.Answer; {
	case in.Absent:
		return problem(Denied, reason.ServiceAccountNotFound, fmt.Sprintf("the ServiceAccount %s does not exist", in.ServiceAccountName),
			"Create the ServiceAccount, or correct serviceAccountName in the pod template.")
	case answer.Denial != nil:
		return in.denied()
	case answer.Err != nil:
		return in.unknown()
	}
	if in.Answer.Pod.GetAnnotations()[annotations.Injected] != "" {
		return in.injected()
	}
	return in.without()
}

// unknown describes a new pod whose credentials are unknown.
func (in *input) unknown() NewPod {
	n := NewPod{Outcome: injected.Unknown, Finding: finding.Finding{
		Status: finding.Skipped, Text: "could not determine the credentials of a new pod: " + in.Answer.Err.Error(), Fix: "Try again. If the error persists, run: lanyard check",
	}}
	switch {
	case in.ServiceAccount == nil:
		n.Fix = "Ask an administrator to bind the ClusterRole \"view\" to you in the namespace " + in.Namespace.Name + "."
	case in.unread:
		n.Fix = "Pass the webhook's configuration file with --config."
	}
	return n
}

// injected describes a new pod that gets credentials.
func (in *input) injected() NewPod {
	providers := in.Answer.Pod.GetAnnotations()[annotations.Injected]
	n := NewPod{Outcome: Injected, Finding: finding.Finding{Status: finding.OK, Reason: string(reason.Injected), Text: "a new pod gets " + strings.ReplaceAll(providers, ",", ", ")}}
	if !in.called {
		n.Text = "the pod template has Lanyard's annotations, but Lanyard is not called for the namespace"
	}
	decision, _ := in.decide()
	n.Containers = in.containers(in.Answer.Pod, decision)
	if decision == nil {
		n.Warnings = in.warnings()
		return n
	}
	if shadows, _ := in.variables.shadows(in.text(), decision); len(shadows) > 0 {
		f := &shadows[0]
		n.Status, n.Reason = finding.Failed, string(f.Reason)
		n.Text, n.Fix = n.Text+", but SDKs in its container "+f.Container+" may ignore it: "+f.Detail, f.Fix
	} else if c, own := ownCredentials(n.Containers); own != nil {
		n.Status, n.Reason = finding.NotApplicable, string(own.Reason)
		n.Text, n.Fix = n.Text+", but no container uses it: container "+c+": "+own.Detail, own.Fix
	}
	return n
}

// ownCredentials returns the first container that keeps credentials of its own, and the finding
// about it, if no container uses the injected ones.
func ownCredentials(containers []Container) (name string, own *mutate.Finding) {
	for i := range containers {
		c := &containers[i]
		if len(c.Providers) > 0 {
			return "", nil
		}
		at := slices.IndexFunc(c.Reasons, func(r mutate.Finding) bool { return r.Reason == reason.EnvironmentTaken })
		if at >= 0 && own == nil {
			name, own = c.Name, &c.Reasons[at]
		}
	}
	return name, own
}

// warnings returns the webhook's warnings about the pod Sent. explain shows them if it cannot
// compute the findings itself, because it may not read the ServiceAccount or the settings.
func (in *input) warnings() []string {
	return slices.DeleteFunc(slices.Clone(in.Answer.Warnings), func(text string) bool { return !strings.HasPrefix(text, "lanyard: ") })
}

// insists describes the denial of pods that insist, or that have the label of an injected
// pod, in a namespace that Lanyard is not called for.
func (in *input) insists() NewPod {
	return problem(Denied, "", "the guard denies new pods that lack credentials, and Lanyard is not called for the namespace: "+in.exclusion(),
		fmt.Sprintf("Remove %s: %q and the label %s from the pod template, move the workload to another namespace, or include this one.",
			annotations.Inject, annotations.Insist, annotations.IdentityLabel))
}

// checkFix is the fix if a webhook does not respond.
const checkFix = "See: lanyard check"

// cannotCall is in front of the error of a call.
const cannotCall = "the API server cannot call Lanyard: "

// fixes are the fixes by reason.
var fixes = map[reason.Reason]string{
	reason.IdentityRequired:   "Annotate the ServiceAccount: controllers then create the pods when they retry.",
	reason.InvalidAnnotation:  "Correct the annotation that the message names.",
	reason.IdentityNotAllowed: "Ask the administrator of the cluster to allow the identity, or correct the ServiceAccount.",
	reason.ForeignInjection:   "Remove Lanyard's additions from the pod template: they were copied from a running pod.",
	reason.InvalidMountPath:   "Write the path as the message shows, or leave the container out with skip-containers.",
	reason.VolumeNameTaken:    "Rename one of the two volumes.",
	reason.TooLarge:           "Make the pod smaller.",
	reason.LookupFailed:       "Try again. If the error persists, run: lanyard check",
	reason.Overloaded:         "Try again. If the error persists, run: lanyard check",
}

// denied returns the reason for the denial of a new pod.
func (in *input) denied() NewPod {
	denial := in.Answer.Denial
	n := problem(Denied, denial.Reason, denial.Message, "")
	switch {
	case denial.By == ByGuard && in.absent():
		n.Text, n.Fix = "the guard of a removed installation denies new pods", in.removal()
	case in.waits() && (denial.Reason == reason.IdentityRequired || denial.By == ByGuard):
		name, label := in.ServiceAccountName, annotations.IdentityLabel
		hint := in.hint()
		n.Reason = string(reason.IdentityRequired)
		n.Text = fmt.Sprintf("the ServiceAccount %s has the label %s=%s, and no annotation that asks for an identity yet%s", name, label, annotations.IdentityRequired, hint.text)
		n.Fix = fmt.Sprintf("%s If it needs no identity, remove the label: kubectl label serviceaccount %s %s- --namespace %s",
			fixes[reason.IdentityRequired], name, label, in.Namespace.Name)
	case denial.By == ByLanyard:
		n.Fix = fixes[denial.Reason]
	case denial.By == ByNoCall:
		n.Text = cannotCall + denial.Message
		n.Fix, n.Link = callFix(denial.Message)
	case denial.By == ByFailedCall:
		n.Fix = "Restore the webhook that the message names, or ask its owner. Lanyard did not deny the pod."
	case denial.By == ByOther:
		n.Fix = "Correct the pod template, or ask the owner of the policy, quota or webhook that the message names. Lanyard did not deny the pod."
	case !in.called:
		return in.insists()
	case in.ServiceAccount != nil && !in.asks() && in.Sent.GetLabels()[annotations.IdentityLabel] != "":
		n.Fix = fixes[reason.ForeignInjection]
	case in.unreachable() != "":
		n.Text = "the guard denies new pods, because " + cannotCall + in.unreachable()
		n.Fix, n.Link = callFix(in.unreachable())
	default:
		n.Text, n.Fix = "the guard denies new pods: Lanyard did not inject a container that needs credentials", checkFix
		if decision, _ := in.decide(); leavesNothing(decision) {
			return in.deniedByItsLists(decision)
		}
	}
	return n
}

// leavesNothing reports whether the pod's annotations leave out all of its containers.
func leavesNothing(d *mutate.Decision) bool {
	return d != nil && len(d.Findings) > 0 && d.Findings[0].Reason == reason.NoContainer
}

// nothingLeft is the reason why such a pod gets no credentials.
const nothingLeft = "the annotations of the pod leave out all of its containers"

// deniedByItsLists describes the denial of a pod whose annotations leave out all of its containers.
func (in *input) deniedByItsLists(decision *mutate.Decision) NewPod {
	n := problem(Denied, reason.NoContainer, "the guard denies new pods: "+nothingLeft, decision.Findings[0].Fix)
	n.Containers = in.containers(in.Sent, decision)
	return n
}

// unreachable returns the error of the API server's call of Lanyard, or empty if the API server
// can call Lanyard, or if that is not known.
func (in *input) unreachable() string {
	if in.Probe == nil || in.Probe.Denial == nil || in.Probe.Denial.By != ByNoCall {
		return ""
	}
	return in.Probe.Denial.Message
}

// text returns the JSON of the pod Sent, which was made from JSON.
func (in *input) text() []byte {
	text, _ := json.Marshal(in.Sent)
	return text
}

// decide computes the webhook's decision about the pod Sent. Both results are nil if the
// ServiceAccount was not read.
func (in *input) decide() (*mutate.Decision, error) {
	if in.ServiceAccount == nil {
		return nil, nil
	}
	return decide(in.Settings, &in.Namespace.ObjectMeta, in.ServiceAccount, in.text())
}

// without returns the reason why a new pod gets no credentials.
func (in *input) without() NewPod {
	decision, err := in.decide()
	pod, _ := in.ParsePod(in.Sent.GetAnnotations(), in.Sent.GetLabels()[annotations.Inject])
	called, _ := in.calls(in.Sent.GetLabels())
	switch {
	case pod.Insists && in.Answer.Local != "" && !called && !in.off && !in.absent():
		return in.insists()
	case decision == nil && err == nil:
		return NewPod{Outcome: injected.Without, Finding: finding.Finding{
			Status: finding.Skipped, Text: "the pod is created without credentials. The reason is unknown, because you may not read its ServiceAccount",
			Fix: "Ask an administrator to bind the ClusterRole \"view\" to you in the namespace " + in.Namespace.Name + ".",
		}}
	case decision == nil: // a new pod would be denied, if Lanyard were called
		return in.uncalled()
	}
	switch decision.Reason {
	case reason.MirrorPod:
		return fine(injected.Without, decision.Reason, "the pod mirrors a static pod of a node, which cannot have a token", "")
	case reason.OptedOut:
		text := "the pod has " + annotations.Inject + ": \"false\""
		if pod.LeftToPeer != "" {
			text = "an annotation of the pod leaves the provider " + pod.LeftToPeer + " to another webhook"
		}
		return fine(injected.OptedOut, decision.Reason, text, "")
	case reason.NoIdentity:
		return in.none(decision)
	case reason.Injected, reason.AlreadyInjected:
		return in.uncalled()
	}
	if !called {
		return in.uncalled()
	}
	return in.leftOut(decision)
}

// leftOut describes a new pod in which no container gets credentials.
func (in *input) leftOut(decision *mutate.Decision) NewPod {
	if leavesNothing(decision) && in.Answer.Local != "" && !in.off {
		return in.deniedByItsLists(decision)
	}
	fix := ""
	if len(decision.Findings) > 0 {
		fix = decision.Findings[0].Fix
	}
	n := fine(injected.LeftOut, decision.Reason, "no container of the pod gets credentials", fix)
	if leavesNothing(decision) {
		n = problem(injected.LeftOut, decision.Reason, nothingLeft, fix)
	}
	n.Containers = in.containers(in.Sent, decision)
	return n
}

// none describes a new pod whose ServiceAccount asks for nothing.
func (in *input) none(decision *mutate.Decision) NewPod {
	name, namespace, hint := in.ServiceAccountName, in.Namespace.Name, in.hint()
	n := fine(injected.None, decision.Reason, fmt.Sprintf("the ServiceAccount %s has no annotation that asks for an identity%s", name, hint.text), hint.fix)
	switch {
	case hint.text == "" && decision.Mistake != nil:
		n.Text += "; the pod's annotations have a mistake as well: " + decision.Mistake.Err.Error()
	case hint.wrong:
		n.Status = finding.Failed
	}
	if !in.Named {
		n.Text = "the pod sets no serviceAccountName, and " + n.Text
	}
	if len(in.Elsewhere) > 0 {
		n.Text += "; the ServiceAccount of the same name asks for one in: " + strings.Join(in.Elsewhere, ", ")
	}
	if n.Fix != "" {
		return n
	}
	n.Fix = fmt.Sprintf("If it needs credentials, annotate the ServiceAccount. For the commands, also with azure or gcp: lanyard trust aws %s --namespace %s", name, namespace)
	switch {
	case !in.Named && len(in.Askers) > 0:
		n.Fix = "If it needs credentials, set serviceAccountName in the pod template to a ServiceAccount that asks for an identity: " + strings.Join(in.Askers, ", ") + "."
	case !in.Named:
		n.Fix = "If it needs credentials, create a ServiceAccount for it, and set serviceAccountName in the pod template. " +
			"For the annotation, also with azure or gcp: lanyard trust aws NAME --namespace " + namespace
	}
	return n
}

// absent reports whether nothing injects pods in this cluster.
func (in *input) absent() bool { return in.Installation != nil && in.Installation.Absent() }

// removal is the next step for policies of a removed installation.
func (in *input) removal() string {
	if len(in.left) == 0 {
		return "Remove it, or install Lanyard again. To see its policies: lanyard check"
	}
	return "Remove it, or install Lanyard again: " + cluster.Remove(in.left)
}

// uncalled returns the reason why the API server did not call Lanyard for the pod Sent.
func (in *input) uncalled() NewPod {
	n := problem(injected.Without, "", "", checkFix)
	selected, certain := cluster.Selects(in.registration, in.Sent.GetLabels())
	switch {
	case in.absent():
		n.Outcome, n.Reason, n.Text = injected.Excluded, "not_installed", "Lanyard is not installed, so no pod gets credentials"
		n.Fix = "Install it. To see whether the cluster is ready: lanyard check --pre"
	case !in.called:
		n.Outcome, n.Text = injected.Excluded, "Lanyard is not called for the namespace: "+in.exclusion()
		n.Fix = "Move the workload to another namespace, or include this one."
	case !selected:
		n.Outcome, n.Text = injected.Excluded, "Lanyard is not called for the pod: the objectSelector of the webhook "+cluster.PodWebhook+" does not select it"
		n.Fix = "Correct the labels of the pod template, or the objectSelector."
	case in.unreachable() != "":
		n.Text = cannotCall + in.unreachable()
		n.Fix, n.Link = callFix(in.unreachable())
	case in.Probe != nil && in.Probe.Problem() != nil && !in.Probe.Denial.ShowsCall():
		n.Text, n.Fix = "the API server did not call Lanyard for this pod. The cause is unknown, because the probe pod was not created: "+in.Probe.Problem().Error(), checkFix
	case certain && in.registration != nil:
		n.Text, n.Fix = "the API server did not call Lanyard for this pod, though it can, and the webhook "+cluster.PodWebhook+" selects it", checkFix
	default:
		n.Text = "the API server did not call Lanyard for this pod, though it can: the webhook " + cluster.PodWebhook + " does not select it"
		n.Fix = "Compare the pod with the objectSelector and the matchConditions of the webhook."
	}
	return n
}

// exclusion names the label or selector that excludes the namespace.
func (in *input) exclusion() string {
	if value, found := in.Namespace.Labels[annotations.Inject]; found && (value == annotations.LabelDisabled || value == annotations.OptOut) {
		return fmt.Sprintf("it has the label %s=%s", annotations.Inject, value)
	}
	if slices.Contains(in.ExcludedNamespaces, in.Namespace.Name) {
		return "the settings of the webhook exclude it"
	}
	return "the namespaceSelector of the webhook " + cluster.PodWebhook + " does not select it"
}

// hint contains the likely reason why a ServiceAccount does not ask for an identity, and the
// fix. wrong reports whether it is a mistake.
type hint struct {
	text, fix string
	wrong     bool
}

// hint returns an annotation of another webhook, or else an annotation that looks like Lanyard's
// but has another prefix, or none.
func (in *input) hint() hint {
	values := in.metadata().Annotations
	if i := slices.IndexFunc(peer.All(), func(p *peer.Peer) bool { return p.Asks(values) }); i >= 0 {
		return in.peer(peer.All()[i])
	}
	known := in.ServiceAccountKeys()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := key[strings.LastIndex(key, "/")+1:]
		if name != key && name == "audience" {
			continue // a word that others use as well
		}
		if full := annotations.Prefix + name; full != key && slices.Contains(known, full) && in.IsIdentity(full) {
			return hint{fmt.Sprintf(": %s has no effect, Lanyard reads %s", key, full), "Correct the annotation.", true}
		}
	}
	return hint{}
}

// peer returns the hint about an annotation of another webhook. If Lanyard does not adopt it,
// nothing is wrong, because the other webhook may be installed.
func (in *input) peer(p *peer.Peer) hint {
	adopted := slices.Contains(in.Peers, p.Name)
	switch {
	case adopted && in.called:
		return hint{": " + p.Identity[0] + " is not adopted yet", "Adopt it: lanyard label serviceaccounts --namespace " + in.Namespace.Name, true}
	case adopted:
		return hint{": " + p.Identity[0] + " is not adopted, because Lanyard is not called for the namespace: " + in.exclusion(),
			"If Lanyard is to give the credentials, include the namespace.", false}
	}
	return hint{fmt.Sprintf(": %s is for %s, and Lanyard does not adopt it here (%s)", p.Identity[0], p.Program, finding.Page("migrate/adoption.md")),
		fmt.Sprintf("If Lanyard is to give the credentials, see the annotations: lanyard migrate --from %s --namespace %s", p.Name, in.Namespace.Name), false}
}

// containers describes the containers of a pod. decision contains the findings about them; it may
// be nil.
func (in *input) containers(pod metav1.Object, decision *mutate.Decision) []Container {
	var list []Container
	for _, read := range in.read(pod).Containers {
		c := Container{Name: read.Name, Type: read.Kind, Token: read.TakesPart, Providers: read.Providers}
		if decision != nil {
			for _, f := range decision.Findings {
				if f.Container == c.Name {
					f.Container = ""
					c.Reasons = append(c.Reasons, f)
				}
			}
		}
		list = append(list, c)
	}
	return list
}

// read reads the injection from a pod, or returns nil if there is no pod.
func (in *input) read(pod metav1.Object) *injected.Pod {
	if pod == nil {
		return nil
	}
	read, err := injected.Read(pod, in.Settings)
	if err != nil { // the pod template of a custom kind has a mistake
		return new(injected.Pod)
	}
	return read
}

// noPod stands for the outcomes without a new pod: Denied and Unknown.
const noPod injected.State = "no pod"

// sentences describe running pods. The first row that matches the state and, if set, the
// outcome for new pods and the origin of the credentials applies.
var sentences = []struct {
	state   injected.State
	outcome injected.State
	origin  origin
	why     string
}{
	{injected.None, "", others, "it has the credentials of another webhook, and its ServiceAccount asks Lanyard for none"},
	{injected.Current, "", others, "it has the credentials of a new pod, from another webhook"},
	{injected.Excluded, "", others, "it has the credentials of another webhook, and Lanyard is not called for it"},
	{injected.Excluded, "", nowhere, "it has no credentials, because Lanyard is not called for it"},
	{injected.Excluded, "", anywhere, "it has credentials from when Lanyard was still called for it"},
	{injected.OptedOut, "", anywhere, "it asks for no credentials"},
	{injected.None, "", anywhere, "it has no credentials, like a new pod"},
	{injected.LeftOut, "", anywhere, "none of its containers gets credentials, like a new pod"},
	{injected.Unknown, injected.Without, nowhere, "it has no credentials, like a new pod"},
	{injected.Unknown, Denied, anywhere, "it cannot be compared with a new pod, which is denied"},
	{injected.Unknown, "", anywhere, "it cannot be compared with a new pod, whose credentials are unknown"},
	{injected.Without, noPod, anywhere, "it has no credentials, and its ServiceAccount asks for some"},
	{injected.Stale, noPod, anywhere, "its credentials differ from those that its ServiceAccount asks for"},
	{injected.Current, noPod, anywhere, "it has the credentials that its ServiceAccount asks for"},
	{Shadowed, noPod, anywhere, "it has the credentials that its ServiceAccount asks for, but SDKs may ignore them"},
	{injected.Without, "", anywhere, "it has no credentials, and a new pod gets some"},
	{injected.Stale, injected.Without, anywhere, "it has credentials, and a new pod gets none"},
	{injected.Stale, injected.None, anywhere, "it has credentials, and a new pod gets none"},
	{injected.Stale, injected.OptedOut, anywhere, "it has credentials, and a new pod gets none"},
	{injected.Stale, "", anywhere, "its credentials differ from those of a new pod"},
	{injected.Current, "", nowhere, "it has no credentials, like a new pod"},
	{injected.Current, "", anywhere, "it has the credentials of a new pod"},
	{Shadowed, "", anywhere, "it has the credentials of a new pod, but SDKs may ignore them"},
}

// origin says who injected a pod.
type origin string

const (
	anywhere origin = ""
	nowhere  origin = "nowhere"
	others   origin = "another webhook"
)

// origin returns who injected the running pod.
func (in *input) origin() origin {
	switch read := in.read(in.Live); {
	case read.OfOthers(), slices.ContainsFunc(read.Containers, hasTokenOfOthers):
		return others
	case in.Live.GetAnnotations()[annotations.Injected] == "":
		return nowhere
	}
	return anywhere
}

// hasTokenOfOthers reports whether another webhook mounted its token. The container may set the variable
// that points to it itself.
func hasTokenOfOthers(c injected.Container) bool {
	return slices.ContainsFunc(c.Tokens, func(t injected.Token) bool {
		return slices.ContainsFunc(peer.All(), func(other *peer.Peer) bool { return other.Wrote(t.File) || slices.Contains(other.Volumes, t.Volume) })
	})
}

// live returns the running pod with its state by the rules of the webhook.
func (in *input) live() (*pod, error) {
	if in.ServiceAccount != nil {
		in.keep(in.metadata())
	}
	return in.newPod(in.Live, in.ServiceAccountName)
}

// judge returns the state of the running pod, as status does.
func (in *input) judge() (verdict, error) {
	live, err := in.live()
	if err == nil && live.Ask {
		err = (&question{pods: []*pod{live}, template: in.Template}).answered(&in.Answer)
	}
	if err != nil {
		return verdict{}, err
	}
	return live.verdict, nil
}

// explainLive describes the running pod, compared with a new one.
func (in *input) explainLive(n *NewPod) *Live {
	pod := in.Live
	created, annotated := pod.GetCreationTimestamp(), cluster.Annotated(&in.metadata().ObjectMeta)
	judged, err := in.judge()
	if err != nil { // the pod of a custom kind has a mistake
		judged.State = injected.Unknown
	}
	l := &Live{
		State: judged.State, Differences: judged.Differences,
		Injected: pod.GetAnnotations()[annotations.Injected], Created: created.UTC().Format(time.RFC3339),
		OlderThanAnnotations: !annotated.IsZero() && created.Before(&annotated),
		Containers:           in.containers(pod, nil),
	}
	for _, s := range sentences {
		if s.state == l.State && (s.outcome == "" || s.outcome == n.Outcome || s.outcome == noPod && in.Answer.Pod == nil) && (s.origin == anywhere || s.origin == in.origin()) {
			l.Text = s.why
			break
		}
	}
	l.Reason, l.Status = string(l.State), finding.NotApplicable
	switch l.State {
	case injected.Current:
		l.Status = finding.OK
	case injected.Unknown:
		l.Status, l.Fix, l.Link = finding.Skipped, cmp.Or(n.Fix, "See: lanyard check"), n.Link
	case Shadowed:
		f := &judged.Shadows[0]
		l.Status, l.Reason, l.Fix = finding.Failed, string(f.Reason), f.Fix
		l.Text += ": container " + f.Container + ": " + f.Detail
	case injected.Without, injected.Stale:
		in.outdated(l, annotated)
	}
	return l
}

// outdated describes a running pod that must be replaced. annotated is when its ServiceAccount was
// annotated.
func (in *input) outdated(l *Live, annotated metav1.Time) {
	l.Status, l.Fix = finding.Failed, in.Owner.replace(in.Namespace.Name, in.Live.GetName())
	switch {
	case l.OlderThanAnnotations:
		l.Text += ": it is older than the annotations of its ServiceAccount"
	case l.State == injected.Stale: // the cause is not known
	case annotated.IsZero():
		l.Text += ": it was created before its ServiceAccount was annotated, or while Lanyard was not called"
	default:
		l.Text += ": it was created while Lanyard was not called"
	}
}

// addPods adds the findings about running pods.
func (e *Explanation) addPods(result *statusResult, in *input) {
	if result.Summary.Pods > 0 {
		e.Pods = &result.Summary
	}
	for _, f := range result.Findings {
		// The explanation already covers what is unknown about its own new pods.
		if f.Reason != string(injected.Unknown) || in.Owner.Name == "" {
			f.About = aboutPods
			e.Findings = append(e.Findings, f)
		}
	}
	for _, f := range result.outdated(e.Object) {
		f.Status, f.About = finding.Failed, aboutPods
		if in.Owner.Name != "" { // otherwise a ServiceAccount, of any number of workloads
			f.Fix = in.Owner.replace(in.Namespace.Name, "")
		}
		e.Findings = append(e.Findings, f)
	}
}

// problems returns the number of pods that need attention.
func (s *summary) problems() int {
	return Outdated(s.States) + s.States[Shadowed] + s.States[injected.Unknown]
}
