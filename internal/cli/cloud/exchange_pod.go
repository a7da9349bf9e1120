// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

// FromPod returns the values that an injected pod has for a provider: the audience of its
// token, its variables and its credential file.
func FromPod(pod *injected.Pod, keys *annotations.Keys, name string) (provider.Provider, error) {
	index := slices.IndexFunc(keys.Providers, func(d *provider.Definition) bool { return d.Name == name })
	if index < 0 {
		return provider.Provider{}, fmt.Errorf("got provider %q, want one that Lanyard has", name)
	}
	d := keys.Providers[index]
	if !slices.Contains(pod.Providers, name) {
		return provider.Provider{}, fmt.Errorf("annotation %s of the pod: got %q, want it to contain %s", keys.Injected, strings.Join(pod.Providers, ","), name)
	}
	p := provider.Provider{Name: name}
	if content, found := pod.Files[name]; found {
		p.File = provider.File{Annotation: d.CredentialFile.Annotation, Path: d.CredentialFile.Path, Content: content}
	}
	at := slices.IndexFunc(pod.Tokens, func(t injected.Token) bool { return t.Provider == name })
	if at < 0 {
		return provider.Provider{}, fmt.Errorf("volumes of the pod: got no token with the path %s", d.TokenPath)
	}
	token := &pod.Tokens[at]
	p.Token = provider.Token{Audience: token.Audience, ExpirationSeconds: token.ExpirationSeconds, Path: token.Path}
	at = slices.IndexFunc(pod.Containers, func(c injected.Container) bool { return c.Kind == injected.Ordinary })
	if at < 0 {
		return provider.Provider{}, errors.New("pod: got no container, want one")
	}
	for _, v := range pod.Containers[at].Variables { // all containers have the same
		if v.From == nil && slices.ContainsFunc(d.Variables, func(known provider.Variable) bool { return known.Name == v.Name }) {
			p.Variables = append(p.Variables, provider.Variable{Name: v.Name, Value: v.Value})
		}
	}
	return p, nil
}
