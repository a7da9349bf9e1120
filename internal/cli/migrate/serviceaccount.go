// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// account is a ServiceAccount and its translation.
type account struct {
	*planner
	*Object
	// input contains its annotations for the peers.
	input map[string]string
	// translated is the translation of input. after contains Lanyard's annotations after the
	// migration.
	translated, after map[string]string
	findings          []peer.Finding
	// unchanged is the reason why nothing changes, or empty if something may.
	unchanged string
}

// serviceAccount plans for a ServiceAccount.
func (p *planner) serviceAccount(o *Object) {
	a := &account{planner: p, Object: o, input: p.inputOf(o)}
	_, adopted := o.Annotations[annotations.Adopted]
	needsTokens := p.needTokens[o.Namespace+"/"+o.Name]
	concerned := slices.ContainsFunc(p.From, func(from *peer.Peer) bool {
		return from.Concerns(peer.OnServiceAccount, o.Annotations) || from.Concerns(peer.OnServiceAccount, a.input) ||
			from.Concerns(peer.OnServiceAccountLabel, o.Labels)
	})
	if !needsTokens && !adopted && !concerned && len(p.agents[o.Namespace+"/"+o.Name]) == 0 {
		return
	}
	a.adopt()
	if needsTokens {
		a.addTokens()
	}
	first := len(p.plan.Items)
	remove := a.items(a.validate())
	if a.unchanged != "" {
		return
	}
	if p.leavesWork(first) || !p.Remove {
		remove = nil
	}
	if a.after[annotations.Adopted] == "" {
		remove = append(remove, annotations.Adopted)
	}
	p.change(o, a.after, remove)
}

// inputOf returns the annotations of a ServiceAccount with the ConfigMap's entry, which counts
// if the ServiceAccount has no role of its own.
func (p *planner) inputOf(o *Object) map[string]string {
	result := map[string]string{}
	maps.Copy(result, o.Annotations)
	entry, found := p.mapped[o.Namespace+"/"+o.Name]
	if !found {
		entry = p.mapped["*/"+o.Name]
	}
	for key, value := range entry {
		if _, has := result[key]; o.Annotations[eksRole] == "" && (!has || key == eksRole) {
			result[key] = value
		}
	}
	return result
}

func isAudience(key string) bool { return strings.HasSuffix(key, "/audience") }

// adopt translates as the webhook does, but removes none of Lanyard's annotations: they may
// have replaced the annotations of the peer.
func (a *account) adopt() {
	a.translated = peer.Translate(a.Settings, a.From, a.input)
	adoption := peer.Adopt(a.Settings, a.From, a.input)
	// The items report each overridden annotation.
	a.findings = slices.DeleteFunc(adoption.Findings, func(f peer.Finding) bool { return f.ByHand })
	a.after = maps.Clone(a.input)
	maps.DeleteFunc(a.after, func(key, _ string) bool { return !strings.HasPrefix(key, annotations.Prefix) })
	maps.Copy(a.after, adoption.Set)
	delete(a.after, annotations.Adopted)
	if record := a.record(); record != "" {
		a.after[annotations.Adopted] = record
	}
}

// record returns the record of adoption after the migration. It has no entry for the cloud of a
// peer that Lanyard does not adopt, or no longer adopts: an annotation without an entry belongs to
// the users who edit the ServiceAccount. Annotations of the other peers are still followed; an
// entry of a ConfigMap is not an annotation.
func (a *account) record() string {
	following, released := a.following()
	record := a.Annotations[annotations.Adopted]
	if changed, found := peer.Adopt(a.Settings, following, a.Annotations).Set[annotations.Adopted]; found {
		record = changed
	}
	return peer.Release(record, released)
}

// following returns the peers that Lanyard adopts, and those that it does not.
func (o *Options) following() (following, released []*peer.Peer) {
	for _, from := range o.From {
		if slices.Contains(o.Peers, from.Name) {
			following = append(following, from)
		} else {
			released = append(released, from)
		}
	}
	return following, released
}

// addTokens asks for Azure's token without an identity, if the ServiceAccount has none,
// because the programs choose their own. Everything else is translated as with a
// client.
func (a *account) addTokens() {
	client, tokens := annotations.Prefix+"azure-client-id", a.after[annotations.Tokens]
	isAzure := func(key string) bool { return strings.HasPrefix(key, annotations.Prefix+"azure-") }
	_, hasAudience := a.after[annotations.Audience]
	if hasAudience || strings.Contains(tokens, "azure") || slices.ContainsFunc(slices.Collect(maps.Keys(a.after)), isAzure) {
		return
	}
	values := maps.Clone(a.input)
	values[azureClient] = "any"
	for key, value := range peer.Translate(a.Settings, a.From, values) {
		isLifetime := key == annotations.TokenExpirationSeconds && a.after[key] == ""
		if (isAzure(key) || isLifetime) && key != client {
			a.after[key], a.translated[key] = value, value
		}
	}
	a.after[annotations.Tokens] = strings.TrimPrefix(tokens+",azure", ",")
}

