// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings makes the settings of the injection. lanyard-webhook,
// lanyard and programs that embed the webhooks make them here, and pass one pointer on.
//
// The package also reads the file of --config: settings by the names of the flags,
// custom providers and identity mappings. A custom provider becomes a
// annotations.Provider, like the built-in ones: no other package knows the difference.
// Each mistake has the line that it is in.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Settings decide about the injection. Make them with New. They do not change.
type Settings struct {
	*annotations.Settings

	// Peers are other programs whose annotations are translated.
	Peers []*peer.Peer
}

// Values are the values of the settings before they are checked: flags, and a
// configuration file.
type Values struct {
	// Defaults have the parameters as they are written. A parameter that is not there
	// has the default of its flag.
	Defaults annotations.Settings
	// DefaultAllowedIdentities sets AllowedIdentities. It has globs,
	// separated by commas.
	DefaultAllowedIdentities string
	// Adopt names the peers whose annotations are translated.
	Adopt []string
	// File has custom providers and identity mappings; nil for none.
	File *File
}

// Default returns the values that flags have by default.
func Default() Values {
	values := Values{Defaults: annotations.Settings{
		TokenExpirationSeconds: annotations.DefaultTokenExpirationSeconds, TokenMountPath: annotations.DefaultTokenMountPath,
		TokenPathPrefixes: annotations.TokenPathPrefixes(), Parameters: map[string]string{},
		ExcludedNamespaces: []string{"kube-system"},
	}}
	for _, p := range Parameters(provider.Builtin()) {
		values.Defaults.Parameters[p.Key] = p.Default
	}
	return values
}

// New checks the values. It reports all mistakes at once, each with the name of the
// flag that sets the value.
func New(v *Values) (*Settings, []error) {
	file, builtin, defaults := v.File, provider.Builtin(), v.Defaults
	if file == nil {
		file = new(File)
	}
	var errs []error
	check := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	known, err := annotations.NewSettings(slices.Concat(builtin, file.Providers))
	check("config", err)
	check("token-mount-path", annotations.ValidateTokenMountPath(defaults.TokenMountPath))
	for _, prefix := range defaults.TokenPathPrefixes {
		check("token-path-prefixes", annotations.ValidateTokenPathPrefix(prefix))
	}
	if err := annotations.ValidateTokenExpirationSeconds(defaults.TokenExpirationSeconds, 0); err != nil {
		check("token-expiration-seconds", fmt.Errorf("got %d: %w", defaults.TokenExpirationSeconds, err))
	}
	if globs := v.DefaultAllowedIdentities; globs != "" {
		if defaults.AllowedIdentities, err = annotations.ParseDefaultAllowedIdentities(globs); err != nil {
			check("default-allowed-identities", fmt.Errorf("got %q: %w", globs, err))
		}
	}
	for _, name := range defaults.ExcludedNamespaces {
		if problems := apivalidation.IsDNS1123Label(name); len(problems) > 0 {
			check("excluded-namespaces", fmt.Errorf("got %q: %s", name, strings.Join(problems, "; ")))
		}
	}
	defaults.Parameters = map[string]string{}
	maps.Copy(defaults.Parameters, file.Parameters)
	maps.Copy(defaults.Parameters, v.Defaults.Parameters)
	for _, p := range Parameters(builtin) {
		check(p.Flag, p.set(defaults.Parameters))
	}
	found, err := peers(v.Adopt, &defaults)
	check("adopt", err)
	defaults.PeerContainers, defaults.PeerTokens = peer.Rules(found)
	if known != nil {
		defaults.Providers = known.Providers
		defaults.Mappings, err = file.Mappings(&defaults)
		check("config", err)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return &Settings{Settings: &defaults, Peers: found}, nil
}

// peers returns the peers of these names.
func peers(names []string, defaults *annotations.Settings) ([]*peer.Peer, error) {
	found, err := peer.Named(names)
	for _, p := range found {
		if p.Requires != "" && defaults.Parameters[p.Requires] == "" {
			return nil, fmt.Errorf("%s needs the cluster's default of the annotation %s", p.Name, p.Requires)
		}
	}
	return found, err
}
