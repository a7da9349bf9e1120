// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// account is a ServiceAccount and its translation.
type account struct {
	*Object
	// theirs are the annotations that the peers read, with the ConfigMap's entry.
	theirs map[string]string
	// translated is the translation of theirs. before and after are Lanyard's annotations
	// before and after the migration.
	translated, before, after map[string]string
	findings                  []peer.Finding
	// denied reports whether the webhook would deny the result, so that nothing is
	// changed.
	denied bool
}

// serviceAccount plans for a ServiceAccount.
func (p *planner) serviceAccount(o *Object) {
	a := &account{Object: o, theirs: p.theirs(o), before: maps.Clone(o.Annotations)}
	maps.DeleteFunc(a.before, func(key, _ string) bool { return !strings.HasPrefix(key, p.Keys.Prefix) })
	needsTokens := p.needTokens[p.namespaceOf(o)+"/"+o.Name]
	_, adopted := a.before[p.Keys.Adopted]
	if len(a.theirs) == 0 && !needsTokens && !adopted && !p.reads(o) {
		return
	}
	a.translated = p.translate(a.theirs)
	p.adopt(a)
	if needsTokens {
		p.addTokens(a)
	}
	if adopted {
		p.release(a)
	}
	errs := p.validate(a)
	first := len(p.plan.Items)
	remove := p.accountItems(a)
	if needsTokens && a.after[p.Keys.Tokens] != a.before[p.Keys.Tokens] {
		p.translatedItem(a, azureUse+" on its pods", p.Keys.Tokens, "It has no client ID.")
	}
	if adopted && a.after[p.Keys.Adopted] != a.before[p.Keys.Adopted] {
		p.translatedItem(a, p.Keys.Adopted, "", "Lanyard's annotations do not follow the annotations of the other webhook any more.")
	}
	for _, err := range errs {
		p.item(o, annotationOf(err), peer.Manual, "", "Lanyard would deny it: "+err.ErrorBody())
	}
	if a.denied {
		return
	}
	if p.leavesWork(first) {
		remove = nil
	}
	for key := range a.before {
		if _, found := a.after[key]; !found {
			remove = append(remove, key)
		}
	}
	p.change(o, nil, o.Annotations, a.after, remove)
}

// reads reports whether a peer has to do with the ServiceAccount.
func (p *planner) reads(o *Object) bool {
	return slices.ContainsFunc(p.From, func(from *peer.Peer) bool {
		return concerns(from, peer.OnServiceAccount, o.Annotations) || concerns(from, peer.OnServiceAccountLabel, o.Labels)
	})
}

// concerns reports whether the peer reads any of the keys, or owns one.
func concerns(from *peer.Peer, place peer.Place, values map[string]string) bool {
	for key := range values {
		if from.Input(place, key) != nil || from.OwnsPrefix && strings.HasPrefix(key, from.Prefix) {
			return true
		}
	}
	return false
}

// theirs returns the annotations that the peers read, with the ConfigMap's entry,
// which counts if the ServiceAccount has no role of its own. An empty audience is
// left out: Lanyard denies it.
func (p *planner) theirs(o *Object) map[string]string {
	result := map[string]string{}
	for key, value := range o.Annotations {
		if slices.ContainsFunc(p.From, func(from *peer.Peer) bool { return from.Reads(key) }) {
			result[key] = value[:min(len(value), peer.MaxBytes)]
		}
	}
	entry, found := p.mapped[p.namespaceOf(o)+"/"+o.Name]
	if !found {
		entry = p.mapped["*/"+o.Name]
	}
	for key, value := range entry {
		if _, has := result[key]; o.Annotations[eksRole] == "" && (!has || key == eksRole) {
			result[key] = value
		}
	}
	maps.DeleteFunc(result, func(key, value string) bool { return value == "" && isAudience(key) })
	return result
}

func isAudience(key string) bool { return strings.HasSuffix(key, "/audience") }

// translate returns only the annotations that the peers' annotations translate to.
func (p *planner) translate(theirs map[string]string) map[string]string {
	values := peer.Adopt(p.Keys, p.From, theirs, p.defaults).Set
	delete(values, p.Keys.Adopted)
	return values
}

// adopt translates as the webhook does, but removes nothing of Lanyard's: the
// annotations of the peer may be gone because Lanyard's have taken their place.
func (p *planner) adopt(a *account) {
	values := maps.Clone(a.theirs)
	maps.Copy(values, a.before)
	adoption := peer.Adopt(p.Keys, p.From, values, p.defaults)
	// accountItem reports each overridden annotation.
	a.findings = slices.DeleteFunc(adoption.Findings, func(f peer.Finding) bool { return f.Reason == peer.ByHand })
	a.after = adoption.Set
	delete(a.after, p.Keys.Adopted)
	for key, value := range a.before {
		if _, changed := a.after[key]; !changed {
			a.after[key] = value
		}
	}
}

// addTokens asks for Azure's token without an identity, if the ServiceAccount has
// none: the programs bring their own. Everything else is translated as with a client.
func (p *planner) addTokens(a *account) {
	azure := func(key string) bool { return strings.HasPrefix(key, p.Keys.Prefix+"azure-") }
	tokens := a.after[p.Keys.Tokens]
	_, hasAudience := a.after[p.Keys.Audience]
	if hasAudience || strings.Contains(tokens, "azure") || slices.ContainsFunc(slices.Collect(maps.Keys(a.after)), azure) {
		return
	}
	theirs := maps.Clone(a.theirs)
	theirs[azureClient] = "any"
	for key, value := range p.translate(theirs) {
		isLifetime := key == p.Keys.TokenExpirationSeconds && a.after[key] == ""
		if (azure(key) || isLifetime) && key != p.Keys.Prefix+"azure-client-id" {
			a.after[key], a.translated[key] = value, value
		}
	}
	a.after[p.Keys.Tokens] = strings.TrimPrefix(tokens+",azure", ",")
}

