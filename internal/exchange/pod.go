// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// FromPod returns what an injected pod has for a provider: the audience of its
// token, its variables and its credential file.
func FromPod(pod *corev1.Pod, keys *annotations.Keys, name string) (provider.Provider, error) {
	index := slices.IndexFunc(keys.Providers, func(d *provider.Definition) bool { return d.Name == name })
	if index < 0 {
		return provider.Provider{}, fmt.Errorf("got provider %q, want one that Lanyard has", name)
	}
	d := keys.Providers[index]
	injected := pod.Annotations[keys.Injected]
	if !slices.Contains(strings.Split(injected, ","), name) {
		return provider.Provider{}, fmt.Errorf("annotation %s of the pod: got %q, want it to contain %s", keys.Injected, injected, name)
	}
	p := provider.Provider{Name: name}
	if file := d.CredentialFile; file != nil {
		if content, found := pod.Annotations[keys.Prefix+file.Annotation]; found {
			p.File = provider.File{Annotation: file.Annotation, Path: file.Path, Content: content}
		}
	}
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.Name == mutate.VolumeName || volume.Name == mutate.FallbackVolumeName {
			p.Token = tokenOf(volume, d.TokenPath, p.Token)
		}
	}
	if p.Token.Audience == "" {
		return provider.Provider{}, fmt.Errorf("volumes of the pod: got no token with the path %s", d.TokenPath)
	}
	if len(pod.Spec.Containers) == 0 {
		return provider.Provider{}, errors.New("pod: got no container, want one")
	}
	for _, v := range pod.Spec.Containers[0].Env { // all containers have the same
		if v.ValueFrom == nil && slices.ContainsFunc(d.Variables, func(known provider.Variable) bool { return known.Name == v.Name }) {
			p.Variables = append(p.Variables, provider.EnvVar{Name: v.Name, Value: v.Value})
		}
	}
	return p, nil
}

// tokenOf returns the token with the path in the volume, or otherwise.
func tokenOf(volume *corev1.Volume, path string, otherwise provider.Token) provider.Token {
	if volume.Projected == nil {
		return otherwise
	}
	for i := range volume.Projected.Sources {
		if t := volume.Projected.Sources[i].ServiceAccountToken; t != nil && t.Path == path {
			token := provider.Token{Audience: t.Audience, Path: t.Path}
			if t.ExpirationSeconds != nil {
				token.ExpirationSeconds = *t.ExpirationSeconds
			}
			return token
		}
	}
	return otherwise
}
