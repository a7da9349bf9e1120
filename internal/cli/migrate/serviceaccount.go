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
	*planner
	*Object
	// peers are the annotations that the peers read, with the ConfigMap's entry.
	peers map[string]string
	// translated is the translation of peers. before and after are Lanyard's annotations
	// before and after the migration.
	translated, before, after map[string]string
	findings                  []peer.Finding
	// denied reports whether the webhook would deny the result, so that nothing is
	// changed.
	denied bool
}

// serviceAccount plans for a ServiceAccount.
func (p *planner) serviceAccount(o *Object) {
	a := &account{planner: p, Object: o, peers: p.peerAnnotations(o), before: maps.Clone(o.Annotations)}
	maps.DeleteFunc(a.before, func(key, _ string) bool { return !strings.HasPrefix(key, p.Keys.Prefix) })
	_, adopted := a.before[p.Keys.Adopted]
	needsTokens := p.needTokens[p.namespaceOf(o)+"/"+o.Name]
	concerned := slices.ContainsFunc(p.From, func(from *peer.Peer) bool {
		return from.Concerns(peer.OnServiceAccount, o.Annotations) || from.Concerns(peer.OnServiceAccountLabel, o.Labels)
	})
	if len(a.peers) == 0 && !needsTokens && !adopted && !concerned {
		return
	}
	a.adopt()
	if needsTokens {
		a.addTokens()
	}
	if adopted {
		a.release()
	}
	first := len(p.plan.Items)
	remove := a.items(a.validate())
	if a.denied {
		return
	}
	if p.leavesWork(first) || !p.Remove {
		remove = nil
	}
	for key := range a.before {
		if _, found := a.after[key]; !found {
			remove = append(remove, key)
		}
	}
	p.change(o, nil, o.Annotations, a.after, remove)
}

