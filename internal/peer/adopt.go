// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// MaxBytes limits how much of a peer's annotation adoption reads. It is longer than any
// valid value, so truncation cannot make an invalid value valid.
const MaxBytes = 2049

// Finding is something that adoption ignores or changes.
type Finding struct {
	// Key is the annotation of the peer, or empty for the ServiceAccount as a whole.
	Key string
	// Text describes the finding without the key.
	Text string
	// ByHand reports whether an annotation of Lanyard that a user wrote takes precedence.
	ByHand bool
}

// String returns the finding as a warning shows it.
func (f Finding) String() string { return strings.TrimPrefix(f.Key+": "+f.Text, ": ") }

// Adoption lists the changes that adoption makes on a ServiceAccount.
type Adoption struct {
	// Set contains annotations to add or change.
	Set map[string]string
	// Remove lists annotations to remove, sorted.
	Remove []string
	// Findings are for the author of the ServiceAccount.
	Findings []Finding
}

// Adopt translates the annotations of the peers to Lanyard's. values are the
// annotations of a ServiceAccount: Lanyard's, and those that the peers read.
//
// annotations.Adopted records the translated annotations. They follow the peer's annotation: if
// it changes, they change, and if it is removed, they are removed. An annotation of
// Lanyard with any other value was written by hand, and stays. If it asks for an
// identity, nothing of its provider is adopted.
//
// The result depends only on the arguments. Applied to its own result, Adopt changes
// nothing.
func Adopt(s *annotations.Settings, peers []*Peer, values map[string]string) Adoption {
	a := adopter{
		Settings: s, values: values, written: parseRecord(s, values[annotations.Adopted]),
		translations: map[string]*translation{}, adoption: Adoption{Set: map[string]string{}},
	}
	for _, p := range peers {
		a.translate(p)
	}
	wanted := map[string]string{}
	for _, d := range s.Providers {
		if t, hasPeer := a.translations[d.Name]; hasPeer {
			a.judge(d, t)
			for name, value := range t.values {
				wanted[annotations.Prefix+name] = value
			}
		}
	}
	shared := a.isShared()
	if !shared {
		if value := a.lifetime(); value != "" {
			wanted[annotations.TokenExpirationSeconds] = value
		}
	}
	a.follow(wanted, shared)
	return a.adoption
}

// Adoptable reports whether Adopt would add or change an identity, because the ServiceAccount
// was not written since the peer's annotation changed or the peer was adopted.
func Adoptable(s *annotations.Settings, peers []*Peer, values map[string]string) bool {
	set := Adopt(s, peers, values).Set
	return slices.ContainsFunc(slices.Collect(maps.Keys(set)), s.IsIdentity)
}

// Translate translates the annotations of the peers to Lanyard's, and ignores all others.
func Translate(s *annotations.Settings, peers []*Peer, values map[string]string) map[string]string {
	theirs := maps.Clone(values)
	maps.DeleteFunc(theirs, func(key, _ string) bool { return strings.HasPrefix(key, annotations.Prefix) })
	set := Adopt(s, peers, theirs).Set
	delete(set, annotations.Adopted)
	return set
}

// Adopted lists the annotations that Adopt added: those whose fingerprints are in the record
// and whose values are still translations of the peers' annotations. Users can write the
// record, so a fingerprint alone proves nothing.
func Adopted(s *annotations.Settings, peers []*Peer, values map[string]string) []string {
	var adopted []string
	record := parseRecord(s, values[annotations.Adopted])
	for key, value := range Translate(s, peers, values) {
		if got, found := values[key]; found && got == value && record[key] == fingerprint(value) {
			adopted = append(adopted, key)
		}
	}
	return adopted
}

// adopter is the state of one Adopt.
type adopter struct {
	*annotations.Settings

	values map[string]string
	// translations are keyed by the provider of the peer.
	translations map[string]*translation
	// written maps annotation keys to fingerprints: the content of annotations.Adopted.
	written  map[string]string
	adoption Adoption
}

// translate translates the annotations of one peer. If two peers have the same provider, the
// first with an identity wins.
func (a *adopter) translate(p *Peer) {
	t, first := p.translate(a.values, a.Settings), a.translations[p.Provider]
	if first != nil && len(first.values) > 0 {
		if len(t.values) > 0 {
			text := "another annotation asks for the same cloud, and counts"
			first.findings = append(first.findings, Finding{Key: p.Identity[0], Text: text})
		}
		return
	}
	if first != nil {
		t.findings = append(first.findings, t.findings...)
	}
	a.translations[p.Provider] = t
}

// judge adds the findings of a translation. If a user wrote an identity of the provider,
// judge empties the translation, so that no annotation of the provider is adopted.
func (a *adopter) judge(d *annotations.Provider, t *translation) {
	byHand := a.identityByHand(d)
	if byHand == "" {
		a.adoption.Findings = append(a.adoption.Findings, t.findings...)
		return
	}
	if len(t.values) > 0 {
		text := fmt.Sprintf("the annotations of a peer for %s are ignored, because the ServiceAccount has %s", d.Name, byHand)
		a.adoption.Findings = append(a.adoption.Findings, Finding{Text: text, ByHand: true})
	}
	t.values, t.byHand = nil, true
}