// items adds an item for each key of the peers, in the order of their tables, and the
// items about the ServiceAccount as a whole. It returns the keys that may be removed,
// because nothing needs them anymore.
func (a *account) items(mistakes field.ErrorList) (done []string) {
	values := map[peer.Place]map[string]string{peer.OnServiceAccount: a.Annotations, peer.OnServiceAccountLabel: a.Labels}
	for _, from := range a.From {
		for i := range from.Inputs {
			in := &from.Inputs[i]
			if value, found := values[in.Place][in.Key]; found && a.keyItem(in, value) {
				done = append(done, in.Key)
			}
		}
		a.unknownKeys(a.Object, from, peer.OnServiceAccount, a.Annotations)
	}
	a.agentItems()
	for _, f := range a.findings {
		a.item(a.Object, "its annotations", peer.Manual, "", f.String())
	}
	if tokens := a.after[annotations.Tokens]; tokens != a.Annotations[annotations.Tokens] {
		result, why := a.translation("It has no client ID.")
		a.item(a.Object, azureUse+" on its pods", result, annotations.Tokens, why)
	}
	if _, released := a.following(); len(released) > 0 && a.after[annotations.Adopted] != a.Annotations[annotations.Adopted] {
		result, why := a.translation("Without it, Lanyard's annotations do not follow the annotations of the other webhook any more.")
		a.item(a.Object, annotations.Adopted, result, "", why)
	}
	for _, err := range mistakes {
		a.item(a.Object, annotations.KeyOf(err), peer.Manual, "", "Lanyard would deny it: "+err.ErrorBody())
	}
	return done
}

// agentItems adds an item for each peer that gave the pods tokens for an agent on the node.
func (a *account) agentItems() {
	pods := a.agents[a.Namespace+"/"+a.Name]
	if len(pods) == 0 {
		return
	}
	for _, from := range a.From {
		for i := range from.Inputs {
			if in := &from.Inputs[i]; in.Place == peer.InRunningPod {
				why := fmt.Sprintf("Pods: %d, such as %s. %s", len(pods), pods[0], in.Note)
				if a.after[annotations.Prefix+"aws-role-arn"] != "" {
					why += " New pods get the role of the ServiceAccount from Lanyard in addition, and SDKs prefer it."
				}
				a.item(a.Object, in.Key+" in its pods", in.Result, "", why)
			}
		}
	}
}

// keyItem adds the item about one key. It reports whether the key is no longer needed.
func (a *account) keyItem(in *peer.Input, value string) bool {
	finding, becomes := a.takeFinding(in.Key), a.becomes(in)
	got, found := a.after[becomes]
	want, wanted := a.translated[becomes]
	result, why := peer.Manual, ""
	switch {
	case in.Result != peer.Translated:
		result, why = in.Result, cmp.Or(finding, in.Note)
	case value == "" && isAudience(in.Key):
		why = in.Note
	case value == "":
		result, becomes, why = peer.NothingToDo, "", "It is empty. "+finding
	case !wanted && (!found || finding != ""):
		why = cmp.Or(finding, "It has no effect: the ServiceAccount does not ask for an identity in full, or it is turned off.")
	case wanted && got != want:
		why = "The ServiceAccount has another value of it, or another identity of this cloud, which overrides this."
	case a.Annotations[becomes] == got:
		result, why = peer.NothingToDo, "The ServiceAccount has it already."
	default:
		result, why = a.translation(finding)
	}
	a.item(a.Object, in.Key, result, becomes, why)
	return result == peer.NothingToDo || result == peer.Translated
}

// translation returns the result of a translation, unless the webhook would deny it.
func (a *account) translation(why string) (peer.Result, string) {
	if a.unchanged != "" {
		return peer.Manual, "Nothing was changed, because " + a.unchanged + ". " + why
	}
	return peer.Translated, why
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
	mistakes := slices.DeleteFunc(a.mistakes(a.after, a.Namespace, a.Name), func(err *field.Error) bool {
		name := strings.TrimPrefix(annotations.KeyOf(err), annotations.Prefix)
		isDefault := settingOf[name] != "" && err.Type == field.ErrorTypeRequired
		if isDefault {
			a.lacking[name]++
		}
		return isDefault
	})
	switch {
	case len(mistakes) > 0:
		a.unchanged = "Lanyard would deny the result"
	case len(a.agents[a.Namespace+"/"+a.Name]) > 0:
		a.unchanged = usesAgent
	}
	return mistakes
}

// usesAgent is the reason why nothing changes: the peer prefers the agent to a role.
const usesAgent = "its pods get their credentials from an agent on the node"

// mistakes returns the mistakes of a ServiceAccount with these annotations of Lanyard. The
// prefix of role ARNs, which is a setting, is another item of the plan.
func (p *planner) mistakes(values map[string]string, namespace, name string) field.ErrorList {
	_, errs := p.ParseServiceAccount(namespace, name, values)
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		key := annotations.KeyOf(err)
		return p.composesRoles && key == annotations.Prefix+"aws-role-arn" && !strings.HasPrefix(values[key], "arn:")
	})
}
