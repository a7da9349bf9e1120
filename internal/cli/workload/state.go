// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Shadowed means that a pod has the credentials of a new pod, but SDKs may ignore them.
const Shadowed injected.State = "shadowed"

// StateInfo defines a state of a running pod.
type StateInfo struct {
	injected.State
	// Means completes the sentence "A pod has this state if".
	Means string
	// Outdated reports whether the pod must be replaced to get its credentials.
	Outdated bool
}

// States returns all states in the order of the output. The documentation and the help texts use
// the same words.
func States() []StateInfo {
	return []StateInfo{
		{injected.Current, "it has the credentials that a new pod gets", false},
		{injected.Stale, "it has a previous identity of its ServiceAccount, from Lanyard or from another webhook", true},
		{injected.Without, "it has no credentials, but a new pod gets some", true},
		{Shadowed, "it has its credentials, but a variable of its own makes SDKs ignore them", false},
		{injected.LeftOut, "its annotations exclude all of its containers, or something else is mounted at the token path", false},
		{injected.OptedOut, `it has lanyard.dev/inject: "false"`, false},
		{injected.Excluded, "Lanyard is not called for it or for its namespace", false},
		{injected.None, "its ServiceAccount asks for no identity", false},
		{injected.Unknown, "it cannot be compared with a new pod", false},
	}
}

// Outdated returns how many of the pods, which are counted by state, must be replaced to get the
// credentials that their ServiceAccount asks for.
func Outdated(pods map[injected.State]int) int {
	n := 0
	for _, state := range States() {
		if state.Outdated {
			n += pods[state.State]
		}
	}
	return n
}

// pod is a running pod of a namespace, and its state.
type pod struct {
	name, serviceAccount string
	owner                *metav1.OwnerReference
	verdict
	// running is the pod itself. status keeps it only until the state is known: a large cluster has
	// very many pods.
	running *running
}

// verdict is the state of a running pod, and what is known about it.
type verdict struct {
	injected.Comparison
	// Shadows are findings about variables that make SDKs ignore the credentials, if the pod has any.
	Shadows []mutate.Finding
	// Problem says why the state is unknown, and Local why the API server was not asked about a pod
	// that differs from a new one.
	Problem, Local string
	// Ask reports whether a dry run may give a more precise answer.
	Ask bool
}

// running is the JSON of a running pod, and what its state depends on.
type running struct {
	*Namespace
	// comparer compares the pods of its ServiceAccount, or is nil if the ServiceAccount was not
	// read. asks reports whether the ServiceAccount asks for an identity.
	comparer            *injected.Comparer
	asks                bool
	text                []byte
	labels, annotations map[string]string
	// unchanged is the parameter of Comparer.Compare.
	unchanged bool
}

// newPod returns a running pod with its state, as far as it is known without a dry run. It returns an
// error only if the object is not a pod.
func (n *Namespace) newPod(object metav1.Object, serviceAccount string) (*pod, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	r := &running{Namespace: n, text: text, labels: object.GetLabels(), annotations: object.GetAnnotations()}
	if found := n.accounts[serviceAccount]; found != nil {
		read := n.serviceAccount(serviceAccount)
		if n.comparers[serviceAccount] == nil {
			n.comparers[serviceAccount] = injected.NewComparer(n.Settings, accountOf(&n.ObjectMeta, read), annotations.NamespaceObject(&n.ObjectMeta))
		}
		r.comparer, r.asks, r.unchanged = n.comparers[serviceAccount], n.AskForIdentity(read.Annotations), cluster.IsUnchanged(object, found.unchanged)
	}
	p := &pod{name: object.GetName(), serviceAccount: serviceAccount, owner: cluster.ControllerOf("Pod", object), running: r}
	if p.verdict, err = r.judge(); err != nil {
		return nil, err
	}
	return p, p.shadow()
}

