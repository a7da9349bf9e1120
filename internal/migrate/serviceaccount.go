// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// account is a ServiceAccount and what becomes of it.
type account struct {
	*Object
	// theirs are the annotations that the peers read, and those of a mapped entry.
	theirs map[string]string
	// want are Lanyard's annotations for theirs alone, after all of them afterwards.
	want, after map[string]string
	warnings    []string
	// denied reports whether the webhook would deny the result, so that nothing is
	// changed.
	denied bool
}

// serviceAccount plans for a ServiceAccount.
func (p *planner) serviceAccount(o *Object) {
	a := &account{Object: o, theirs: p.theirs(o), after: p.own(o.Annotations)}
	before := maps.Clone(a.after)
	needsTokens := p.needTokens[p.namespaceOf(o)+"/"+o.Name]
	record, adopted := before[p.Keys.Adopted]
	if len(a.theirs) == 0 && !needsTokens && !adopted && !p.reads(OnServiceAccount, o) && !p.reads(OnServiceAccountLabel, o) {
		return
	}
	a.want = p.translate(a.theirs)
	p.adopt(a)
	if p.has("cwii") {
		p.addMissing(a, p.cwii(o))
	}
	if needsTokens {
		p.addTokens(a)
	}
	if adopted {
		if record = withoutRecord(record, p.clouds()); record == "" {
			delete(a.after, p.Keys.Adopted)
		} else {
			a.after[p.Keys.Adopted] = record
		}
	}
	errs := p.validate(a)
	first := len(p.plan.Items)
	remove := p.accountItems(a, before)
	if needsTokens && a.after[p.Keys.Tokens] != before[p.Keys.Tokens] {
		p.translated(a, azureUse+" on its pods", p.Keys.Tokens, "It has no client ID.")
	}
	if adopted && a.after[p.Keys.Adopted] != before[p.Keys.Adopted] {
		p.translated(a, p.Keys.Adopted, "", "Lanyard's annotations do not follow the other ones any more.")
	}
	for _, err := range errs {
		p.item(o, p.annotationOf(err), Manual, "", "Lanyard would deny it: "+err.ErrorBody())
	}
	if a.denied {
		return
	}
	if p.leavesWork(first) {
		remove = nil
	}
	for key := range before {
		if _, found := a.after[key]; !found {
			remove = append(remove, key)
		}
	}
	p.change(o, nil, o.Annotations, a.after, remove)
}

// reads reports whether a peer has to do with the object.
func (p *planner) reads(place Place, o *Object) bool {
	values := o.Annotations
	if place == OnServiceAccountLabel {
		values = o.Labels
	}
	return slices.ContainsFunc(p.From, func(peer *Peer) bool { return peer.reads(place, values) })
}

// clouds returns the names of the providers that the peers have.
func (p *planner) clouds() []string {
	var names []string
	for _, peer := range p.adoptable {
		names = append(names, peer.Provider)
	}
	return names
}

// own returns the annotations under Lanyard's prefix.
func (p *planner) own(values map[string]string) map[string]string {
	result := map[string]string{}
	for key, value := range values {
		if strings.HasPrefix(key, p.Keys.Prefix) {
			result[key] = value
		}
	}
	return result
}

// theirs returns the annotations that the adoptable peers read, and those of the
// ConfigMap's entry, which counts if the ServiceAccount has no role of its own.
func (p *planner) theirs(o *Object) map[string]string {
	result := map[string]string{}
	for key, value := range o.Annotations {
		if slices.ContainsFunc(p.adoptable, func(peer *annotations.Peer) bool { return peer.Reads(key) }) {
			result[key] = value[:min(len(value), annotations.MaxPeerBytes)]
		}
	}
	if entry, found := p.entryOf(o); found && o.Annotations[eksRole] == "" {
		for key, value := range entry {
			if _, has := result[key]; !has || key == eksRole {
				result[key] = value
			}
		}
	}
	p.withoutEmptyAudience(result)
	return result
}

