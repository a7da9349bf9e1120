// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annotations holds the annotations and labels of Lanyard, how their
// values are read and which values are allowed. The keys of a single provider are
// part of its definition in package provider.
package annotations

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// DefaultPrefix starts every key.
const DefaultPrefix = "lanyard.dev/"

// PoliciesSource is the annotation of a policy of "lanyard policies", in every cluster with
// this prefix: the input from which the policies were made.
const PoliciesSource = DefaultPrefix + "policies"

// Values of Lanyard's labels.
const (
	// LabelEnabled is the value of Keys.IdentityLabel on a ServiceAccount that
	// asks for an identity.
	LabelEnabled = "enabled"
	// LabelRequired is the value of Keys.IdentityLabel that a user sets on a
	// ServiceAccount: its pods are denied until the ServiceAccount asks for an identity.
	// Lanyard never changes this value.
	LabelRequired = "required"
	// LabelInjected is the value of Keys.IdentityLabel that Lanyard writes on an injected
	// pod. The guard then need not search for the ServiceAccount of the pod.
	LabelInjected = "injected"
	// LabelDisabled is the value of the label Keys.Inject on a namespace that opts
	// out. OptOut means the same.
	LabelDisabled = "disabled"
	// OptOut is the value of Keys.Inject, as an annotation or a label, on a pod
	// that opts out.
	OptOut = "false"
	// Insist is the value of Keys.Inject, as an annotation or a label, on a pod that is
	// denied if it is not injected.
	Insist = "true"
	// LabelProbe is the value of Keys.Probe on a pod that probes the webhook.
	LabelProbe = "true"
)

// MirrorPodKey is the annotation of a pod that mirrors a static pod of a kubelet
// (corev1.MirrorPodAnnotationKey).
const MirrorPodKey = "kubernetes.io/config.mirror"

// Keys are the full keys under one prefix. Make them with NewKeys.
type Keys struct {
	// Prefix ends with a slash.
	Prefix string
	// Providers are those that ServiceAccounts can ask for.
	Providers []*provider.Definition

	// On a ServiceAccount.

	// Audience asks for a plain token if it is the only key. With a provider, it
	// is the audience of all tokens of the ServiceAccount.
	Audience string
	// Tokens names providers whose token the pods get without an identity.
	Tokens string
	// TokenExpirationSeconds is the requested lifetime of the tokens. On a pod it
	// overrides the ServiceAccount's.
	TokenExpirationSeconds string

	// Adopted is written by Lanyard: the annotations that follow a peer's annotations,
	// with the fingerprints of their values.
	Adopted string

	// On a pod.

	// Inject is "false" on a pod that opts out, and "true" on a pod that insists, as an
	// annotation or a label. On a namespace it is a label, "disabled" or "false".
	Inject string
	// Containers names the only containers to inject into.
	Containers string
	// SkipContainers names the containers to leave out.
	SkipContainers string
	// Probe is a label. The API server creates a pod with it only if the webhook
	// answers.
	Probe string

	// Written on the pod by Lanyard.

	// Injected lists the providers whose tokens are in the pod's volume.
	Injected string
	// Denied is written by the policies of "lanyard policies": why the pod is denied. No pod
	// is stored with it.
	Denied string

	// On a namespace.

	// AllowedIdentities limits the identities that the ServiceAccounts of the namespace
	// may ask for.
	AllowedIdentities string

	// IdentityLabel is the label of a ServiceAccount that asks for an identity, or whose
	// pods need one, and of an injected pod.
	IdentityLabel string

	// Of the peers that are adopted. The guard has the same rules.

	// PeerContainers are the containers that a peer writes whenever the API server calls
	// the peer: nothing of Lanyard's would stay in them.
	PeerContainers []string
	// PeerTokens are the providers whose tokens a peer gives a pod in a way of its own: by
	// the start of the pod's annotation, which must be "true".
	PeerTokens map[string]string
}

// PeerToken returns the provider that an annotation of a pod can leave to a peer, or "".
func (k *Keys) PeerToken(key string) string {
	for start, name := range k.PeerTokens {
		if strings.HasPrefix(key, start) {
			return name
		}
	}
	return ""
}

// MaxKeptBytes is the most that the annotations of a valid ServiceAccount can have
// with any providers, keys and values together. Longer ones need not be kept.
const MaxKeptBytes = 32 << 10

