// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain explains why a pod has its credentials, or none. It is pure:
// callers read the objects and send the dry run, and Explain combines the results,
// using the reasons of package reason.
package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Input holds the objects and the results of the dry runs.
type Input struct {
	*settings.Settings
	// Object is the object in the user's question, such as deployment/cart.
	Object string
	// Namespace is the namespace of the object.
	Namespace *corev1.Namespace
	// ServiceAccountName is the name that the pod has. ServiceAccount is nil if it does
	// not exist.
	ServiceAccountName string
	ServiceAccount     *corev1.ServiceAccount
	// Live is the pod that the user asked about, if it is a pod.
	Live *corev1.Pod
	// Sent is the pod of the dry run. Got and Warnings are the response; if the pod
	// would not be created, Got is nil and Err is the reason.
	Sent, Got *corev1.Pod
	Warnings  []string
	Err       error
	// Called reports whether Lanyard is called for the namespace.
	Called bool
	// Guard is the problem with the guard; empty if it is in place.
	Guard string
	// ProbeErr is the error of a second dry run with the label of the probe.
	ProbeErr error
}

// Outcome classifies the result of the dry run.
type Outcome string

const (
	// Injected means that a new pod gets credentials.
	Injected Outcome = "injected"
	// Without means that a new pod is created without credentials.
	Without Outcome = "without-credentials"
	// Denied means that no new pod is created.
	Denied Outcome = "denied"
)

// Explanation is the result.
type Explanation struct {
	Object         string         `json:"object"`
	Namespace      string         `json:"namespace"`
	ServiceAccount ServiceAccount `json:"serviceAccount"`
	// New is the outcome for a new pod.
	New New `json:"new"`
	// Live is about the pod that the user asked about.
	Live *Live `json:"live,omitempty"`
	// AllowedIdentities is the namespace's policy; empty if it has none of its own.
	AllowedIdentities string `json:"allowedIdentities,omitempty"`
	// Guard is "on", or the problem with it.
	Guard string `json:"guard"`
}

