// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

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

// Outdated returns how many pods must be replaced to get the credentials that their ServiceAccount
// asks for, of pods by state.
func Outdated(pods map[injected.State]int) int {
	n := 0
	for _, state := range States() {
		if state.Outdated {
			n += pods[state.State]
		}
	}
	return n
}

// running is a running pod of a namespace.
type running struct {
	*Namespace
	// comparer compares the pods of its ServiceAccount, or is nil if the ServiceAccount was not
	// read.
	comparer *injected.Comparer
	// pod is the JSON of the pod, and labels and annotations are its metadata.
	pod                 []byte
	labels, annotations map[string]string
	// unchanged is the parameter of injected.Compare.
	unchanged bool
}

// verdict is the state of a running pod.
type verdict struct {
	injected.Comparison
	// Shadows are findings about variables that make SDKs ignore the credentials. They are set
	// only if the pod has credentials.
	Shadows []mutate.Finding
	// Problem says why the state is unknown.
	Problem string
	// Ask reports whether a dry run may give a more precise answer.
	Ask bool
}

// judge returns the state of a running pod, without asking the API server. It returns an error only
// if the JSON is not a pod.
func (r *running) judge() (verdict, error) {
	if selection, _ := r.ParsePod(r.annotations, r.labels[annotations.Inject]); selection.OptOut {
		return verdict{Comparison: injected.Comparison{State: injected.OptedOut}}, nil
	}
	v := verdict{Comparison: injected.Comparison{State: injected.Unknown}, Ask: true}
	if r.comparer != nil {
		compared, err := r.comparer.Compare(r.pod, r.unchanged)
		if err != nil {
			return verdict{}, err
		}
		v.Comparison = compared
		if v.Decision != nil {
			if v.Shadows, err = r.variables.Shadows(r.pod, v.Decision); err != nil {
				return verdict{}, err
			}
		}
	}
	selected, certain := cluster.Selects(r.registration, r.labelsAtCreation())
	switch {
	case v.State == injected.OptedOut:
		v.Ask = false
	case !r.called || !selected:
		v = verdict{Comparison: injected.Comparison{State: injected.Excluded}}
	case r.comparer == nil, r.unread: // only the cluster knows
	case v.Denial != nil:
		v.Problem = "a new pod is denied: " + v.Denial.Error()
	case v.Decision.Reason == reason.NoIdentity && len(v.Differences) > 0: // of a webhook that is not adopted yet
		v.State, v.Differences, v.Ask = injected.None, nil, false
	case v.State == injected.Without && !certain:
		v.State, v.Problem = injected.Unknown, "the webhook has matchConditions, which only the API server evaluates"
	case v.State != injected.Stale && v.State != injected.Without && !v.OfOthers:
		v.Ask = false
		v.settle(v.Comparison)
	}
	return v, nil
}

// settle sets the result of a comparison, perhaps with a pod of the API server. A current pod is
// shadowed if SDKs may ignore its credentials.
func (v *verdict) settle(c injected.Comparison) {
	if v.Comparison = c; v.State == injected.Current && len(v.Shadows) > 0 {
		v.State = Shadowed
	}
}

// labelsAtCreation returns the labels of the pod without Lanyard's, as the objectSelector saw
// them before the injection.
func (r *running) labelsAtCreation() map[string]string {
	if r.annotations[annotations.Injected] == "" || r.labels[annotations.IdentityLabel] != annotations.IdentityInjected {
		return r.labels
	}
	labels := map[string]string{}
	for key, value := range r.labels {
		if key != annotations.IdentityLabel {
			labels[key] = value
		}
	}
	return labels
}

// ConfigMaps contains the variables in the ConfigMaps of a namespace, by the names of the ConfigMaps.
// It contains only variables that may make SDKs ignore an identity.
type ConfigMaps map[string]map[string]string

// containers returns the containers of a pod in JSON.
func containers(pod []byte) ([]corev1.Container, error) {
	var read corev1.Pod
	err := json.Unmarshal(pod, &read)
	return slices.Concat(read.Spec.InitContainers, read.Spec.Containers), err
}

// sourcesOf returns the names of the ConfigMaps and of the Secrets whose keys are variables of a
// container of the pod.
func sourcesOf(pod []byte) (configMaps, secrets []string, err error) {
	if !bytes.Contains(pod, []byte(`"envFrom"`)) { // as in most pods, which are then not decoded
		return nil, nil, nil
	}
	list, err := containers(pod)
	for i := range list {
		for _, from := range list[i].EnvFrom {
			switch {
			case from.ConfigMapRef != nil && !slices.Contains(configMaps, from.ConfigMapRef.Name):
				configMaps = append(configMaps, from.ConfigMapRef.Name)
			case from.SecretRef != nil && !slices.Contains(secrets, from.SecretRef.Name):
				secrets = append(secrets, from.SecretRef.Name)
			}
		}
	}
	return configMaps, secrets, err
}

// Add adds the relevant variables of a ConfigMap.
func (m ConfigMaps) Add(s *annotations.Settings, name string, data map[string]string) {
	m[name] = map[string]string{}
	for _, p := range s.Providers {
		for _, shadow := range p.Shadows {
			if value, found := data[shadow.Name]; found && shadow.Harms(value, false) {
				m[name][shadow.Name] = value
			}
		}
	}
}

// Shadows returns the findings about variables that make SDKs ignore the credentials: those of the
// decision about a pod, and those about ConfigMaps. pod is JSON.
func (m ConfigMaps) Shadows(pod []byte, d *mutate.Decision) ([]mutate.Finding, error) {
	var found []mutate.Finding
	for _, f := range d.Findings {
		if f.Reason == reason.EnvironmentShadowed {
			found = append(found, f)
		}
	}
	if len(m) == 0 {
		return found, nil
	}
	list, err := containers(pod)
	if err != nil {
		return found, err
	}
	for i := range list {
		c := &list[i]
		if !slices.ContainsFunc(d.Findings, func(f mutate.Finding) bool { return f.Container == c.Name && f.Reason == reason.ContainerNotSelected }) {
			found = append(found, m.of(c, d.Identities)...)
		}
	}
	return found, nil
}

// of returns the findings about the ConfigMaps used by one container.
func (m ConfigMaps) of(c *corev1.Container, identities []annotations.Identity) (found []mutate.Finding) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil || from.Prefix != "" {
			continue
		}
		for i := range identities {
			if f := m.finding(c, from.ConfigMapRef.Name, &identities[i]); f != nil {
				found = append(found, *f)
			}
		}
	}
	return found
}

// finding returns the finding about the variables of one ConfigMap that shadow an identity, or nil.
// A container's own variable hides the variable of the ConfigMap.
func (m ConfigMaps) finding(c *corev1.Container, name string, identity *annotations.Identity) *mutate.Finding {
	p := identity.Provider
	var names []string
	for _, shadow := range p.Shadows {
		value, found := m[name][shadow.Name]
		own := slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == shadow.Name })
		profile := p.Profiles != nil && slices.Contains(p.Profiles.Selectors, shadow.Name) &&
			slices.ContainsFunc(identity.Profiles, func(p annotations.Profile) bool { return p.Name == value })
		if found && !own && !profile && !identity.TokenAlone {
			names = append(names, shadow.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names, ", ")
	return &mutate.Finding{
		Reason: reason.EnvironmentShadowed, Container: c.Name, Field: "envFrom[" + name + "]",
		Detail: "it takes " + list + " from the ConfigMap " + name + ", which SDKs may prefer to the injected " + p.Name + " identity",
		Fix:    "Remove " + list + " from the ConfigMap " + name + ".",
	}
}