// NewKeys returns the keys under prefix: a DNS subdomain and a slash. The providers
// are sorted by name, but a plain one is last.
func NewKeys(prefix string, providers []*provider.Definition) (Keys, error) {
	domain, found := strings.CutSuffix(prefix, "/")
	if problems := validation.IsDNS1123Subdomain(domain); !found || len(problems) > 0 {
		return Keys{}, fmt.Errorf("annotation prefix: got %q, want a DNS subdomain followed by a slash, such as %q", prefix, DefaultPrefix)
	}
	providers = slices.SortedFunc(slices.Values(providers), func(a, b *provider.Definition) int {
		switch {
		case a.Plain() == b.Plain():
			return cmp.Compare(a.Name, b.Name)
		case b.Plain():
			return -1
		}
		return 1
	})
	keys := Keys{
		Prefix:    prefix,
		Providers: providers,

		Audience:               prefix + "audience",
		Tokens:                 prefix + "tokens",
		TokenExpirationSeconds: prefix + "token-expiration-seconds",
		Adopted:                prefix + "adopted",

		Inject:         prefix + "inject",
		Containers:     prefix + "containers",
		SkipContainers: prefix + "skip-containers",
		Probe:          prefix + "probe",

		Injected: prefix + "injected",
		Denied:   prefix + "denied",

		AllowedIdentities: prefix + "allowed-identities",
		IdentityLabel:     prefix + "identity",
	}
	return keys, keys.check()
}

// check returns an error if two keys of the providers and of Lanyard are the same,
// or if there are so many that no ServiceAccount with all of them would be kept.
func (k *Keys) check() error {
	seen := map[string]bool{k.Probe: true, k.AllowedIdentities: true, k.IdentityLabel: true, k.Adopted: true, k.Denied: true}
	for _, key := range slices.Concat([]string{k.Inject, k.Containers, k.SkipContainers}, k.Marks(), k.ServiceAccount(), k.Profiles()) {
		if seen[key] {
			return fmt.Errorf("annotation %s has two meanings", key)
		}
		seen[key] = true
	}
	if size := k.MaxServiceAccountBytes(); size > MaxKeptBytes {
		return fmt.Errorf("the annotations of all providers together may have %d bytes, want at most %d", size, MaxKeptBytes)
	}
	return nil
}

// Parameter returns the annotation key of a provider's parameter, or of its "audience".
func (k *Keys) Parameter(d *provider.Definition, name string) string {
	return k.Prefix + d.Key(name)
}

// ServiceAccount lists the keys that a user may set on a ServiceAccount.
func (k *Keys) ServiceAccount() []string {
	var keys []string
	for _, d := range k.Providers {
		if !d.Plain() {
			keys = append(keys, k.full(d.Keys())...)
		}
	}
	return append(keys, k.Audience, k.Tokens, k.TokenExpirationSeconds)
}

// Pod lists the keys that may be on a pod: the users' keys, then Lanyard's own.
func (k *Keys) Pod() []string {
	return append([]string{k.Inject, k.Containers, k.SkipContainers, k.TokenExpirationSeconds}, k.Marks()...)
}

// Marks lists the keys that only Lanyard may write on a pod. The kubelet writes the
// values of some of them into credential files. "make generate" makes the chart's
// fence from this list.
func (k *Keys) Marks() []string {
	return append([]string{k.Injected}, k.files()...)
}

// files lists the keys whose values are credential files.
func (k *Keys) files() []string {
	var keys []string
	for _, d := range k.Providers {
		if d.CredentialFile != nil {
			keys = append(keys, k.Prefix+d.CredentialFile.Annotation)
		}
	}
	return keys
}

// full adds the prefix to keys.
func (k *Keys) full(keys []string) []string {
	for i, key := range keys {
		keys[i] = k.Prefix + key
	}
	return keys
}

// Identity returns the keys of a provider that ask for its identity, as a message has them.
func (k *Keys) Identity(d *provider.Definition) string {
	return strings.Join(k.full(d.IdentityKeys()), " or ")
}

// TokenAlone lists the providers that the annotation Tokens may name.
func (k *Keys) TokenAlone() []string {
	var names []string
	for _, d := range k.Providers {
		if d.TokenAlone {
			names = append(names, d.Name)
		}
	}
	return names
}

