// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Settings are the cluster-wide settings that decide about annotations: the providers, and
// defaults for annotations that are not set. Create them with NewSettings, or from a
// configuration file with mutate.ParseSettings. They may be used concurrently, and must not
// change while in use.
type Settings struct {
	// Providers are the providers that ServiceAccounts can ask for.
	Providers []*Provider

	// TokenExpirationSeconds is the default lifetime of tokens.
	TokenExpirationSeconds int64
	// Parameters are the values of the providers' parameters and audiences, by the
	// annotation key without the prefix, such as "aws-region". NamespaceVariable and
	// ServiceAccountVariable stand for names.
	Parameters map[string]string
	// AllowedIdentities are the globs for namespaces without a policy of their own.
	// NamespaceVariable stands for the namespace's name. Nil allows everything. See
	// ParseDefaultAllowedIdentities.
	AllowedIdentities []string
	// TokenMountPath is where the token volume is mounted. No copy of a token may be
	// there.
	TokenMountPath string
	// TokenPathPrefixes are the directories below which a copy of a token may be, each
	// with a slash at the end. Nil stands for TokenPathPrefixes.
	TokenPathPrefixes []string
	// ReservedAudiences are the audiences of the API server. No token may have one.
	ReservedAudiences []string
	// VerifyImage is the image of the init container for Verify, or empty if there is none.
	VerifyImage string
	// Mappings give annotations to ServiceAccounts, in the order of their precedence.
	Mappings []*Mapping
	// ExcludedNamespaces are the namespaces that the webhook is not called for.
	ExcludedNamespaces []string

	// Peers names the other webhooks whose ServiceAccount annotations are translated.
	Peers []string
	// PeerContainers are containers that an adopted webhook overwrites on each call, so that
	// Lanyard cannot inject them. The guard has the same rule.
	PeerContainers []string
	// PeerTokens lists the providers whose tokens another webhook injects in its own way,
	// keyed by the prefix of the pod annotation that, if "true", requests this.
	PeerTokens map[string]string
}

// MaxKeptBytes is an upper bound of the size of valid annotations, keys and values together,
// whatever the providers. Larger ones need not be kept.
const MaxKeptBytes = 32 << 10

// NewSettings returns settings without defaults. It sorts the providers by name, a plain one
// last. It returns an error if two annotations have the same key, or if all annotations
// together could exceed MaxKeptBytes.
func NewSettings(providers []*Provider) (*Settings, error) {
	s := &Settings{Providers: slices.SortedFunc(slices.Values(providers), func(a, b *Provider) int {
		switch {
		case a.Plain() == b.Plain():
			return cmp.Compare(a.Name, b.Name)
		case b.Plain():
			return -1
		}
		return 1
	})}
	seen := map[string]bool{Probe: true, AllowedIdentities: true, IdentityLabel: true, Adopted: true, Denied: true}
	for _, key := range slices.Concat([]string{Inject, Containers, SkipContainers}, s.Marks(), s.ServiceAccountKeys(), s.ProfileKeys()) {
		if seen[key] {
			return nil, fmt.Errorf("annotation %s has two meanings", key)
		}
		seen[key] = true
	}
	if size := s.MaxServiceAccountBytes(); size > MaxKeptBytes {
		return nil, fmt.Errorf("the annotations of all providers together may have %d bytes, want at most %d", size, MaxKeptBytes)
	}
	return s, nil
}

// Excludes reports whether the webhook is not called for a namespace with this value of the
// label Inject.
func (s *Settings) Excludes(namespace, label string) bool {
	return label == LabelDisabled || label == OptOut || slices.Contains(s.ExcludedNamespaces, namespace)
}

// PeerToken returns the provider of a PeerTokens annotation, or "".
func (s *Settings) PeerToken(key string) string {
	for start, name := range s.PeerTokens {
		if strings.HasPrefix(key, start) {
			return name
		}
	}
	return ""
}

// Key returns the annotation key of a provider's parameter, or of its "audience".
func Key(d *Provider, name string) string {
	return Prefix + d.Key(name)
}

// ServiceAccountKeys lists the keys that a user may set on a ServiceAccount.
func (s *Settings) ServiceAccountKeys() []string {
	var keys []string
	for _, d := range s.Providers {
		keys = append(keys, full(d.Keys())...)
	}
	return append(keys, Audience, Tokens, TokenExpirationSeconds, Verify)
}

// PodKeys lists the valid keys on a pod: first those for users, then those that Lanyard writes.
func (s *Settings) PodKeys() []string {
	return append([]string{Inject, Containers, SkipContainers, TokenExpirationSeconds}, s.Marks()...)
}

// Marks lists the keys that only Lanyard may write on a pod. The kubelet writes the
// values of some of them into credential files. "make generate" makes the chart's
// fence from this list.
func (s *Settings) Marks() []string {
	return append([]string{Injected}, s.files()...)
}

// files lists the keys whose values are credential files.
func (s *Settings) files() []string {
	var keys []string
	for _, d := range s.Providers {
		if d.CredentialFile != nil {
			keys = append(keys, Prefix+d.CredentialFile.Annotation)
		}
	}
	return keys
}

