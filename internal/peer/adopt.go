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

// MaxBytes is the part of a peer's annotation that adoption reads. It is longer than any
// valid value, so truncation cannot make an invalid value valid.
const MaxBytes = 2049

// Finding is something that adoption does not take over as it is.
type Finding struct {
	// Key is the annotation of the peer; empty for the ServiceAccount as a whole.
	Key string
	// Text is for people. It does not repeat the key.
	Text string
	// ByHand reports whether an annotation of Lanyard counts, which somebody wrote.
	ByHand bool
}

// String returns the finding as a warning shows it.
func (f Finding) String() string { return strings.TrimPrefix(f.Key+": "+f.Text, ": ") }

// Adoption lists the changes that adoption makes on a ServiceAccount.
type Adoption struct {
	// Set has annotations to add, or to give another value.
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
// Lanyard's with any other value was written by hand, and stays. If it asks for an
// identity, nothing of its provider is adopted.
//
// The result depends on its arguments only. Adopt finds nothing to do on its own
// result.
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

// Adoptable reports whether Adopt would add an identity, or change one: the
// ServiceAccount was not written since its peer's annotation, or since the peer is
// adopted.
func Adoptable(s *annotations.Settings, peers []*Peer, values map[string]string) bool {
	set := Adopt(s, peers, values).Set
	return slices.ContainsFunc(slices.Collect(maps.Keys(set)), s.IsIdentity)
}

// Translate returns the annotations of Lanyard that the annotations of the peers translate to,
// whatever else values has.
func Translate(s *annotations.Settings, peers []*Peer, values map[string]string) map[string]string {
	theirs := maps.Clone(values)
	maps.DeleteFunc(theirs, func(key, _ string) bool { return strings.HasPrefix(key, annotations.Prefix) })
	set := Adopt(s, peers, theirs).Set
	delete(set, annotations.Adopted)
	return set
}

// Adopted lists the annotations of Lanyard that Adopt added: the record has them, with
// their fingerprints, and the annotations of the peers still translate to their values.
// Users can write a record, so a fingerprint by itself shows nothing.
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
	// translations are by the names of the providers that have a peer.
	translations map[string]*translation
	// written maps annotation keys to fingerprints: the content of annotations.Adopted.
	written  map[string]string
	adoption Adoption
}

// translate translates the annotations of one peer. If two peers are for the same
// provider, the first peer with an identity counts.
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

// judge adds the findings of a translation. It empties the translation if somebody wrote an
// identity of the provider: then its other annotations stay, too.
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

// identityByHand returns a key that somebody wrote and that asks for an identity of
// the provider, or "". Lanyard's audience is of every provider: its tokens must not
// change by adoption.
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

// byHand reports whether the annotation is there, and differs from its translation.
func (a *adopter) byHand(key string) bool {
	value, found := a.values[key]
	return found && a.written[key] != fingerprint(value)
}

// follow makes the annotations follow wanted, unless they were written by hand, and makes the
// record right. Entries stay that were adopted from a peer that is not adopted any more. The
// lifetime of the tokens stays as it is if it is shared with an identity that was not adopted.
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
	case record != "" && got != record:
		a.adoption.Set[annotations.Adopted] = record
	}
}

// isShared reports whether the ServiceAccount has an identity that was written by
// hand, or that was adopted from a peer that is not adopted any more.
func (a *adopter) isShared() bool {
	for key := range a.values {
		if a.IsIdentity(key) && (a.byHand(key) || a.translations[a.providerOf(key)] == nil) {
			return true
		}
	}
	return false
}

// lifetime returns the shortest lifetime of the translations that all providers can use:
// Lanyard has one for all tokens of a ServiceAccount. A malformed lifetime is returned as it is.
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
	for _, d := range a.Providers {
		if !d.Plain() && strings.HasPrefix(key, annotations.Prefix+d.Name+"-") {
			return d.Name
		}
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

// parseRecord reads annotations.Adopted. It ignores entries that Lanyard does not write: an
// annotation without an entry was written by hand.
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
