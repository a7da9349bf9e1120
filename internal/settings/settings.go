// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings makes the settings of the injection. lanyard-webhook,
// lanyard and programs that embed the webhooks make them here, and pass one pointer on.
//
// The package also reads the file of --config: settings by the names of the flags,
// custom providers and identity mappings. A custom provider becomes a
// provider.Definition, like the built-in ones: no other package knows the difference.
// Each mistake has the line that it is in.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

// Settings decide about the injection. Make them with New. They do not change.
type Settings struct {
	// Keys are the annotation keys, with the keys of the custom providers.
	Keys *annotations.Keys
	// Defaults apply where an annotation is not set.
	Defaults *annotations.Defaults
	// Mappings give annotations to ServiceAccounts, in the order of their precedence.
	Mappings []*annotations.Mapping
	// Peers are other programs whose annotations are translated.
	Peers []*peer.Peer
	// ExcludedNamespaces are the namespaces that the webhook is not called for.
	ExcludedNamespaces []string
}

// Excludes reports whether the webhook is not called for a namespace with this value of the
// label Keys.Inject, as the settings and the label have it.
func (s *Settings) Excludes(namespace, label string) bool {
	return label == annotations.LabelDisabled || label == annotations.OptOut || slices.Contains(s.ExcludedNamespaces, namespace)
}

// Values are the values of the settings before they are checked: flags, and a
// configuration file.
type Values struct {
	// AnnotationPrefix starts every key.
	AnnotationPrefix string
	// Defaults have the parameters as they are written. A parameter that is not there
	// has the default of its flag.
	Defaults annotations.Defaults
	// DefaultAllowedIdentities overrides Defaults.AllowedIdentities. It has globs,
	// separated by commas.
	DefaultAllowedIdentities string
	// Adopt names the peers whose annotations are translated.
	Adopt []string
	// ExcludedNamespaces are the namespaces that the webhook is not called for.
	ExcludedNamespaces []string
	// File has custom providers and identity mappings; nil for none.
	File *File
}

// Default returns the values that flags have by default.
func Default() Values {
	values := Values{
		AnnotationPrefix: annotations.DefaultPrefix,
		Defaults: annotations.Defaults{
			TokenExpirationSeconds: annotations.DefaultTokenExpirationSeconds, TokenMountPath: provider.DefaultTokenMountPath,
			TokenPathPrefixes: provider.TokenPathPrefixes(), Parameters: map[string]string{},
		},
		ExcludedNamespaces: []string{"kube-system"},
	}
	for _, p := range Parameters(provider.Builtin()) {
		values.Defaults.Parameters[p.Key] = p.Default
	}
	return values
}

// New checks the values. It reports all mistakes at once, each with the name of the
// flag that sets the value.
func New(v *Values) (*Settings, []error) {
	file, providers, defaults := v.File, provider.Builtin(), v.Defaults
	if file == nil {
		file = new(File)
	}
	var errs []error
	check := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	keys, err := annotations.NewKeys(v.AnnotationPrefix, slices.Concat(providers, file.Providers))
	check("annotation-prefix", err)
	validKeys := err == nil
	s := &Settings{Keys: &keys, Defaults: &defaults, ExcludedNamespaces: v.ExcludedNamespaces}
	check("token-mount-path", provider.ValidateTokenMountPath(defaults.TokenMountPath))
	for _, prefix := range defaults.TokenPathPrefixes {
		check("token-path-prefixes", provider.ValidateTokenPathPrefix(prefix))
	}
	if err := annotations.ValidateTokenExpirationSeconds(defaults.TokenExpirationSeconds, 0); err != nil {
		check("token-expiration-seconds", fmt.Errorf("got %d: %w", defaults.TokenExpirationSeconds, err))
	}
	if globs := v.DefaultAllowedIdentities; globs != "" {
		if defaults.AllowedIdentities, err = annotations.ParseDefaultAllowedIdentities(globs); err != nil {
			check("default-allowed-identities", fmt.Errorf("got %q: %w", globs, err))
		}
	}
	for _, name := range v.ExcludedNamespaces {
		if problems := apivalidation.IsDNS1123Label(name); len(problems) > 0 {
			check("excluded-namespaces", fmt.Errorf("got %q: %s", name, strings.Join(problems, "; ")))
		}
	}
	defaults.Parameters = map[string]string{}
	maps.Copy(defaults.Parameters, file.Parameters)
	maps.Copy(defaults.Parameters, v.Defaults.Parameters)
	for _, p := range Parameters(providers) {
		check(p.Flag, p.set(defaults.Parameters))
	}
	if validKeys {
		s.Mappings, err = file.Mappings(s.Keys, s.Defaults)
		check("config", err)
	}
	s.Peers, err = peers(v.Adopt, s.Defaults)
	check("adopt", err)
	keys.PeerContainers, keys.PeerTokens = peer.Rules(s.Peers)
	if len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

// peers returns the peers of these names.
func peers(names []string, defaults *annotations.Defaults) ([]*peer.Peer, error) {
	found, err := peer.Named(names)
	for _, p := range found {
		if p.Requires != "" && defaults.Parameters[p.Requires] == "" {
			return nil, fmt.Errorf("%s needs the cluster's default of the annotation %s", p.Name, p.Requires)
		}
	}
	return found, err
}
