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

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// podPlan is a pod template and what becomes of it.
type podPlan struct {
	*planner
	object *Object
	set    map[string]string
	remove []string
}

// pod plans for a pod, or for the template of a workload.
func (p *planner) pod(o *Object) {
	t := &podPlan{planner: p, object: o, set: map[string]string{}}
	first := len(p.plan.Items)
	for _, peer := range p.From {
		t.peer(peer)
	}
	t.unlabelled()
	if p.leavesWork(first) {
		t.remove = nil
	}
	if !p.Cluster {
		p.change(o, o.Pod.Path, o.Pod.Annotations, t.set, t.remove)
	}
}

// peer plans for what one peer reads.
func (t *podPlan) peer(peer *Peer) {
	pod := t.object.Pod
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if in := peer.input(OnPod, key); in != nil {
			t.annotation(peer, in, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
		if in := peer.input(OnPodLabel, key); in != nil {
			t.label(in, key)
		}
	}
	t.containers(peer)
	for _, key := range slices.Sorted(maps.Keys(pod.NodeSelector)) {
		if in := peer.input(OnPodField, key); in != nil {
			t.row(t.object, "nodeSelector "+key, in)
		}
	}
	t.unknownKeys(t.object, peer, OnPod, pod.Annotations)
	if peer.Name == "cwii" && len(pod.Path) > 0 {
		t.owner(peer)
	}
}

// annotation plans for an annotation of the pod.
func (t *podPlan) annotation(peer *Peer, in *Input, key string) {
	value := t.object.Pod.Annotations[key]
	switch {
	case strings.HasSuffix(key, "/"+skipContainers):
		t.skip(peer, in, key, value)
	case strings.HasSuffix(key, expiration) && peer.adopted != nil:
		t.expiration(peer, in, key, value)
	default:
		t.row(t.object, key, in)
	}
}

// skip translates a list of containers. It can leave out only names that containers
// can have: the peer compared with those, too.
func (t *podPlan) skip(peer *Peer, in *Input, key, value string) {
	var names, wrong []string
	for _, name := range peer.splitNames(value) {
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
		t.item(t.object, key, NothingToDo, "", strings.TrimSpace("It names no container. "+why))
		t.done(key)
		return
	}
	if _, found := t.object.Pod.Annotations[t.Keys.Containers]; found {
		t.item(t.object, key, Manual, t.Keys.SkipContainers, "The pod has "+t.Keys.Containers+", and cannot have both.")
		return
	}
	t.write(in, key, strings.Join(names, ","), why)
}

// expiration translates a lifetime by the rule for the one of a ServiceAccount.
func (t *podPlan) expiration(peer *Peer, in *Input, key, value string) {
	theirs := map[string]string{key: value}
	for _, identity := range peer.adopted.Identity {
		theirs[identity] = "any"
	}
	adoption := t.Keys.Adopt([]*annotations.Peer{peer.adopted}, theirs, t.defaults)
	seconds := adoption.Set[t.Keys.TokenExpirationSeconds]
	least := int64(0)
	for _, d := range t.Keys.Providers {
		if d.Name == peer.adopted.Provider {
			least = d.MinExpirationSeconds
		}
	}
	switch _, err := annotations.ParseTokenExpirationSeconds(seconds, least); {
	case seconds == "":
		t.item(t.object, key, NothingToDo, "", "It is empty.")
		t.done(key)
	case err != nil:
		t.item(t.object, key, Manual, t.becomes(in), fmt.Sprintf("It %v. %s denies the pod, too.", err, peer.Program))
	default:
		why := strings.Join(adoption.Warnings, "; ")
		t.write(in, key, seconds, strings.TrimPrefix(why, key+": "))
	}
}

// label plans for a label of the pod.
func (t *podPlan) label(in *Input, key string) {
	switch key {
	case eksSkipWebhook:
		t.write(in, key, annotations.OptOut, "")
	case azureUse:
		t.azureLabel(in)
	default:
		t.row(t.object, key, in)
	}
}

// azureLabel plans for the label of Azure. What it needs is on the ServiceAccount.
func (t *podPlan) azureLabel(in *Input) {
	pod := t.object.Pod
	if pod.Labels[azureUse] != "true" {
		t.item(t.object, azureUse, NothingToDo, "", "Only the value true has an effect.")
		return
	}
	if len(t.accounts[t.namespaceOf(t.object)+"/"+pod.ServiceAccount]) == 0 {
		t.item(t.object, azureUse, Manual, t.becomes(in), fmt.Sprintf("The ServiceAccount %s was not found. If it has no client ID, set %s: azure on it.", pod.ServiceAccount, t.Keys.Tokens))
		return
	}
	t.item(t.object, azureUse, NothingToDo, "", "The ServiceAccount "+pod.ServiceAccount+" asks for credentials.")
}

// unlabelled plans for a pod that Azure leaves alone, although its ServiceAccount has a
// client ID: with Lanyard, it gets credentials.
func (t *podPlan) unlabelled() {
	pod := t.object.Pod
	if !t.has("azure") || pod.Labels[azureUse] == "true" || pod.Annotations[t.Keys.Inject] != "" || pod.Labels[t.Keys.Inject] != "" {
		return
	}
	for _, account := range t.accounts[t.namespaceOf(t.object)+"/"+pod.ServiceAccount] {
		if account.Annotations[azureClient] != "" || t.needTokens[t.namespaceOf(t.object)+"/"+pod.ServiceAccount] {
			t.item(t.object, "no label "+azureUse, Manual, t.Keys.Inject,
				fmt.Sprintf("The pods of the ServiceAccount %s get credentials from now on. Set it to %q for those that must not.", pod.ServiceAccount, annotations.OptOut))
			return
		}
	}
}

// containers plans for the variables of the containers.
func (t *podPlan) containers(peer *Peer) {
	for i := range t.object.Pod.Containers {
		c := &t.object.Pod.Containers[i]
		for _, name := range c.Variables {
			if in := peer.input(InContainer, name); in != nil && t.concerns(peer) {
				t.row(t.object, fmt.Sprintf("%s in the container %s", name, c.Name), in)
			}
		}
	}
}

// concerns reports whether the pod's ServiceAccount has to do with the peer, or is not
// known.
func (t *podPlan) concerns(peer *Peer) bool {
	accounts := t.accounts[t.namespaceOf(t.object)+"/"+t.object.Pod.ServiceAccount]
	return len(accounts) == 0 || slices.ContainsFunc(accounts, func(o *Object) bool { return peer.reads(OnServiceAccount, o.Annotations) })
}

// owner plans for the annotations of the workload itself, which cwii reads.
func (t *podPlan) owner(peer *Peer) {
	for _, key := range slices.Sorted(maps.Keys(t.object.Annotations)) {
		if in := peer.input(OnPod, key); in != nil {
			t.row(t.object, key, in)
		}
	}
}

// write adds an annotation of Lanyard to the template.
func (t *podPlan) write(in *Input, key, value, why string) {
	name := t.becomes(in)
	becomes := name + "=" + value
	got, found := t.object.Pod.Annotations[name]
	if !found {
		got, found = t.set[name]
	}
	switch {
	case found && got != value:
		t.item(t.object, key, Manual, becomes, fmt.Sprintf("The pod has another %s: Lanyard has one for all clouds.", name))
		return
	case found:
		t.item(t.object, key, NothingToDo, becomes, "The pod has it already.")
	case t.Cluster:
		t.item(t.object, key, Manual, becomes, strings.TrimSpace("A change would restart the pods: make it where the manifest comes from. "+why))
		return
	default:
		t.set[name] = value
		t.item(t.object, key, Translated, becomes, why)
	}
	t.done(key)
}

// done removes an annotation of the peer, if that is wanted. A label stays.
func (t *podPlan) done(key string) {
	if t.Remove {
		t.remove = append(t.remove, key)
	}
}

// splitCSV returns the first record, as it is; none if it cannot be read.
func splitCSV(value string) []string {
	record, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return nil
	}
	return record
}

// splitTrimmed returns the parts that are not empty, without spaces around them.
func splitTrimmed(value, separator string) []string {
	var parts []string
	for part := range strings.SplitSeq(value, separator) {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