// judge returns the state of the pod by the rules of the webhook.
func (r *running) judge() (v verdict, err error) {
	wasInjected := r.annotations[annotations.Injected] != ""
	if selection, _ := r.ParsePod(r.annotations, r.labels[annotations.Inject]); selection.OptOut && !wasInjected {
		v.State = injected.OptedOut
		return v, nil
	}
	v.State = injected.Unknown
	if r.comparer != nil {
		if v.Comparison, err = r.comparer.Compare(r.text, r.unchanged); err != nil {
			return v, err
		}
	}
	called, certain := r.calls(r.labelsAtCreation())
	switch {
	case v.State == injected.OptedOut && !wasInjected:
	case !called:
		v.Comparison = injected.Comparison{State: injected.Excluded}
	case v.State == injected.OptedOut: // since its creation
		v.State, v.Ask = injected.Stale, true
	case r.comparer == nil, r.unread: // only the cluster knows
		v.Ask = true
	case v.Denial != nil:
		v.Problem, v.Ask = "a new pod is denied: "+v.Denial.Error(), true
	case v.Decision.Reason == reason.NoIdentity && len(v.Differences) > 0: // of a webhook that is not adopted yet
		v.State, v.Differences, v.Ask = injected.None, nil, v.OfOthers
	case v.State == injected.Without && !certain:
		v.State, v.Problem, v.Ask = injected.Unknown, "the webhook has matchConditions, which only the API server evaluates", true
	default:
		v.Ask = v.State == injected.Stale || v.State == injected.Without || v.OfOthers
	}
	return v, nil
}

// shadow looks for variables that make SDKs ignore the credentials of the pod, also in the ConfigMaps
// that were read.
func (p *pod) shadow() (err error) {
	if p.Decision != nil {
		p.Shadows, err = p.running.variables.shadows(p.running.text, p.Decision)
		p.settle(p.Comparison)
	}
	return err
}

// settle sets the result of a comparison, perhaps with a pod of the API server. A current pod is
// shadowed if SDKs may ignore its credentials.
func (v *verdict) settle(c injected.Comparison) {
	if v.Comparison = c; v.State == injected.Current && len(v.Shadows) > 0 {
		v.State = Shadowed
	}
}

// answered sets the state according to the answer about a new pod, if that is more precise. fresh
// is the pod of the answer, or nil if it adds nothing to the rules: without a template, a pod that
// was evaluated here is the one that judge has compared.
func (p *pod) answered(answer *Answer, fresh *injected.Pod) error {
	n, unknown := p.running.Namespace, injected.Comparison{State: injected.Unknown}
	switch denial := answer.Denial; {
	case answer.Err != nil:
		p.Comparison, p.Problem = unknown, "the credentials of a new pod are unknown: "+answer.Err.Error()
	case denial.isOthers() && answer.Local == "" && !n.unread && p.running.asks: // otherwise there may be no ServiceAccount
		p.Local = "the pod of the dry run was denied, but not by Lanyard: " + denial.Error()
	case denial != nil:
		p.Comparison, p.Problem = unknown, "a new pod is denied: "+denial.Error()
	case fresh == nil:
		p.Local = answer.Local
	default:
		live, err := injected.Read(json.RawMessage(p.running.text), n.Settings)
		if err != nil {
			return err
		}
		p.settle(live.Against(fresh))
		p.Problem, p.Local = "", answer.Local
		if p.State == injected.Unknown && p.running.comparer != nil && !p.running.asks {
			p.State = injected.None
		} else if p.State == injected.Unknown {
			p.Problem = "a new pod has no credentials from Lanyard, as if it were not called: see lanyard explain"
		}
	}
	return nil
}

// original returns the pod as it was before Lanyard or another webhook gave it credentials,
// for a dry run.
func (p *pod) original() (*unstructured.Unstructured, error) {
	original := &unstructured.Unstructured{}
	if err := json.Unmarshal(p.running.text, &original.Object); err != nil {
		return nil, err
	}
	var identities []annotations.Identity
	if p.Decision != nil {
		identities = p.Decision.Identities
	}
	if err := injected.RemoveAll(original.Object, p.running.Settings, p.running.unchanged, identities); err != nil {
		return nil, err
	}
	name, given, values := original.GetName(), original.GetLabels(), original.GetAnnotations()
	original.Object["metadata"] = map[string]any{}
	original.SetGenerateName(name + "-")
	original.SetLabels(given)
	original.SetAnnotations(values)
	delete(original.Object, "status")
	unstructured.RemoveNestedField(original.Object, "spec", "ephemeralContainers")
	return original, nil
}

// labelsAtCreation returns the labels of the pod before the injection, which the
// objectSelector matched.
func (r *running) labelsAtCreation() map[string]string {
	if r.annotations[annotations.Injected] == "" || r.labels[annotations.IdentityLabel] != annotations.IdentityInjected {
		return r.labels
	}
	labels := maps.Clone(r.labels)
	delete(labels, annotations.IdentityLabel)
	return labels
}