// release removes the entries of the peers' clouds from the record of adoption. An
// annotation without an entry belongs to the users who edit the ServiceAccount. The
// lifetime of the tokens stays in the record as long as another cloud's does.
func (p *planner) release(a *account) {
	var rest []string
	others := false
	for entry := range strings.SplitSeq(a.before[p.Keys.Adopted], ",") {
		cloud, _, _ := strings.Cut(entry, "-")
		if entry == "" || slices.ContainsFunc(p.From, func(from *peer.Peer) bool { return from.Provider == cloud }) {
			continue
		}
		rest = append(rest, entry)
		others = others || !strings.HasPrefix(entry, "token-expiration-seconds=")
	}
	delete(a.after, p.Keys.Adopted)
	if others {
		a.after[p.Keys.Adopted] = strings.Join(rest, ",")
	}
}

// accountItems adds an item for each key of the peers, in the order of their tables.
// It returns the keys that may be removed: those that nothing needs any more.
func (p *planner) accountItems(a *account) (done []string) {
	for _, from := range p.From {
		for i := range from.Inputs {
			in := &from.Inputs[i]
			label, isLabel := a.Labels[in.Key]
			value, isAnnotation := a.Annotations[in.Key]
			switch {
			case in.Place == peer.OnServiceAccountLabel && isLabel:
				p.accountItem(a, in, label)
			case in.Place == peer.OnServiceAccount && isAnnotation:
				if p.accountItem(a, in, value) && p.Remove {
					done = append(done, in.Key)
				}
			}
		}
		p.unknownKeys(a.Object, from, peer.OnServiceAccount, a.Annotations)
	}
	var rest []string
	for _, f := range a.findings {
		rest = append(rest, f.String())
	}
	if len(rest) > 0 {
		p.item(a.Object, "its annotations", peer.Manual, "", strings.Join(rest, "; "))
	}
	return done
}

// accountItem adds the item about one key. It reports whether the key is not needed
// any more.
func (p *planner) accountItem(a *account, in *peer.Input, value string) bool {
	finding, becomes := a.takeFinding(in.Key), p.becomes(in)
	got, found := a.after[becomes]
	want, wanted := a.translated[becomes]
	switch {
	case in.Result != peer.Translated:
		if finding == "" {
			finding = in.Note
		}
		p.item(a.Object, in.Key, in.Result, becomes, finding)
		return in.Result == peer.NothingToDo
	case value == "" && !isAudience(in.Key):
		p.item(a.Object, in.Key, peer.NothingToDo, "", "It is empty. "+finding)
	case !wanted && (!found || finding != ""):
		if value == "" {
			finding = in.Note
		}
		if finding == "" {
			finding = "It has no effect: the ServiceAccount does not ask for an identity in full, or it is turned off."
		}
		p.item(a.Object, in.Key, peer.Manual, becomes, finding)
		return false
	case wanted && got != want:
		p.item(a.Object, in.Key, peer.Manual, becomes,
			"The ServiceAccount has another value of it, or another identity of this cloud, which overrides this.")
		return false
	case a.before[becomes] == got:
		p.item(a.Object, in.Key, peer.NothingToDo, becomes, "The ServiceAccount has it already.")
	default:
		p.translatedItem(a, in.Key, becomes, finding)
	}
	return true
}

// translatedItem adds an item about something that is translated, unless the result
// would be denied.
func (p *planner) translatedItem(a *account, found, becomes, why string) {
	if a.denied {
		p.item(a.Object, found, peer.Manual, becomes, "Nothing was changed, because Lanyard would deny the result. "+why)
		return
	}
	p.item(a.Object, found, peer.Translated, becomes, why)
}

// takeFinding returns the text of the finding about a key, if any, and removes it.
func (a *account) takeFinding(key string) string {
	i := slices.IndexFunc(a.findings, func(f peer.Finding) bool { return f.Key == key })
	if i < 0 {
		return ""
	}
	text := a.findings[i].Text
	a.findings = slices.Delete(a.findings, i, i+1)
	return text
}

// validate returns the mistakes for which the webhook would deny the result. Missing
// values that the cluster may default are not mistakes.
func (p *planner) validate(a *account) field.ErrorList {
	_, errs := annotations.ParseServiceAccount(p.Keys, a.after, p.defaults.For(p.namespaceOf(a.Object), a.Name))
	mistakes := slices.DeleteFunc(errs, func(err *field.Error) bool {
		key := annotationOf(err)
		name := strings.TrimPrefix(key, p.Keys.Prefix)
		if settingOf[name] != "" && err.Type == field.ErrorTypeRequired {
			p.lacking[name]++
			return true
		}
		// The setting for the start of the ARN is another item of the plan.
		return p.composesRoles && name == "aws-role-arn" && !strings.HasPrefix(a.after[key], "arn:")
	})
	a.denied = len(mistakes) > 0
	return mistakes
}

// annotationOf returns the key that an error is about.
func annotationOf(err *field.Error) string {
	_, key, _ := strings.Cut(err.Field, "[")
	return strings.TrimSuffix(key, "]")
}