// identityByHand returns a key by which a user asked for an identity of the provider, or "".
// The annotation audience applies to all providers: adoption must not change its tokens.
func (a *adopter) identityByHand(d *annotations.Provider) string {
	for i := range d.Parameters {
		if key := annotations.Key(d, d.Parameters[i].Name); d.Parameters[i].Identity && a.byHand(key) {
			return key
		}
	}
	if a.byHand(annotations.Audience) {
		return annotations.Audience
	}
	for name := range strings.SplitSeq(a.values[annotations.Tokens], ",") {
		if strings.TrimSpace(name) == d.Name {
			return annotations.Tokens
		}
	}
	return ""
}

// byHand reports whether the annotation exists and differs from its translation.
func (a *adopter) byHand(key string) bool {
	value, found := a.values[key]
	return found && a.written[key] != fingerprint(value)
}

// follow changes the annotations to wanted, unless a user wrote them, and updates the record.
// Entries of peers that are no longer adopted stay. The lifetime of the tokens does not
// change if an identity that was not adopted shares it.
func (a *adopter) follow(wanted map[string]string, shared bool) {
	all := maps.Clone(a.written)
	maps.Copy(all, wanted)
	var entries []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value, isWanted := wanted[key]
		got, found := a.values[key]
		name, isLifetime := a.providerOf(key), key == annotations.TokenExpirationSeconds
		t := a.translations[name]
		entry := strings.TrimPrefix(key, annotations.Prefix) + "="
		switch {
		case isLifetime && shared, found && name != "" && t == nil:
			entries = append(entries, entry+a.written[key])
		case a.byHand(key):
		case isWanted:
			entries = append(entries, entry+fingerprint(value))
			if !found || got != value {
				a.adoption.Set[key] = value
			}
		case found && (isLifetime || t != nil && !t.byHand):
			a.adoption.Remove = append(a.adoption.Remove, key)
		}
	}
	record := strings.Join(entries, ",")
	got, found := a.values[annotations.Adopted]
	switch {
	case record == "" && found:
		a.adoption.Remove = append(a.adoption.Remove, annotations.Adopted)
	case got != record:
		a.adoption.Set[annotations.Adopted] = record
	}
}

// isShared reports whether the ServiceAccount has an identity that a user wrote, or that was
// adopted from a peer that is no longer adopted.
func (a *adopter) isShared() bool {
	for key := range a.values {
		if a.IsIdentity(key) && (a.byHand(key) || a.translations[a.providerOf(key)] == nil) {
			return true
		}
	}
	return false
}

// lifetime returns the shortest lifetime of the translations, raised to what all providers
// accept, because all tokens of a ServiceAccount have the same lifetime. It returns a
// malformed lifetime unchanged.
func (a *adopter) lifetime() string {
	var shortest, least int64
	given := false
	for _, d := range a.Providers {
		t := a.translations[d.Name]
		if t == nil || len(t.values) == 0 {
			continue
		}
		least = max(least, d.MinExpirationSeconds)
		seconds := t.standard
		if t.lifetime != "" {
			var err error
			if seconds, err = strconv.ParseInt(t.lifetime, 10, 64); err != nil || t.strict {
				return t.lifetime
			}
			given = true
		}
		if seconds > 0 && (shortest == 0 || seconds < shortest) {
			shortest = seconds
		}
	}
	if !given {
		return ""
	}
	if shortest < least {
		text := fmt.Sprintf("the lifetime of the tokens is %d seconds, not %d: Lanyard has one for all clouds", least, shortest)
		a.adoption.Findings = append(a.adoption.Findings, Finding{Text: text})
	}
	return strconv.FormatInt(max(shortest, least), 10)
}

// providerOf returns the name of the provider that has the key, or "".
func (a *adopter) providerOf(key string) string {
	if d := a.Owner(key); d != nil && !d.Plain() {
		return d.Name
	}
	return ""
}

// Release returns a record without the entries of the peers' providers. The lifetime of
// the tokens stays in the record as long as an entry of another provider does.
func Release(record string, peers []*Peer) string {
	rest := slices.DeleteFunc(strings.Split(record, ","), func(entry string) bool {
		return entry == "" || slices.ContainsFunc(peers, func(p *Peer) bool { return strings.HasPrefix(entry, p.Provider+"-") })
	})
	if len(rest) == 1 && strings.HasPrefix(rest[0], lifetimeKey+"=") {
		return ""
	}
	return strings.Join(rest, ",")
}

// fingerprint identifies a value in the record. Its length is part of
// MaxServiceAccountBytes.
func fingerprint(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:4])
}

// parseRecord reads annotations.Adopted. It ignores entries that Lanyard could not have
// written.
func parseRecord(s *annotations.Settings, value string) map[string]string {
	record := map[string]string{}
	known := s.ServiceAccountKeys()
	for entry := range strings.SplitSeq(value, ",") {
		name, value, found := strings.Cut(entry, "=")
		if found && len(value) == len(fingerprint("")) && slices.Contains(known, annotations.Prefix+name) {
			record[annotations.Prefix+name] = value
		}
	}
	return record
}
