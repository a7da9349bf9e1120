// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

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

// Running is a running pod with the facts about its cluster that Judge needs.
type Running struct {
	*annotations.Settings
	// Comparer compares the pods of its ServiceAccount, or is nil if the ServiceAccount was
	// not read.
	Comparer *injected.Comparer
	// Pod is the JSON of the pod, and Labels and Annotations are its metadata.
	Pod                 []byte
	Labels, Annotations map[string]string
	// Called reports whether Lanyard is called for the namespace, and Registration is the webhook
	// configuration, or nil if it was not read.
	Called       bool
	Registration *admissionregistrationv1.MutatingWebhookConfiguration
	// Unchanged is the parameter of injected.Compare.
	Unchanged bool
	// Unread reports whether the settings are only the built-in defaults.
	Unread bool
	// Variables are the variables that containers take from ConfigMaps, as far as they are known.
	Variables ConfigMaps
}

// Verdict is the state of a running pod.
type Verdict struct {
	injected.Comparison
	// Shadows are the findings about variables because of which SDKs ignore the credentials, if
	// the pod has them.
	Shadows []mutate.Finding
	// Problem says why the state is unknown.
	Problem string
	// Ask reports whether a dry run may give a more precise answer.
	Ask bool
}

// Judge returns the state of a running pod, without asking the API server. It returns an error only
// if the JSON is not a pod.
func (r *Running) Judge() (Verdict, error) {
	if selection, _ := r.ParsePod(r.Annotations, r.Labels[annotations.Inject]); selection.OptOut {
		return Verdict{Comparison: injected.Comparison{State: injected.OptedOut}}, nil
	}
	v := Verdict{Comparison: injected.Comparison{State: injected.Unknown}, Ask: true}
	if r.Comparer != nil {
		compared, err := r.Comparer.Compare(r.Pod, r.Unchanged)
		if err != nil {
			return Verdict{}, err
		}
		v.Comparison = compared
		if v.Decision != nil {
			if v.Shadows, err = r.Variables.Shadows(r.Pod, v.Decision); err != nil {
				return Verdict{}, err
			}
		}
	}
	selected, certain := cluster.Selects(r.Registration, r.labelsAtCreation())
	switch {
	case v.State == injected.OptedOut:
		v.Ask = false
	case !r.Called || !selected:
		v = Verdict{Comparison: injected.Comparison{State: injected.Excluded}}
	case r.Comparer == nil, r.Unread: // only the cluster knows
	case v.Denial != nil:
		v.Problem = "a new pod is denied: " + v.Denial.Error()
	case v.Decision.Reason == reason.NoIdentity && len(v.Differences) > 0: // of a webhook that is not adopted yet
		v.State, v.Differences, v.Ask = injected.None, nil, false
	case v.State == injected.Without && !certain:
		v.State, v.Problem = injected.Unknown, "the webhook has matchConditions, which only the API server evaluates"
	case v.State != injected.Stale && v.State != injected.Without && !v.OfOthers:
		v.Ask = false
		v.Settle(v.Comparison)
	}
	return v, nil
}

// Settle sets the result of a comparison, perhaps with a pod of the API server. A current pod is
// shadowed if SDKs may ignore its credentials.
func (v *Verdict) Settle(c injected.Comparison) {
	if v.Comparison = c; v.State == injected.Current && len(v.Shadows) > 0 {
		v.State = Shadowed
	}
}

// labelsAtCreation returns the labels of the pod without Lanyard's, as the objectSelector saw
// them before the injection.
func (r *Running) labelsAtCreation() map[string]string {
	if r.Annotations[annotations.Injected] == "" || r.Labels[annotations.IdentityLabel] != annotations.IdentityInjected {
		return r.Labels
	}
	labels := map[string]string{}
	for key, value := range r.Labels {
		if key != annotations.IdentityLabel {
			labels[key] = value
		}
	}
	return labels
}

// ConfigMaps contains the variables in the ConfigMaps of a namespace, by the names of the ConfigMaps.
// It contains only variables that may make SDKs ignore an identity.
type ConfigMaps map[string]map[string]string

// container contains the fields of a container that refer to variables in other objects.
type container struct {
	Name    string     `json:"name"`
	Env     []variable `json:"env"`
	EnvFrom []source   `json:"envFrom"`
}

type variable struct {
	Name string `json:"name"`
}

// source is an object whose keys are variables of a container.
type source struct {
	Prefix       string    `json:"prefix"`
	ConfigMapRef *variable `json:"configMapRef"`
	SecretRef    *variable `json:"secretRef"`
}

// containers returns the containers of a pod in JSON.
func containers(pod []byte) ([]container, error) {
	var read struct {
		Spec struct {
			InitContainers []container `json:"initContainers"`
			Containers     []container `json:"containers"`
		} `json:"spec"`
	}
	err := json.Unmarshal(pod, &read)
	return slices.Concat(read.Spec.InitContainers, read.Spec.Containers), err
}

// Sources returns the names of the ConfigMaps and of the Secrets whose keys are variables of a
// container of the pod.
func Sources(pod []byte) (configMaps, secrets []string, err error) {
	if !bytes.Contains(pod, []byte(`"envFrom"`)) { // as in most pods, which are then not decoded
		return nil, nil, nil
	}
	list, err := containers(pod)
	for _, c := range list {
		for _, from := range c.EnvFrom {
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
func (m ConfigMaps) of(c *container, identities []annotations.Identity) (found []mutate.Finding) {
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
func (m ConfigMaps) finding(c *container, name string, identity *annotations.Identity) *mutate.Finding {
	p := identity.Provider
	var names []string
	for _, shadow := range p.Shadows {
		value, found := m[name][shadow.Name]
		own := slices.ContainsFunc(c.Env, func(v variable) bool { return v.Name == shadow.Name })
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