// withoutEmptyAudience removes an empty audience, which Lanyard denies.
func (p *planner) withoutEmptyAudience(values map[string]string) {
	for _, peer := range p.adoptable {
		if audience, found := values[peer.Prefix+"audience"]; found && audience == "" {
			delete(values, peer.Prefix+"audience")
		}
	}
}

// translate returns Lanyard's annotations for those of the peers alone.
func (p *planner) translate(theirs map[string]string) map[string]string {
	values := p.Keys.Adopt(p.adoptable, theirs, p.defaults).Set
	delete(values, p.Keys.Adopted)
	return values
}

// adopt translates as the webhook does, but removes nothing of Lanyard's: the
// annotations of the peer may be gone because Lanyard's have taken their place.
func (p *planner) adopt(a *account) {
	values := maps.Clone(a.after)
	maps.Copy(values, a.theirs)
	adoption := p.Keys.Adopt(p.adoptable, values, p.defaults)
	a.warnings = slices.DeleteFunc(adoption.Warnings, func(warning string) bool {
		return strings.HasPrefix(warning, "the annotations of a peer for ") // accountItem says which
	})
	maps.Copy(a.after, adoption.Set)
	if _, had := a.Annotations[p.Keys.Adopted]; !had {
		delete(a.after, p.Keys.Adopted)
	}
}

// addMissing adds annotations, except those of a provider that the ServiceAccount has
// some of: they were written by hand.
func (p *planner) addMissing(a *account, values map[string]string) {
	before := maps.Clone(a.after)
	maps.Copy(a.want, values)
	_, hasAudience := before[p.Keys.Audience]
	if hasAudience {
		return
	}
	for key, value := range values {
		cloud, _, _ := strings.Cut(strings.TrimPrefix(key, p.Keys.Prefix), "-")
		if _, has := before[key]; has || key != p.Keys.TokenExpirationSeconds && p.hasProvider(before, cloud) {
			continue
		}
		a.after[key] = value
	}
}

// hasProvider reports whether Lanyard's annotations ask for a token of the provider.
func (p *planner) hasProvider(values map[string]string, name string) bool {
	if slices.Contains(strings.Split(strings.ReplaceAll(values[p.Keys.Tokens], " ", ""), ","), name) {
		return true
	}
	for key := range values {
		if strings.HasPrefix(key, p.Keys.Prefix+name+"-") {
			return true
		}
	}
	return false
}

// addTokens asks for Azure's token without an identity, if the ServiceAccount has
// none: the programs bring their own. Everything else is translated as with a client.
func (p *planner) addTokens(a *account) {
	_, hasAudience := a.after[p.Keys.Audience]
	if p.hasProvider(a.after, "azure") || hasAudience {
		return
	}
	theirs := maps.Clone(a.theirs)
	theirs[azureClient] = "any"
	values := p.translate(theirs)
	delete(values, p.Keys.Prefix+"azure-client-id")
	tokens := "azure"
	if other := a.after[p.Keys.Tokens]; other != "" {
		tokens = other + "," + tokens
	}
	for key, value := range values {
		if strings.HasPrefix(key, p.Keys.Prefix+"azure-") {
			a.after[key], a.want[key] = value, value
		}
	}
	a.after[p.Keys.Tokens] = tokens
	if lifetime, found := values[p.Keys.TokenExpirationSeconds]; found && a.after[p.Keys.TokenExpirationSeconds] == "" {
		a.after[p.Keys.TokenExpirationSeconds], a.want[p.Keys.TokenExpirationSeconds] = lifetime, lifetime
	}
}

