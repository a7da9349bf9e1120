// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// configMaps contains the variables in the ConfigMaps of a namespace, by the names of the ConfigMaps.
// It contains only variables that may make SDKs ignore an identity.
type configMaps map[string]map[string]string

// containers returns the containers of a pod in JSON.
func containers(pod []byte) ([]corev1.Container, error) {
	var read corev1.Pod
	err := json.Unmarshal(pod, &read)
	return slices.Concat(read.Spec.InitContainers, read.Spec.Containers), err
}

// sourcesOf returns the names of the ConfigMaps and of the Secrets whose keys are variables of a
// container of the pod.
func sourcesOf(pod []byte) (configMaps, secrets []string, err error) {
	if !bytes.Contains(pod, []byte(`"envFrom"`)) { // as in most pods, which then need not be decoded
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

// add adds the relevant variables of a ConfigMap.
func (m configMaps) add(s *annotations.Settings, name string, data map[string]string) {
	m[name] = map[string]string{}
	for _, p := range s.Providers {
		for _, shadow := range p.Shadows {
			if value, found := data[shadow.Name]; found && shadow.Harms(value, false) {
				m[name][shadow.Name] = value
			}
		}
	}
}

// shadows returns the findings about variables that make SDKs ignore the credentials: those of the
// decision about a pod, and those about ConfigMaps. pod is JSON.
func (m configMaps) shadows(pod []byte, d *mutate.Decision) ([]mutate.Finding, error) {
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
func (m configMaps) of(c *corev1.Container, identities []annotations.Identity) (found []mutate.Finding) {
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
func (m configMaps) finding(c *corev1.Container, name string, identity *annotations.Identity) *mutate.Finding {
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