// full adds the prefix to keys.
func full(keys []string) []string {
	for i, key := range keys {
		keys[i] = Prefix + key
	}
	return keys
}

// TokenAlone lists the providers that the annotation Tokens may name.
func (s *Settings) TokenAlone() []string {
	var names []string
	for _, d := range s.Providers {
		if d.TokenAlone {
			names = append(names, d.Name)
		}
	}
	return names
}

// UnknownOnServiceAccount lists the keys under the prefix that a ServiceAccount cannot
// have, sorted.
func (s *Settings) UnknownOnServiceAccount(values map[string]string) []string {
	starts := s.ProfileKeys()
	for i := range starts {
		starts[i] = strings.TrimSuffix(starts[i], anyProfile)
	}
	return unknown(values, append(s.ServiceAccountKeys(), Adopted), starts...)
}

// unknown lists, sorted, the keys under the prefix that are neither known nor begin with one
// of starts.
func unknown(values map[string]string, known []string, starts ...string) []string {
	var unknown []string
	for key := range values {
		if strings.HasPrefix(key, Prefix) && !slices.Contains(known, key) && !startsWithAny(key, starts) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown) // a map has no order, a message needs one
	return unknown
}

// MaxAudienceBytes returns the length of the longest audience that any provider accepts.
func (s *Settings) MaxAudienceBytes() int {
	longest := 0
	for _, d := range s.Providers {
		longest = max(longest, d.MaxAudienceBytes)
	}
	return longest
}

// MaxServiceAccountBytes returns an upper bound for the annotations of a valid
// ServiceAccount, keys and values together. Longer ones are invalid and not kept.
func (s *Settings) MaxServiceAccountBytes() int {
	size := len("86400") + len(VerifyWait) + len(strings.Join(s.TokenAlone(), ", ")) + len(Adopted)
	for _, key := range s.ServiceAccountKeys() {
		size += 2*len(key) + len("=12345678,") // the second one is in Adopted, with a fingerprint
	}
	for _, d := range s.Providers {
		size += d.MaxAudienceBytes
		if d.Profiles != nil {
			size += MaxProfilesBytes
		}
		for i := range d.Parameters {
			if p := &d.Parameters[i]; !p.ClusterOnly {
				size += p.MaxBytes
			}
		}
	}
	return size
}

// tokens returns the providers that the annotation Tokens names. It returns none if the
// list contains an error.
func (s *Settings) tokens(annotations map[string]string) ([]string, error) {
	value, found := annotations[Tokens]
	if !found {
		return nil, nil
	}
	names, err := splitList(value)
	known := s.TokenAlone()
	if err != nil || slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(known, name) }) {
		return nil, fmt.Errorf("must be one or more of %s, separated by commas", strings.Join(known, ", "))
	}
	return names, nil
}

// Asked returns the providers that a ServiceAccount with these annotations asks for, by an
// identity or only a token, in the order of Settings.Providers. If it asks for any other
// provider, the annotation audience applies to that, and does not ask for a plain token.
func (s *Settings) Asked(annotations map[string]string) []*Provider {
	tokens, _ := s.tokens(annotations) // a list with an error asks for nothing
	var asked []*Provider
	for _, d := range s.Providers {
		if d.Plain() && len(asked) > 0 {
			continue
		}
		if slices.Contains(tokens, d.Name) || identifies(d, annotations) {
			asked = append(asked, d)
		}
	}
	return asked
}

// identifies reports whether an annotation asks for an identity of the provider.
func identifies(d *Provider, annotations map[string]string) bool {
	return slices.ContainsFunc(d.IdentityKeys(), func(key string) bool { _, found := annotations[Prefix+key]; return found })
}

// Owner returns the provider that an annotation key belongs to, or nil if it belongs to none or
// applies to all.
func (s *Settings) Owner(key string) *Provider {
	name, ours := strings.CutPrefix(key, Prefix)
	i := slices.IndexFunc(s.Providers, func(d *Provider) bool { return ours && d.OwnsKey(name) })
	if i < 0 {
		return nil
	}
	return s.Providers[i]
}

// IsIdentity reports whether the key asks for an identity.
func (s *Settings) IsIdentity(key string) bool {
	name, ours := strings.CutPrefix(key, Prefix)
	return ours && (key == Tokens || slices.ContainsFunc(s.Providers, func(d *Provider) bool { return slices.Contains(d.IdentityKeys(), name) }))
}

// IsGuarded reports whether the guard selects the ServiceAccounts with this value of
// IdentityLabel.
func IsGuarded(label string) bool { return label == IdentityEnabled || label == IdentityRequired }

// Waits reports whether new pods of a ServiceAccount with this value of IdentityLabel and
// these annotations are denied, because it does not ask for an identity yet.
func (s *Settings) Waits(label string, annotations map[string]string) bool {
	return label == IdentityRequired && !s.AskForIdentity(annotations)
}

// AskForIdentity reports whether a ServiceAccount with these annotations asks for an
// identity, valid or not.
func (s *Settings) AskForIdentity(annotations map[string]string) bool {
	_, found := annotations[Tokens]
	return found || slices.ContainsFunc(s.Providers, func(d *Provider) bool { return identifies(d, annotations) })
}