// accountItems adds an item for each key of the peers, in the order of their tables.
// It returns the keys that may be removed: those that nothing needs any more.
func (p *planner) accountItems(a *account, before map[string]string) (done []string) {
	for _, peer := range p.From {
		for i := range peer.Inputs {
			in := &peer.Inputs[i]
			values := a.Annotations
			if in.Place == OnServiceAccountLabel {
				values = a.Labels
			} else if in.Place != OnServiceAccount {
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(values)) {
				if !in.matches(key) {
					continue
				}
				if p.accountItem(a, before, in, key, values[key]) && p.Remove && in.Place == OnServiceAccount {
					done = append(done, key)
				}
			}
		}
		p.unknownKeys(a.Object, peer, OnServiceAccount, a.Annotations)
	}
	if len(a.warnings) > 0 {
		p.item(a.Object, "its annotations", Manual, "", strings.Join(a.warnings, "; "))
	}
	return done
}

// accountItem adds the item about one key. It reports whether the key is not needed
// any more.
func (p *planner) accountItem(a *account, before map[string]string, in *Input, key, value string) bool {
	warning := a.takeWarning(key)
	becomes := p.becomes(in)
	switch {
	case in.Result == Setting:
		if p.value(in.Becomes, value) {
			p.item(a.Object, key, Manual, in.Becomes, "Another object has another value. "+in.Note)
			return false
		}
		p.row(a.Object, key, in)
		return true
	case in.Result != Translated:
		if warning == "" {
			warning = in.Note
		}
		p.item(a.Object, key, in.Result, becomes, warning)
		return in.Result == NothingToDo
	}
	got, found := a.after[becomes]
	want, wanted := a.want[becomes]
	switch {
	case value == "" && !strings.HasSuffix(key, "/audience"):
		p.item(a.Object, key, NothingToDo, "", strings.TrimSpace("It is empty. "+warning))
		return true
	case !wanted && !found, !wanted && warning != "":
		if value == "" {
			warning = in.Note
		}
		if warning == "" {
			warning = "It has no effect: the ServiceAccount does not ask for an identity in full, or it is turned off."
		}
		p.item(a.Object, key, Manual, becomes, warning)
		return false
	case wanted && got != want:
		p.item(a.Object, key, Manual, becomes, "The ServiceAccount has another value of it, or another identity of this cloud, which overrides this.")
		return false
	case before[becomes] == got:
		p.item(a.Object, key, NothingToDo, becomes, "The ServiceAccount has it already.")
	default:
		p.translated(a, key, becomes, warning)
	}
	return true
}

// translated adds an item about something that is translated, unless the result would
// be denied.
func (p *planner) translated(a *account, found, becomes, why string) {
	result := Translated
	if a.denied {
		result, why = Manual, strings.TrimSpace("Nothing was changed, because Lanyard would deny the result. "+why)
	}
	p.item(a.Object, found, result, becomes, why)
}

// takeWarning returns the warning about a key, if any.
func (a *account) takeWarning(key string) string {
	for i, warning := range a.warnings {
		if rest, found := strings.CutPrefix(warning, key); found && rest != "" && (rest[0] == ':' || rest[0] == ' ') {
			a.warnings = slices.Delete(a.warnings, i, i+1)
			return strings.TrimSpace(strings.TrimPrefix(rest, ":"))
		}
	}
	return ""
}

// validate returns the mistakes for which the webhook would deny the result. What the
// cluster may have a default for is none.
func (p *planner) validate(a *account) field.ErrorList {
	_, errs := annotations.ParseServiceAccount(p.Keys, a.after, p.defaults.For(p.namespaceOf(a.Object), a.Name))
	mistakes := slices.DeleteFunc(errs, func(err *field.Error) bool {
		name := strings.TrimPrefix(p.annotationOf(err), p.Keys.Prefix)
		if _, known := settingOf[name]; known && err.Type == field.ErrorTypeRequired {
			p.lacking[name]++
			return true
		}
		return false
	})
	a.denied = len(mistakes) > 0
	return mistakes
}

// annotationOf returns the key that an error is about.
func (p *planner) annotationOf(err *field.Error) string {
	_, key, _ := strings.Cut(err.Field, "[")
	return strings.TrimSuffix(key, "]")
}