// peerAnnotations returns the annotations that the peers read, with the ConfigMap's
// entry, which counts if the ServiceAccount has no role of its own. An empty audience is
// left out: Lanyard denies it.
func (p *planner) peerAnnotations(o *Object) map[string]string {
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
func (p *planner) translate(values map[string]string) map[string]string {
	set := peer.Adopt(p.Keys, p.From, values, p.defaults).Set
	delete(set, p.Keys.Adopted)
	return set
}

// adopt translates as the webhook does, but removes nothing of Lanyard's: the
// annotations of the peer may be gone because Lanyard's have taken their place.
func (a *account) adopt() {
	a.translated = a.translate(a.peers)
	values := maps.Clone(a.peers)
	maps.Copy(values, a.before)
	adoption := peer.Adopt(a.Keys, a.From, values, a.defaults)
	// The items report each overridden annotation.
	a.findings = slices.DeleteFunc(adoption.Findings, func(f peer.Finding) bool { return f.Reason == peer.ByHand })
	delete(adoption.Set, a.Keys.Adopted)
	a.after = map[string]string{}
	maps.Copy(a.after, a.before)
	maps.Copy(a.after, adoption.Set)
}

// addTokens asks for Azure's token without an identity, if the ServiceAccount has
// none: the programs bring their own. Everything else is translated as with a client.
func (a *account) addTokens() {
	client, tokens := a.Keys.Prefix+"azure-client-id", a.after[a.Keys.Tokens]
	isAzure := func(key string) bool { return strings.HasPrefix(key, a.Keys.Prefix+"azure-") }
	_, hasAudience := a.after[a.Keys.Audience]
	if hasAudience || strings.Contains(tokens, "azure") || slices.ContainsFunc(slices.Collect(maps.Keys(a.after)), isAzure) {
		return
	}
	values := maps.Clone(a.peers)
	values[azureClient] = "any"
	for key, value := range a.translate(values) {
		isLifetime := key == a.Keys.TokenExpirationSeconds && a.after[key] == ""
		if (isAzure(key) || isLifetime) && key != client {
			a.after[key], a.translated[key] = value, value
		}
	}
	a.after[a.Keys.Tokens] = strings.TrimPrefix(tokens+",azure", ",")
}

// release removes the entries of the peers' clouds from the record of adoption. An
// annotation without an entry belongs to the users who edit the ServiceAccount.
func (a *account) release() {
	delete(a.after, a.Keys.Adopted)
	if record := peer.Release(a.before[a.Keys.Adopted], a.From); record != "" {
		a.after[a.Keys.Adopted] = record
	}
}

// items adds an item for each key of the peers, in the order of their tables, and the
// items about the ServiceAccount as a whole. It returns the keys that may be removed,
// because nothing needs them any more.
func (a *account) items(mistakes field.ErrorList) (done []string) {
	for _, from := range a.From {
		for i := range from.Inputs {
			in := &from.Inputs[i]
			value, found := a.Annotations[in.Key]
			if in.Place == peer.OnServiceAccountLabel {
				value, found = a.Labels[in.Key]
			} else if in.Place != peer.OnServiceAccount {
				continue
			}
			if found && a.keyItem(in, value) {
				done = append(done, in.Key)
			}
		}
		a.unknownKeys(a.Object, from, peer.OnServiceAccount, a.Annotations)
	}
	for _, f := range a.findings {
		a.item(a.Object, "its annotations", peer.Manual, "", f.String())
	}
	if tokens := a.after[a.Keys.Tokens]; tokens != a.before[a.Keys.Tokens] {
		a.translatedItem(azureUse+" on its pods", a.Keys.Tokens, "It has no client ID.")
	}
	if a.after[a.Keys.Adopted] != a.before[a.Keys.Adopted] {
		a.translatedItem(a.Keys.Adopted, "", "Without it, Lanyard's annotations do not follow the annotations of the other webhook any more.")
	}
	for _, err := range mistakes {
		a.item(a.Object, annotationOf(err), peer.Manual, "", "Lanyard would deny it: "+err.ErrorBody())
	}
	return done
}

// keyItem adds the item about one key. It reports whether the key is not needed any
// more.
func (a *account) keyItem(in *peer.Input, value string) bool {
	finding, becomes := a.takeFinding(in.Key), a.becomes(in)
	got, found := a.after[becomes]
	want, wanted := a.translated[becomes]
	switch {
	case in.Result != peer.Translated:
		if finding == "" {
			finding = in.Note
		}
		a.item(a.Object, in.Key, in.Result, becomes, finding)
		return in.Result == peer.NothingToDo
	case value == "" && isAudience(in.Key):
		a.item(a.Object, in.Key, peer.Manual, becomes, in.Note)
		return false
	case value == "":
		a.item(a.Object, in.Key, peer.NothingToDo, "", "It is empty. "+finding)
	case !wanted && (!found || finding != ""):
		if finding == "" {
			finding = "It has no effect: the ServiceAccount does not ask for an identity in full, or it is turned off."
		}
		a.item(a.Object, in.Key, peer.Manual, becomes, finding)
		return false
	case wanted && got != want:
		a.item(a.Object, in.Key, peer.Manual, becomes,
			"The ServiceAccount has another value of it, or another identity of this cloud, which overrides this.")
		return false
	case a.before[becomes] == got:
		a.item(a.Object, in.Key, peer.NothingToDo, becomes, "The ServiceAccount has it already.")
	default:
		a.translatedItem(in.Key, becomes, finding)
	}
	return true
}

// translatedItem adds an item about something that is translated, unless the result
// would be denied.
func (a *account) translatedItem(found, becomes, why string) {
	if a.denied {
		a.item(a.Object, found, peer.Manual, becomes, "Nothing was changed, because Lanyard would deny the result. "+why)
		return
	}
	a.item(a.Object, found, peer.Translated, becomes, why)
}

// takeFinding returns the text of the finding about a key, if any, and removes it.
func (a *account) takeFinding(key string) (text string) {
	a.findings = slices.DeleteFunc(a.findings, func(f peer.Finding) bool {
		if f.Key == key {
			text = f.Text
		}
		return f.Key == key
	})
	return text
}

// validate returns the mistakes for which the webhook would deny the result. Missing
// values that the cluster may default are not mistakes.
func (a *account) validate() field.ErrorList {
	mistakes := slices.DeleteFunc(a.mistakes(a.after, a.namespaceOf(a.Object), a.Name), func(err *field.Error) bool {
		name := strings.TrimPrefix(annotationOf(err), a.Keys.Prefix)
		isDefault := settingOf[name] != "" && err.Type == field.ErrorTypeRequired
		if isDefault {
			a.lacking[name]++
		}
		return isDefault
	})
	a.denied = len(mistakes) > 0
	return mistakes
}

// mistakes returns the mistakes of a ServiceAccount with these annotations of Lanyard. The
// setting for the start of a role's ARN is another item of the plan.
func (p *planner) mistakes(values map[string]string, namespace, name string) field.ErrorList {
	_, errs := annotations.ParseServiceAccount(p.Keys, values, p.defaults.For(namespace, name))
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		key := annotationOf(err)
		return p.composesRoles && key == p.Keys.Prefix+"aws-role-arn" && !strings.HasPrefix(values[key], "arn:")
	})
}

// annotationOf returns the key that an error is about.
func annotationOf(err *field.Error) string {
	_, key, _ := strings.Cut(err.Field, "[")
	return strings.TrimSuffix(key, "]")
}
