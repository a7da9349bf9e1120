// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// podPlan is a pod template and its new annotations.
type podPlan struct {
	*planner
	*Object
	// serviceAccounts are the objects of the pod's ServiceAccount.
	serviceAccounts []*Object
	// set contains the annotations that it needs.
	set map[string]string
}

// pod plans for a pod, or for the template of a workload.
func (p *planner) pod(o *Object) {
	if o.Owned {
		return // the item is about its ServiceAccount
	}
	t := &podPlan{planner: p, Object: o, serviceAccounts: p.accounts[accountOf(o)], set: map[string]string{}}
	for _, from := range p.From {
		t.peer(from)
	}
	t.unlabelled()
}

// peer plans for the inputs of one peer.
func (t *podPlan) peer(from *peer.Peer) {
	for _, key := range slices.Sorted(maps.Keys(t.Pod.Annotations)) {
		in := from.Input(peer.OnPod, key)
		switch {
		case in == nil || t.wrote(from, in, t.Pod.Annotations[key]):
		case in.Becomes == "skip-containers":
			t.skip(from, in, key, t.Pod.Annotations[key])
		case in.Becomes == "token-expiration-seconds":
			t.lifetime(from, in, key, t.Pod.Annotations[key])
		default:
			t.row(t.Object, key, in)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Pod.Labels)) {
		if in := from.Input(peer.OnPodLabel, key); in != nil && key == azureUse {
			t.azureLabel(from, in)
		} else if in != nil {
			t.write(in, key, annotations.OptOut, "")
		}
	}
	t.variables(from)
	for _, key := range slices.Sorted(maps.Keys(t.Pod.NodeSelector)) {
		if in := from.Input(peer.OnPodField, key); in != nil {
			t.row(t.Object, "nodeSelector "+key, in)
		}
	}
	t.unknownKeys(t.Object, from, peer.OnPod, t.Pod.Annotations)
}

// variables plans for the variables of containers, except those that the peer wrote, and those that
// point to the copy of the token.
func (t *podPlan) variables(from *peer.Peer) {
	for _, c := range t.Pod.Containers {
		if slices.Contains(from.Containers, c.Name) {
			continue
		}
		for _, v := range c.Env {
			written := v.Value == from.TokenPath || t.Kind == "Pod" && (from.Wrote(v.Value) || t.usesAgent(from))
			if in := from.Input(peer.InContainer, v.Name); in != nil && !written && t.concerns(from) {
				t.row(t.Object, v.Name+" in the container "+c.Name, in)
			}
		}
	}
}

// wrote reports whether the peer wrote the lifetime to a pod that it changed. Such a pod
// also has the identity, which users never write there.
func (t *podPlan) wrote(from *peer.Peer, in *peer.Input, value string) bool {
	if in.Becomes != "token-expiration-seconds" || !from.Asks(t.Pod.Annotations) {
		return false
	}
	return len(t.serviceAccounts) == 0 ||
		peer.Translate(t.Settings, []*peer.Peer{from}, t.inputOf(t.serviceAccounts[0]))[annotations.TokenExpirationSeconds] == value
}

// skip translates a list of containers. It drops names that no container can have,
// which had no effect with the peer, either.
func (t *podPlan) skip(from *peer.Peer, in *peer.Input, key, value string) {
	var names, wrong []string
	for _, name := range split(from, value) {
		if len(name) <= validation.DNS1123LabelMaxLength && len(validation.IsDNS1123Label(name)) == 0 {
			names = append(names, name)
		} else {
			wrong = append(wrong, fmt.Sprintf("%.63q", name))
		}
	}
	why := ""
	if len(wrong) > 0 {
		why = "No container can have the name " + strings.Join(wrong, ", ") + ": it never matched, and is left out."
	}
	if len(names) == 0 {
		t.item(t.Object, key, peer.NothingToDo, "", "It names no container. "+why)
		return
	}
	if _, found := t.Pod.Annotations[annotations.Containers]; found {
		t.item(t.Object, key, peer.Manual, annotations.SkipContainers, "The pod has "+annotations.Containers+", and cannot have both.")
		return
	}
	t.write(in, key, strings.Join(names, ","), why)
}

// split splits a peer's list of containers, without those that the peer adds. A list in
// CSV keeps its spaces, and is empty if it cannot be read.
func split(from *peer.Peer, value string) []string {
	if from.Separator == "csv" {
		record, err := csv.NewReader(strings.NewReader(value)).Read()
		if err != nil {
			return nil
		}
		return record
	}
	var names []string
	for name := range strings.SplitSeq(value, from.Separator) {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(from.Containers, name) {
			names = append(names, name)
		}
	}
	return names
}

