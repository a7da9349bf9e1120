// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// Adoption is what adoption changes on a ServiceAccount.
type Adoption struct {
	// Set has annotations to add, or to give another value.
	Set map[string]string
	// Remove lists annotations to remove, sorted.
	Remove []string
	// Warnings are for whoever writes the ServiceAccount.
	Warnings []string
}

// Adopt translates the annotations of the peers to Lanyard's. values are the
// annotations of a ServiceAccount: Lanyard's, and those that the peers read.
//
// Keys.Adopted records what was translated. These annotations follow the peer's: if
// that changes, they change, and if it is removed, they are removed. An annotation of
// Lanyard's with any other value was written by hand, and stays. If it asks for an
// identity, nothing of its provider is adopted.
//
// The result depends on values and defaults alone. Adopt finds nothing to do on its
// own result.
func (k *Keys) Adopt(peers []*Peer, values map[string]string, defaults *Defaults) Adoption {
	a := adopter{
		keys: k, values: values, written: k.parseRecord(values[k.Adopted]),
		translations: map[string]*translation{}, record: map[string]string{},
		adoption: Adoption{Set: map[string]string{}},
	}
	for _, p := range peers {
		a.translate(p, defaults)
	}
	for _, d := range k.Providers {
		if t, hasPeer := a.translations[d.Name]; hasPeer {
			a.adopt(d, t)
		}
	}
	a.adoptLifetime()
	a.writeRecord()
	return a.adoption
}

// Adoptable reports whether Adopt would add an identity, or change one: the
// ServiceAccount was not written since its peer's annotation, or since the peer is
// adopted.
func (k *Keys) Adoptable(peers []*Peer, values map[string]string) bool {
	for key := range k.Adopt(peers, values, &Defaults{}).Set {
		if k.IsIdentity(key) {
			return true
		}
	}
	return false
}

// adopter is the state of one Adopt.
type adopter struct {
	keys   *Keys
	values map[string]string
	// translations are by the names of the providers that have a peer.
	translations map[string]*translation
	// written is what Keys.Adopted says, record what it will say: the fingerprint of
	// each translated annotation, by its key.
	written, record map[string]string
	adoption        Adoption
}

// translate translates the annotations of one peer. If two peers are for the same
// provider, the first one with an identity counts.
func (a *adopter) translate(p *Peer, defaults *Defaults) {
	t := &translation{values: map[string]string{}}
	p.translate(&peerReader{translation: t, prefix: p.Prefix, found: a.values, defaults: defaults})
	switch former := a.translations[p.Provider]; {
	case former == nil || len(former.values) == 0:
		if former != nil {
			t.warnings = append(former.warnings, t.warnings...)
		}
		a.translations[p.Provider] = t
	case len(t.values) > 0:
		former.warnings = append(former.warnings, p.Identity[0]+" is ignored: another annotation asks for the same cloud")
	}
}

// adopt makes the annotations of one provider follow the translation.
func (a *adopter) adopt(d *provider.Definition, t *translation) {
	if byHand := a.identityByHand(d); byHand != "" {
		if len(t.values) > 0 {
			a.warn("the annotations of a peer for %s are ignored, because the ServiceAccount has %s", d.Name, byHand)
		}
		t.values, t.lifetime = nil, ""
		return
	}
	a.adoption.Warnings = append(a.adoption.Warnings, t.warnings...)
	for name, value := range t.values {
		a.follow(a.keys.Prefix+name, value)
	}
	for key := range a.written {
		if _, wanted := t.values[strings.TrimPrefix(key, a.keys.Prefix)]; !wanted && a.providerOf(key) == d.Name {
			a.drop(key)
		}
	}
}

// identityByHand returns a key that somebody wrote and that asks for an identity of
// the provider, or "". Lanyard's audience is of every provider: its tokens must not
// change by adoption.
func (a *adopter) identityByHand(d *provider.Definition) string {
	for _, key := range append(a.keys.identity(d), a.keys.Audience) {
		if a.byHand(key) {
			return key
		}
	}
	tokens, _ := splitList(a.values[a.keys.Tokens])
	if slices.Contains(tokens, d.Name) {
		return a.keys.Tokens
	}
	return ""
}

// byHand reports whether the annotation is there, and not as it was translated.
func (a *adopter) byHand(key string) bool {
	value, found := a.values[key]
	return found && a.written[key] != fingerprint(value)
}

