// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings creates the settings of the injection. lanyard-webhook, lanyard and
// programs that embed the webhooks call New once per load.
//
// The package also reads the file of --config: settings by the names of the flags, custom
// providers and identity mappings. Custom providers become annotations.Providers, like the
// built-in ones. Errors contain line numbers.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Default returns the defaults of all flags, for New.
func Default() *annotations.Settings {
	s := &annotations.Settings{
		TokenExpirationSeconds: annotations.DefaultTokenExpirationSeconds, TokenMountPath: annotations.DefaultTokenMountPath,
		TokenPathPrefixes: annotations.TokenPathPrefixes(), Parameters: map[string]string{},
		ExcludedNamespaces: []string{"kube-system"},
	}
	for _, p := range Parameters(provider.Builtin()) {
		s.Parameters[p.Key] = p.Default
	}
	return s
}

// maxImageBytes is longer than any image name with a registry, a tag and a digest.
const maxImageBytes = 512

// New completes the written settings with the providers and mappings of the file, which may
// be nil, and with the defaults of flags. It does not change written. New reports all
// mistakes at once, each with the name of its flag.
func New(written *annotations.Settings, file *File) (*annotations.Settings, []error) {
	s, builtin := *written, provider.Builtin()
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
	check("token-mount-path", annotations.ValidateTokenMountPath(s.TokenMountPath))
	for _, prefix := range s.TokenPathPrefixes {
		check("token-path-prefixes", annotations.ValidateTokenPathPrefix(prefix))
	}
	if err := annotations.ValidateTokenExpirationSeconds(s.TokenExpirationSeconds, 0); err != nil {
		check("token-expiration-seconds", fmt.Errorf("got %d: %w", s.TokenExpirationSeconds, err))
	}
	if globs := strings.Join(written.AllowedIdentities, ","); globs != "" {
		if s.AllowedIdentities, err = annotations.ParseDefaultAllowedIdentities(globs); err != nil {
			check("default-allowed-identities", fmt.Errorf("got %q: %w", globs, err))
		}
	}
	if image := s.VerifyImage; len(image) > maxImageBytes || !texts.IsVisible(image) {
		check("verify-image", fmt.Errorf("got %q, want the name of an image, at most %d visible ASCII characters", texts.Cut(image, texts.MaxShown), maxImageBytes))
	}
	for _, name := range s.ExcludedNamespaces {
		if problems := apivalidation.IsDNS1123Label(name); len(problems) > 0 {
			check("excluded-namespaces", fmt.Errorf("got %q: %s", name, strings.Join(problems, "; ")))
		}
	}
	s.Parameters = map[string]string{}
	maps.Copy(s.Parameters, file.Parameters)
	maps.Copy(s.Parameters, written.Parameters)
	for _, p := range Parameters(builtin) {
		check(p.Flag, p.set(s.Parameters))
	}
	check("adopt", adopt(&s))
	if known != nil {
		s.Providers = known.Providers
		s.Mappings, err = file.mappings(&s)
		check("config", err)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return &s, nil
}

// adopt sets the values that depend on the adopted peers.
func adopt(s *annotations.Settings) error {
	found, err := peer.Named(s.Peers)
	s.Peers = nil
	for _, p := range found {
		if p.Requires != "" && s.Parameters[p.Requires] == "" {
			return fmt.Errorf("%s needs the cluster's default of the annotation %s", p.Name, p.Requires)
		}
		s.Peers = append(s.Peers, p.Name)
	}
	s.PeerContainers, s.PeerTokens = peer.Rules(found)
	return err
}