// UnknownOnServiceAccount lists the keys under the prefix that a ServiceAccount cannot
// have, sorted.
func (k *Keys) UnknownOnServiceAccount(values map[string]string) []string {
	return k.unknown(values, []string{k.Audience, k.Tokens, k.TokenExpirationSeconds, k.Adopted}, k.Providers...)
}

// unknown lists the keys under the prefix that are neither among the known ones nor of
// one of the providers, sorted.
func (k *Keys) unknown(values map[string]string, known []string, providers ...*provider.Definition) []string {
	var unknown []string
	for key := range values {
		name, ours := strings.CutPrefix(key, k.Prefix)
		owns := func(d *provider.Definition) bool { return d.OwnsKey(name) }
		if ours && !slices.Contains(known, key) && !slices.ContainsFunc(providers, owns) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown) // a map has no order, a message needs one
	return unknown
}

// MaxAudienceBytes returns the length of the longest audience that any provider accepts.
func (k *Keys) MaxAudienceBytes() int {
	longest := 0
	for _, d := range k.Providers {
		longest = max(longest, d.MaxAudienceBytes)
	}
	return longest
}

// MaxServiceAccountBytes returns an upper bound for the annotations of a valid
// ServiceAccount, keys and values together. Longer ones are invalid and not kept.
func (k *Keys) MaxServiceAccountBytes() int {
	size := len("86400") + len(strings.Join(k.TokenAlone(), ", ")) + len(k.Adopted)
	for _, key := range k.ServiceAccount() {
		size += 2*len(key) + len("=12345678,") // the second one is in Adopted, with a fingerprint
	}
	for _, d := range k.Providers {
		size += d.MaxAudienceBytes
		if d.Profiles != nil {
			size += provider.MaxProfilesBytes
		}
		for i := range d.Parameters {
			if p := &d.Parameters[i]; !p.ClusterOnly {
				size += p.MaxBytes
			}
		}
	}
	return size
}

// tokens returns the providers that the annotation Tokens names. An error in the list
// makes all of it void.
func (k *Keys) tokens(annotations map[string]string) ([]string, error) {
	value, found := annotations[k.Tokens]
	if !found {
		return nil, nil
	}
	names, err := splitList(value)
	known := k.TokenAlone()
	if err != nil || slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(known, name) }) {
		return nil, fmt.Errorf("must be one or more of %s, separated by commas", strings.Join(known, ", "))
	}
	return names, nil
}

// Asked returns the providers that a ServiceAccount with these annotations asks for, by
// an identity or by its token only, in the order of Keys.Providers. A plain provider is
// asked for only if no other provider is: otherwise the audience is for their tokens.
func (k *Keys) Asked(annotations map[string]string) []*provider.Definition {
	tokens, _ := k.tokens(annotations) // a list with an error asks for nothing
	var asked []*provider.Definition
	for _, d := range k.Providers {
		if d.Plain() && len(asked) > 0 {
			continue
		}
		if slices.Contains(tokens, d.Name) || k.identifies(d, annotations) {
			asked = append(asked, d)
		}
	}
	return asked
}

// identifies reports whether an annotation asks for an identity of the provider.
func (k *Keys) identifies(d *provider.Definition, annotations map[string]string) bool {
	for key := range annotations {
		if name, ours := strings.CutPrefix(key, k.Prefix); ours && d.Identifies(name) {
			return true
		}
	}
	return false
}

// IsIdentity reports whether the key asks for an identity.
func (k *Keys) IsIdentity(key string) bool {
	name, ours := strings.CutPrefix(key, k.Prefix)
	return ours && (key == k.Tokens || slices.ContainsFunc(k.Providers, func(d *provider.Definition) bool { return d.Identifies(name) }))
}

// IsGuarded reports whether the guard selects the ServiceAccounts with this value of
// Keys.IdentityLabel.
func IsGuarded(label string) bool { return label == LabelEnabled || label == LabelRequired }

// Waits reports whether new pods of a ServiceAccount with this value of IdentityLabel and
// these annotations are denied, because it does not ask for an identity yet.
func (k *Keys) Waits(label string, annotations map[string]string) bool {
	return label == LabelRequired && !k.AskForIdentity(annotations)
}

// AskForIdentity reports whether a ServiceAccount with these annotations asks for
// an identity, well formed or not.
func (k *Keys) AskForIdentity(annotations map[string]string) bool {
	for key := range annotations {
		if k.IsIdentity(key) {
			return true
		}
	}
	return false
}