// follow gives the annotation this value, unless it was written by hand.
func (a *adopter) follow(key, value string) {
	if a.byHand(key) {
		return
	}
	a.record[key] = fingerprint(value)
	if got, found := a.values[key]; !found || got != value {
		a.adoption.Set[key] = value
	}
}

// drop removes the annotation, unless it was written by hand.
func (a *adopter) drop(key string) {
	if _, found := a.values[key]; found && !a.byHand(key) {
		a.adoption.Remove = append(a.adoption.Remove, key)
	}
}

// adoptLifetime makes the lifetime of the tokens follow the peers'. It is the
// shortest of them: Lanyard has one for all tokens of a ServiceAccount. It stays as
// it is if it is also for an identity that was not adopted.
func (a *adopter) adoptLifetime() {
	key := a.keys.TokenExpirationSeconds
	if a.isShared() {
		if written, found := a.written[key]; found {
			a.record[key] = written
		}
		return
	}
	if value := a.lifetime(); value != "" {
		a.follow(key, value)
	} else {
		a.drop(key)
	}
}

// isShared reports whether the ServiceAccount has an identity that was written by
// hand, or that was adopted from a peer that is not adopted any more.
func (a *adopter) isShared() bool {
	for key := range a.values {
		if a.keys.IsIdentity(key) && (a.byHand(key) || a.translations[a.providerOf(key)] == nil) {
			return true
		}
	}
	return false
}

// lifetime returns the shortest lifetime of the translations that all providers can
// use, or a malformed one as it is.
func (a *adopter) lifetime() string {
	var shortest, least int64
	for _, d := range a.keys.Providers {
		t := a.translations[d.Name]
		if t == nil || len(t.values) == 0 {
			continue
		}
		least = max(least, d.MinExpirationSeconds)
		if t.lifetime == "" {
			continue
		}
		seconds, err := strconv.ParseInt(t.lifetime, 10, 64)
		if err != nil || t.strict {
			return t.lifetime
		}
		if shortest == 0 || seconds < shortest {
			shortest = seconds
		}
	}
	if shortest == 0 {
		return ""
	}
	if shortest < least {
		a.warn("the lifetime of the tokens is %d seconds, not %d: Lanyard has one for all clouds", least, shortest)
	}
	return strconv.FormatInt(max(shortest, least), 10)
}

// writeRecord makes Keys.Adopted right. What was adopted from a peer that is not
// adopted any more stays.
func (a *adopter) writeRecord() {
	for key, written := range a.written {
		name := a.providerOf(key)
		if _, found := a.values[key]; found && name != "" && a.translations[name] == nil {
			a.record[key] = written
		}
	}
	slices.Sort(a.adoption.Remove)
	var entries []string
	for _, key := range slices.Sorted(maps.Keys(a.record)) {
		entries = append(entries, strings.TrimPrefix(key, a.keys.Prefix)+"="+a.record[key])
	}
	record := strings.Join(entries, ",")
	got, found := a.values[a.keys.Adopted]
	switch {
	case record == "" && found:
		a.adoption.Remove = append(a.adoption.Remove, a.keys.Adopted)
	case record != "" && got != record:
		a.adoption.Set[a.keys.Adopted] = record
	}
}

// providerOf returns the name of the provider that has the key, or "".
func (a *adopter) providerOf(key string) string {
	for _, d := range a.keys.Providers {
		if !d.Plain() && strings.HasPrefix(key, a.keys.Prefix+d.Name+"-") {
			return d.Name
		}
	}
	return ""
}

func (a *adopter) warn(format string, values ...any) {
	a.adoption.Warnings = append(a.adoption.Warnings, fmt.Sprintf(format, values...))
}

// fingerprint identifies a value in the record.
func fingerprint(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:fingerprintBytes])
}

const fingerprintBytes = 4

// maxRecordBytes is the most that the record has about one key.
func maxRecordBytes(key string) int { return len(key) + len("=,") + 2*fingerprintBytes }

// parseRecord reads Keys.Adopted. It ignores what Lanyard does not write: an
// annotation without an entry was written by hand.
func (k *Keys) parseRecord(value string) map[string]string {
	record := map[string]string{}
	known := k.ServiceAccount()
	for entry := range strings.SplitSeq(value, ",") {
		name, value, found := strings.Cut(entry, "=")
		if found && len(value) == 2*fingerprintBytes && slices.Contains(known, k.Prefix+name) {
			record[k.Prefix+name] = value
		}
	}
	return record
}