// ServiceAccount describes a ServiceAccount and its identities.
type ServiceAccount struct {
	Name       string     `json:"name"`
	Exists     bool       `json:"exists"`
	Identities []Identity `json:"identities,omitempty"`
	// Guarded reports whether it has the label that the guard selects by.
	Guarded bool `json:"guarded"`
	// Annotated is when Lanyard's annotations were last written; empty if unknown.
	Annotated string `json:"annotated,omitempty"`
	// Fix is the fix for the label; empty if there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Identity is an identity of a ServiceAccount, as its annotations have it.
type Identity struct {
	Provider string `json:"provider"`
	// Profile is empty for the ServiceAccount's own identity.
	Profile string `json:"profile,omitempty"`
	Name    string `json:"name"`
}

// New is the outcome for a new pod.
type New struct {
	Outcome Outcome `json:"outcome"`
	// Reason is a word of package reason; empty if Lanyard did not decide.
	Reason reason.Reason `json:"reason,omitempty"`
	// Why and Fix are for people. Fix is empty if there is nothing to do.
	Why        string      `json:"why"`
	Fix        string      `json:"fix,omitempty"`
	Containers []Container `json:"containers,omitempty"`
}

// Container describes the credentials of a container.
type Container struct {
	Name string `json:"name"`
	// Type is container, init or ephemeral.
	Type string `json:"type"`
	// Token reports whether the token volume is mounted.
	Token bool `json:"token"`
	// Providers are those whose variables point to a file of the token volume.
	Providers []string `json:"providers,omitempty"`
	// Reasons are the findings of Lanyard about this container.
	Reasons []Reason `json:"reasons,omitempty"`
}

// Reason is a finding.
type Reason struct {
	Reason reason.Reason `json:"reason"`
	Detail string        `json:"detail"`
}

// Unknown is the state of a pod that cannot be compared with a new one.
const Unknown injected.State = "unknown"

// Live is about a running pod.
type Live struct {
	State injected.State `json:"state"`
	// Injected are the providers, as the pod's annotation has them.
	Injected string `json:"injected,omitempty"`
	Created  string `json:"created"`
	// OlderThanAnnotations reports whether the pod was created before the annotations
	// of its ServiceAccount were last written.
	OlderThanAnnotations bool        `json:"olderThanAnnotations"`
	Why                  string      `json:"why"`
	Fix                  string      `json:"fix,omitempty"`
	Containers           []Container `json:"containers,omitempty"`
}

// Problem reports whether something must be done: a pod does not get the credentials
// that its ServiceAccount asks for, or has others.
func (e *Explanation) Problem() bool {
	return e.ServiceAccount.Fix != "" || e.New.Fix != "" || e.Live != nil && e.Live.Fix != ""
}

// Explain puts everything together.
func Explain(in *Input) *Explanation {
	e := &Explanation{
		Object: in.Object, Namespace: in.Namespace.Name,
		ServiceAccount:    in.serviceAccount(),
		New:               in.new(),
		AllowedIdentities: in.Namespace.Annotations[in.Keys.AllowedIdentities],
		Guard:             "on",
	}
	if in.Guard != "" {
		e.Guard = in.Guard
	}
	if in.Live != nil {
		e.Live = in.live(&e.New)
	}
	return e
}

func (in *Input) serviceAccount() ServiceAccount {
	account := ServiceAccount{Name: in.ServiceAccountName, Exists: in.ServiceAccount != nil}
	if in.ServiceAccount == nil {
		return account
	}
	account.Identities = Identities(in.Keys, in.ServiceAccount.Annotations)
	account.Guarded = in.ServiceAccount.Labels[in.Keys.IdentityLabel] == annotations.LabelEnabled
	if !account.Guarded && in.Called && in.Keys.AskForIdentity(in.ServiceAccount.Annotations) {
		account.Fix = "Add the guard's label: lanyard label serviceaccounts --namespace " + in.Namespace.Name
	}
	if annotated := in.annotated(); !annotated.IsZero() {
		account.Annotated = annotated.UTC().Format(time.RFC3339)
	}
	return account
}

// Identities returns the identities in the annotations of a ServiceAccount, as they
// are written: the cluster's defaults are not known.
func Identities(keys *annotations.Keys, values map[string]string) []Identity {
	var identities []Identity
	for _, d := range keys.Asked(values) {
		identities = append(identities, Identity{Provider: d.Name, Name: principal(keys, d, values)})
		identities = append(identities, profiles(keys, d, values)...)
	}
	return identities
}

// principal returns the name of an identity, as provider.Identity.Principal does.
func principal(keys *annotations.Keys, d *provider.Definition, values map[string]string) string {
	if d.Plain() {
		return values[keys.Audience]
	}
	for _, parameter := range d.PrincipalParameters {
		if value := values[keys.Parameter(d, parameter)]; value != "" {
			return value
		}
	}
	if _, found := values[keys.Tokens]; found {
		return (&provider.Identity{Definition: d, TokenAlone: true}).Principal()
	}
	return "" // the annotation has no value
}

// profiles returns the profiles of one provider.
func profiles(keys *annotations.Keys, d *provider.Definition, values map[string]string) []Identity {
	if d.Profiles == nil {
		return nil
	}
	var identities []Identity
	for _, name := range keys.ProfilesWith(d, d.Profiles.Parameter, values) {
		identities = append(identities, Identity{d.Name, name, values[keys.Profile(d, d.Profiles.Parameter, name)]})
	}
	return identities
}

// annotated returns when an annotation under the prefix was last written, as the
// managed fields have it. The zero value stands for unknown.
func (in *Input) annotated() (last metav1.Time) {
	for _, entry := range in.ServiceAccount.ManagedFields {
		var set struct {
			Metadata struct {
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		for name := range set.Metadata.Annotations {
			if strings.HasPrefix(name, "f:"+in.Keys.Prefix) && last.Before(entry.Time) {
				last = *entry.Time
			}
		}
	}
	return last
}

// denial matches a denial by Lanyard: a reason and a message.
var denial = regexp.MustCompile(`lanyard: ([a-z_]+): (.*)`)

// guardSentence is in the message of the policy in charts/lanyard/templates/guard.yaml.
const guardSentence = "needs credentials (label "

// new describes the outcome of the dry run.
func (in *Input) new() New {
	if in.ServiceAccount == nil {
		return New{
			Outcome: Denied, Reason: reason.ServiceAccountNotFound,
			Why: fmt.Sprintf("the ServiceAccount %s does not exist", in.ServiceAccountName),
			Fix: "Create the ServiceAccount, or correct serviceAccountName in the pod template.",
		}
	}
	if in.Err != nil {
		return in.denied()
	}
	if providers := in.Got.Annotations[in.Keys.Injected]; providers != "" {
		why := "a new pod gets " + strings.ReplaceAll(providers, ",", ", ")
		if !in.Called {
			why = "the pod template has Lanyard's annotations, but Lanyard is not called for the namespace"
		}
		return New{Outcome: Injected, Reason: reason.Injected, Why: why, Containers: in.containers(in.Got)}
	}
	n := in.without()
	n.Outcome = Without
	return n
}

// denied returns the reason for the denial of the dry run.
func (in *Input) denied() New {
	text := in.Err.Error()
	if match := denial.FindStringSubmatch(text); match != nil && slices.Contains(reason.All(), reason.Reason(match[1])) {
		return New{Outcome: Denied, Reason: reason.Reason(match[1]), Why: match[2], Fix: fixes[reason.Reason(match[1])]}
	}
	if strings.Contains(text, guardSentence+in.Keys.IdentityLabel) {
		n := New{Outcome: Denied, Why: "the guard denies new pods: Lanyard did not inject a container that needs credentials", Fix: "See: lanyard check"}
		if in.ProbeErr != nil {
			n.Why = "the guard denies new pods, because the API server cannot call Lanyard: " + in.ProbeErr.Error()
		}
		return n
	}
	return New{Outcome: Denied, Why: text, Fix: "Lanyard did not deny the pod. The message names the webhook or policy."}
}

// fixes are the fixes by reason.
var fixes = map[reason.Reason]string{
	reason.InvalidAnnotation:  "Correct the annotation that the message names.",
	reason.IdentityNotAllowed: "Ask the administrator of the cluster to allow the identity, or correct the ServiceAccount.",
	reason.ForeignInjection:   "Remove Lanyard's additions from the pod template: they were copied from a running pod.",
	reason.InvalidMountPath:   "Write the path as the message shows, or leave the container out with skip-containers.",
	reason.VolumeNameTaken:    "Rename one of the two volumes.",
	reason.TooLarge:           "Make the pod smaller.",
	reason.LookupFailed:       "Try again; if it goes on, see: lanyard check",
	reason.Overloaded:         "Try again; if it goes on, see: lanyard check",
}

// without returns the reason why a new pod gets no credentials.
func (in *Input) without() New {
	pod, errs := annotations.ParsePod(in.Keys, in.Sent.Annotations, in.Sent.Labels[in.Keys.Inject])
	asks := in.Keys.AskForIdentity(in.ServiceAccount.Annotations)
	_, mirror := in.Sent.Annotations[annotations.MirrorPodKey]
	switch {
	case mirror:
		return New{Reason: reason.MirrorPod, Why: "the pod mirrors a static pod of a node, which cannot have a token"}
	case pod.OptOut:
		return New{Reason: reason.OptedOut, Why: "the pod has " + in.Keys.Inject + ": \"false\""}
	case !asks:
		n := New{Reason: reason.NoIdentity, Why: fmt.Sprintf("the ServiceAccount %s has no annotation that asks for an identity", in.ServiceAccountName)}
		if hint, fix := in.peer(); hint != "" {
			n.Why, n.Fix = n.Why+": "+hint, fix
		} else if hint := in.misspelt(); hint != "" {
			n.Why, n.Fix = n.Why+": "+hint, "Correct the annotation."
		} else if len(errs) > 0 {
			n.Why += "; the pod's annotations have a mistake as well: " + errs.ToAggregate().Error()
		}
		return n
	case !in.Called:
		return New{
			Why: "Lanyard is not called for the namespace: " + in.exclusion(),
			Fix: "Move the workload to another namespace, or include this one.",
		}
	case in.ProbeErr != nil:
		return New{Why: "the API server cannot call Lanyard: " + in.ProbeErr.Error(), Fix: "See: lanyard check"}
	}
	return New{
		Why: "the API server did not call Lanyard for this pod, though it can: the webhook " + cluster.PodWebhook + " does not select it",
		Fix: "Compare the pod with the objectSelector and the matchConditions of the webhook.",
	}
}

// exclusion names the label or selector that excludes the namespace.
func (in *Input) exclusion() string {
	if value, found := in.Namespace.Labels[in.Keys.Inject]; found && (value == annotations.LabelDisabled || value == annotations.OptOut) {
		return fmt.Sprintf("it has the label %s=%s", in.Keys.Inject, value)
	}
	return "the namespaceSelector of the webhook " + cluster.PodWebhook + " does not select it"
}

// misspelt returns a hint about annotations that look like Lanyard's but have
// another prefix, or none.
func (in *Input) misspelt() string {
	known := in.Keys.ServiceAccount()
	for _, key := range slices.Sorted(maps.Keys(in.ServiceAccount.Annotations)) {
		name := key[strings.LastIndex(key, "/")+1:]
		if name != key && name == "audience" {
			continue // a word that others use as well
		}
		if full := in.Keys.Prefix + name; full != key && slices.Contains(known, full) && in.Keys.IsIdentity(full) {
			return fmt.Sprintf("%s has no effect, Lanyard reads %s", key, full)
		}
	}
	return ""
}

// peer returns a hint about an annotation of another webhook, and the fix.
// There is nothing to do if Lanyard does not adopt it: the other webhook may be there.
func (in *Input) peer() (hint, fix string) {
	for _, p := range peer.All() {
		if !p.Asks(in.ServiceAccount.Annotations) {
			continue
		}
		adopted := slices.ContainsFunc(in.Peers, func(adopted *peer.Peer) bool { return adopted.Name == p.Name })
		switch {
		case adopted && in.Called:
			return p.Identity[0] + " is not adopted yet", "Adopt it: lanyard label serviceaccounts --namespace " + in.Namespace.Name
		case adopted:
			return p.Identity[0] + " is not adopted, because Lanyard is not called for the namespace: " + in.exclusion(), ""
		}
		return fmt.Sprintf("%s is for %s, and Lanyard does not adopt it here (docs/adoption.md)", p.Identity[0], p.Program), ""
	}
	return "", ""
}

// finding matches a warning about one container.
var finding = regexp.MustCompile(`^lanyard: ([a-z_]+): container "([^"]*)": (.*)$`)

// containers describes the containers of a pod.
func (in *Input) containers(pod *corev1.Pod) []Container {
	selection, _ := annotations.ParsePod(in.Keys, pod.Annotations, "")
	var list []Container
	for _, read := range in.read(pod).Containers {
		c := Container{Name: read.Name, Type: read.Kind, Token: read.TakesPart, Providers: read.Providers}
		if pod == in.Got {
			c.Reasons = in.findings(c.Name)
			if !selection.Selects(c.Name) {
				c.Reasons = append(c.Reasons, Reason{reason.ContainerNotSelected, "the pod's annotations leave it out"})
			}
		}
		list = append(list, c)
	}
	return list
}

// read reads the injection back from a pod.
func (in *Input) read(pod *corev1.Pod) *injected.Pod {
	read, err := injected.Read(pod, in.Keys)
	if err != nil {
		panic(err) // a typed pod can be encoded, and decoded
	}
	return read
}

// findings returns the warnings about one container.
func (in *Input) findings(container string) []Reason {
	var reasons []Reason
	for _, text := range in.Warnings {
		if match := finding.FindStringSubmatch(text); match != nil && match[2] == container {
			reasons = append(reasons, Reason{reason.Reason(match[1]), match[3]})
		}
	}
	return reasons
}

// live compares the running pod with a new one.
func (in *Input) live(n *New) *Live {
	pod := in.Live
	l := &Live{
		State: Unknown, Injected: pod.Annotations[in.Keys.Injected],
		Created:    pod.CreationTimestamp.UTC().Format(time.RFC3339),
		Containers: in.containers(pod),
	}
	older, missed := "", ": it was created before its ServiceAccount was annotated, or while Lanyard was not called"
	if in.ServiceAccount != nil {
		annotated := in.annotated()
		l.OlderThanAnnotations = !annotated.IsZero() && pod.CreationTimestamp.Before(&annotated)
		switch {
		case l.OlderThanAnnotations:
			older = ": it is older than the annotations of its ServiceAccount"
			missed = older
		case !annotated.IsZero():
			missed = ": it was created while Lanyard was not called"
		}
	}
	if n.Outcome == Denied {
		l.Why = "it cannot be compared with a new pod, which is denied"
		return l
	}
	l.State = in.read(pod).State(in.read(in.Got), in.Keys)
	switch {
	case l.State == injected.Without:
		l.Why = "it has no credentials, and a new pod gets some" + missed
	case l.State == injected.Stale && n.Outcome == Without:
		l.Why = "it has credentials, and a new pod gets none" + older
	case l.State == injected.Stale:
		l.Why = "its credentials differ from the credentials of a new pod" + older
	case l.Injected == "":
		l.Why = "it has no credentials, like a new pod"
	default:
		l.Why = "it has the credentials of a new pod"
	}
	if l.State != injected.Current {
		l.Fix = "Restart its workload: lanyard restart --stale --namespace " + in.Namespace.Name
	}
	return l
}