// lifetime translates a lifetime by the rule for ServiceAccounts.
func (t *podPlan) lifetime(from *peer.Peer, in *peer.Input, key, value string) {
	theirs := map[string]string{key: value}
	for _, identity := range from.Identity {
		theirs[identity] = "any"
	}
	adoption := peer.Adopt(t.Settings, []*peer.Peer{from}, theirs)
	seconds := adoption.Set[annotations.TokenExpirationSeconds]
	least := int64(0)
	if from.Lifetime.Denies {
		least = from.Lifetime.Least
	}
	switch _, err := annotations.ParseTokenExpirationSeconds(seconds, least); {
	case seconds == "":
		t.item(t.Object, key, peer.NothingToDo, "", "It is empty.")
	case err != nil:
		t.item(t.Object, key, peer.Manual, t.becomes(in), fmt.Sprintf("It %v. %s denies the pod, too.", err, from.Program))
	default:
		var why []string
		for _, f := range adoption.Findings {
			why = append(why, f.Text)
		}
		t.write(in, key, seconds, strings.Join(why, "; "))
	}
}

// azureLabel plans for the label of Azure. Its effect depends on the ServiceAccount.
func (t *podPlan) azureLabel(from *peer.Peer, in *peer.Input) {
	account := t.Pod.ServiceAccount
	asks := func(o *Object) bool {
		return o.Annotations[azureClient] != "" || strings.Contains(o.Annotations[annotations.Tokens], "azure")
	}
	switch {
	case t.Pod.Labels[azureUse] != "true":
		t.item(t.Object, azureUse, peer.NothingToDo, "", "Only the value true has an effect.")
	case t.Pod.bound(from):
		t.item(t.Object, azureUse, peer.NothingToDo, "", "The pod has an identity binding, which is another item.")
	case len(t.serviceAccounts) == 0:
		t.item(t.Object, azureUse, peer.Manual, t.becomes(in),
			fmt.Sprintf("The ServiceAccount %s was not found. If it has no client ID, set %s: azure on it.", account, annotations.Tokens))
	case !slices.ContainsFunc(t.serviceAccounts, asks):
		t.item(t.Object, azureUse, peer.NothingToDo, t.becomes(in), "The ServiceAccount "+account+" gets it with --write.")
	default:
		t.item(t.Object, azureUse, peer.NothingToDo, "", "The ServiceAccount "+account+" asks for credentials.")
	}
}

// unlabelled plans for a pod that Azure's webhook ignores, although its ServiceAccount
// has a client ID. With Lanyard, it gets credentials.
func (t *podPlan) unlabelled() {
	pod := t.Pod
	if t.from("azure") == nil || pod.Labels[azureUse] == "true" || pod.Annotations[annotations.Inject] != "" || pod.Labels[annotations.Inject] != "" {
		return
	}
	hasClient := func(o *Object) bool { return o.Annotations[azureClient] != "" || t.needTokens[accountOf(t.Object)] }
	if slices.ContainsFunc(t.serviceAccounts, hasClient) {
		t.item(t.Object, "no label "+azureUse, peer.Manual, annotations.Inject,
			fmt.Sprintf("The pods of the ServiceAccount %s get credentials from now on. Set it to %q for those that must not.",
				pod.ServiceAccount, annotations.OptOut))
	}
}

// concerns reports whether the pod's ServiceAccount uses the peer, or is unknown.
func (t *podPlan) concerns(from *peer.Peer) bool {
	return len(t.serviceAccounts) == 0 || slices.ContainsFunc(t.serviceAccounts, func(o *Object) bool {
		return from.Concerns(peer.OnServiceAccount, o.Annotations)
	})
}

// write adds an item about an annotation of Lanyard that the template needs.
func (t *podPlan) write(in *peer.Input, key, value, why string) {
	name := t.becomes(in)
	becomes := name + "=" + value
	got, found := t.Pod.Annotations[name]
	if !found {
		got, found = t.set[name]
	}
	switch {
	case found && got != value:
		t.item(t.Object, key, peer.Manual, becomes, fmt.Sprintf("The pod has another %s: Lanyard has one for all clouds.", name))
	case found:
		t.item(t.Object, key, peer.NothingToDo, becomes, "The pod has it already.")
	default:
		t.set[name] = value
		t.item(t.Object, key, peer.Manual, becomes, "A change would restart the pods: make it where the manifest comes from. "+why)
	}
}
