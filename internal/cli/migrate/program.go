// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// settings adds an item for each setting in the table. The others, such as the port,
// are about the program itself.
func (p *planner) settings(o *Object, from *peer.Peer) {
	values := o.settings(from)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		in := cmp.Or(from.Input(peer.AsFlag, name), from.Input(peer.AsVariable, name))
		if in == nil {
			continue
		}
		value := values[name]
		standard, hasStandard := from.Defaults[name]
		switch {
		case in.Result == peer.Unsupported && value == "", in.Result != peer.NothingToDo && hasStandard && value == standard, value == "false":
			p.item(o, name, peer.NothingToDo, "", "It has its default.")
		case in.Result == peer.Setting && !p.configures(o, from):
			p.item(o, name, peer.Manual, in.Becomes, "Nothing was taken over, because "+notHome(o, from)+" Set it yourself if the object belongs to the program.")
		case in.Result == peer.Setting:
			p.setting(o, in, name, value)
		default:
			p.row(o, name, in)
		}
	}
}

// setting turns a setting of the peer into a setting of Lanyard.
func (p *planner) setting(o *Object, in *peer.Input, name, value string) {
	if value == "" {
		return // it comes from elsewhere, such as a ConfigMap
	}
	if translated, known := in.Values[strings.ToLower(value)]; known {
		value = translated
	} else if in.Values != nil {
		p.item(o, name, peer.Manual, in.Becomes, fmt.Sprintf("Got %.100q. %s", value, in.Note))
		return
	}
	if previous, found := p.plan.Config[in.SettingOf()]; found && previous != value {
		p.item(o, name, peer.Manual, in.Becomes, "Another object has another value.")
		return
	}
	p.plan.Config[in.SettingOf()] = value
	p.row(o, name, in)
}

// notHome returns the reason why an object does not configure the peer.
func notHome(o *Object, from *peer.Peer) string {
	return fmt.Sprintf("no webhook configuration of %s names a Service in the namespace %s.", from.Program, o.Namespace)
}

// mappings plans for the entries of EKS's ConfigMap.
func (p *planner) mappings(o *Object, eks *peer.Peer) {
	mapped, err := peer.Mapped(o.Data)
	if err != nil {
		p.item(o, "config", peer.Manual, "", fmt.Sprintf("It cannot be read: %v", err))
	}
	for _, name := range slices.Sorted(maps.Keys(mapped)) {
		p.mapping(o, eks, name, mapped[name])
	}
}

// mapping plans for one entry of EKS's ConfigMap.
func (p *planner) mapping(o *Object, eks *peer.Peer, name string, values map[string]string) {
	role := annotations.Prefix + "aws-role-arn"
	namespace, account, _ := strings.Cut(name, "/")
	set := peer.Translate(p.Settings, p.From, values)
	mistakes, accounts := p.mistakes(set, namespace, account), p.accounts[name]
	var has map[string]string
	if len(accounts) > 0 {
		has = accounts[0].Annotations
	}
	_, done := has[role]
	switch {
	case has[eksRole] != "":
		p.item(o, name, peer.NothingToDo, "", "The ServiceAccount has an annotation, which overrides the entry.")
	case done:
		p.item(o, name, peer.NothingToDo, role, "The ServiceAccount has it already.")
	case len(p.agents[name]) > 0:
		p.item(o, name, peer.Manual, role, "Nothing was changed, because "+usesAgent+".")
	case !p.configures(o, eks) && (namespace != o.Namespace || len(accounts) == 0):
		p.item(o, name, peer.Manual, role, "Nothing was changed, because "+notHome(o, eks)+" Annotate the ServiceAccount if the object belongs to the program.")
	case len(accounts) > 0 && len(mistakes) > 0:
		p.item(o, name, peer.Manual, role, "Nothing was changed, because Lanyard would deny the result.")
	case len(accounts) > 0:
		p.item(o, name, peer.Translated, role, "The ServiceAccount gets it with --write.")
	case len(mistakes) > 0:
		p.item(o, name, peer.Manual, role, "Lanyard would deny it: "+mistakes[0].ErrorBody())
	case strings.Contains(account, "*") || namespace != "*" && strings.Contains(namespace, "*"):
		p.item(o, name, peer.Manual, role, "The entry has no effect: its program compares names, and knows the namespace * for all namespaces only.")
	default:
		p.identity(o, namespace, account, set)
	}
}

// identity turns an entry of EKS's ConfigMap into a setting.
func (p *planner) identity(o *Object, namespace, account string, set map[string]string) {
	short := map[string]any{}
	for key, value := range set {
		short[strings.TrimPrefix(key, annotations.Prefix)] = value
	}
	list, _ := p.plan.Config["identities"].([]any)
	p.plan.Config["identities"] = append(list, map[string]any{"namespace": namespace, "serviceAccount": account, "annotations": short})
	why := "The ServiceAccount was not found. Lanyard writes the annotations when it is created or changed."
	if namespace == "*" {
		why = "The ServiceAccounts of this name that exist get it with --write. Lanyard writes the others when they are created or changed."
	}
	p.item(o, namespace+"/"+account, peer.Setting, "config.identities", why)
}

// webhooks plans for a webhook configuration.
func (p *planner) webhooks(o *Object) {
	for _, from := range p.From {
		if from.Registers(o.Registration) {
			p.item(o, "webhook of "+from.Program, peer.Manual, "", from.Beside(o.Registration, p.lanyard)+" Delete it when Lanyard has taken over.")
		}
	}
}
