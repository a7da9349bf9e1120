// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

// maxVerified is how many workloads are compared: each one takes a dry run.
const maxVerified = 5000

// states are the states of a workload, in the order of the summary, with their styles.
var states = []struct{ name, style string }{
	{Same, command.Good}, {Gains, command.Warn}, {Loses, command.Bad}, {Differs, command.Bad}, {denied, command.Bad}, {notCompared, command.Warn},
}

// States of a workload that the comparison of two pods cannot have.
const (
	denied      = "denied"
	notCompared = "not-compared"
)

// verification compares running pods with new ones.
type verification struct {
	// Webhooks are the peers' webhook configurations that are still there.
	Webhooks []string `json:"webhooks"`
	// Workloads are all workloads, also those without credentials.
	Workloads []verified `json:"workloads"`
}

// verified is one workload, by one of its pods.
type verified struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`
	// Pod is the running pod; empty for none.
	Pod         string       `json:"pod,omitempty"`
	State       string       `json:"state"`
	Why         string       `json:"why,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
	// without reports whether neither pod has credentials.
	without bool
}

func (v *verification) Print(p *command.Page) {
	for _, name := range v.Webhooks {
		p.Text(0, command.Warn, fmt.Sprintf("The webhook configuration %s is still there: both webhooks inject into new pods.", name))
	}
	if len(v.Webhooks) > 0 {
		p.Line("")
	}
	count := map[string]int{}
	without := 0
	for i := range v.Workloads {
		w := &v.Workloads[i]
		count[w.State]++
		if w.without {
			without++
			continue
		}
		w.print(p)
	}
	if without < len(v.Workloads) {
		p.Line("")
	}
	p.Line("workloads: %d", len(v.Workloads))
	for _, s := range states {
		line := fmt.Sprintf("%d %s", count[s.name], strings.ReplaceAll(s.name, "-", " "))
		if s.name == Same && without > 0 {
			line += fmt.Sprintf(", %d of them without credentials before and after", without)
		}
		if count[s.name] > 0 {
			p.Line("  %s", p.Style(s.style, line))
		}
	}
}

func (w *verified) print(p *command.Page) {
	style := states[slices.IndexFunc(states, func(s struct{ name, style string }) bool { return s.name == w.State })].style
	p.Text(0, "", fmt.Sprintf("%s in the namespace %s: %s", p.Style(command.Title, w.Workload), w.Namespace, p.Style(style, strings.ReplaceAll(w.State, "-", " "))))
	if w.Why != "" {
		p.Text(2, "", w.Why)
	}
	for _, d := range w.Differences {
		what := strings.TrimPrefix(d.Container+": "+d.What, ": ")
		p.Text(2, "", fmt.Sprintf("%s: running pod %s, new pod %s", what, cmp.Or(d.Running, "none"), cmp.Or(d.New, "none")))
	}
}

// verifier compares the pods of a cluster.
type verifier struct {
	keys      *annotations.Keys
	namespace string
	client    dynamic.Interface
	probe     *probe.Client
	// owners are the owners of ReplicaSets and Jobs, pods the running pods: one for each
	// workload, by the UID of the workload.
	owners map[types.UID]*metav1.OwnerReference
	pods   map[types.UID]*corev1.Pod
	verification
}

// verifyPods compares one running pod of each workload with a new one, which is a dry run.
func (k *migrateCommand) verifyPods(ctx context.Context, peers []*peer.Peer) error {
	s, err := k.Settings(ctx)
	if err != nil {
		return err
	}
	v := &verifier{
		keys: s.Keys, owners: map[types.UID]*metav1.OwnerReference{}, pods: map[types.UID]*corev1.Pod{},
		verification: verification{Webhooks: []string{}, Workloads: []verified{}},
	}
	if v.namespace, err = k.Scope(k.All); err != nil {
		return err
	}
	if _, v.client, err = k.Clients(); err != nil {
		return err
	}
	if v.probe, err = k.Probe(); err != nil {
		return err
	}
	configurations, err := k.list(ctx, v.client.Resource(webhookConfigurations.Resource), s.Keys, webhookConfigurations)
	if err != nil {
		return err
	}
	for _, o := range configurations {
		if slices.ContainsFunc(peers, func(p *peer.Peer) bool { return p.Registers(o.Registration) }) {
			v.Webhooks = append(v.Webhooks, o.Name)
		}
	}
	done := k.Progress("comparing running pods with new ones")
	err = v.all(ctx, k.Periodically())
	done()
	if err != nil {
		return fmt.Errorf("compare pods: %w", err)
	}
	bad := slices.ContainsFunc(v.Workloads, func(w verified) bool { return w.State != Same && w.State != notCompared })
	return command.FoundIf(bad, k.Output.Write(k.CLI, &v.verification))
}

// all compares all workloads.
func (v *verifier) all(ctx context.Context, report func(string, ...any)) error {
	kinds := slices.DeleteFunc(cluster.Kinds(), func(k cluster.Kind) bool { return k.Kind == "Pod" || k.Kind == "PodTemplate" })
	if err := v.each(ctx, kinds, v.addOwner); err != nil {
		return err
	}
	pod, _ := cluster.ByName("pod")
	if err := v.each(ctx, []cluster.Kind{pod}, v.addPod); err != nil {
		return err
	}
	err := v.each(ctx, kinds, func(kind *cluster.Kind, object *unstructured.Unstructured) error {
		report("compared %d workloads ...", len(v.Workloads))
		return v.compare(ctx, kind, object)
	})
	// The rest are pods of other workloads, and pods that nothing creates.
	for _, uid := range slices.Sorted(maps.Keys(v.pods)) {
		pod := v.pods[uid]
		w := verified{Namespace: pod.Namespace, Workload: "pod/" + pod.Name, Pod: pod.Name, State: notCompared, Why: "Nothing creates the pod again."}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			w.Workload, w.Why = strings.ToLower(owner.Kind)+"/"+owner.Name, "Its pod template is not known, or it does not exist any more."
		}
		if HasCredentials(v.keys, pod) {
			w.Why += " Create a pod, and compare."
		} else {
			w.Why += " The pod has no credentials."
		}
		v.Workloads = append(v.Workloads, w)
	}
	slices.SortStableFunc(v.Workloads, func(a, b verified) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
	})
	return err
}

// each calls do for each object of the kinds.
func (v *verifier) each(ctx context.Context, kinds []cluster.Kind, do func(*cluster.Kind, *unstructured.Unstructured) error) error {
	for i := range kinds {
		api := v.client.Resource(kinds[i].Resource).Namespace(v.namespace)
		if err := each(ctx, api, listing{Kind: kinds[i]}, func(u *unstructured.Unstructured) error { return do(&kinds[i], u) }); err != nil {
			return err
		}
	}
	return nil
}

// ownerOf returns the owner of an object, if the owner is of a known kind.
func ownerOf(object metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return nil
	}
	if _, known := cluster.ByOwner(owner); !known {
		return nil
	}
	return owner
}

// addOwner notes the owner of a workload that another workload makes.
func (v *verifier) addOwner(_ *cluster.Kind, object *unstructured.Unstructured) error {
	if owner := ownerOf(object); owner != nil {
		v.owners[object.GetUID()] = owner
	}
	return nil
}

// addPod notes a running pod, if it is the first of its workload.
func (v *verifier) addPod(_ *cluster.Kind, u *unstructured.Unstructured) error {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
		return fmt.Errorf("pod %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	uid := pod.UID
	for owner := metav1.GetControllerOf(pod); owner != nil; owner = v.owners[uid] {
		uid = owner.UID
	}
	if v.pods[uid] == nil {
		pod.ManagedFields = nil
		v.pods[uid] = pod
	}
	return nil
}

// compare compares the running pod of a workload with the pod that the workload would
// create, as a dry run.
func (v *verifier) compare(ctx context.Context, kind *cluster.Kind, object *unstructured.Unstructured) error {
	if v.owners[object.GetUID()] != nil {
		return nil // the owner is compared
	}
	if len(v.Workloads) == maxVerified {
		return fmt.Errorf("there are more than %d workloads: verify one namespace after the other", maxVerified)
	}
	running := v.pods[object.GetUID()]
	delete(v.pods, object.GetUID())
	w := verified{Namespace: object.GetNamespace(), Workload: kind.Name(object.GetName()), State: notCompared}
	template, err := cluster.PodOf(object)
	if err != nil {
		return err
	}
	template.SetNamespace("")
	answer := v.probe.Create(ctx, w.Namespace, template)
	fresh := &corev1.Pod{}
	if answer.Err != nil {
		w.State, w.Why = denied, "A new pod is denied: "+answer.Err.Error()
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Pod.Object, fresh); err != nil {
		return fmt.Errorf("dry run of %s: %w", w.Workload, err)
	}
	switch {
	case running == nil:
		w.Why = cmp.Or(w.Why, "No pod of it runs. A new pod would be created.")
	case answer.Err == nil:
		w.State, w.Differences = Compare(v.keys, running, fresh)
		w.without = w.State == Same && !HasCredentials(v.keys, running)
		fallthrough
	default:
		w.Pod = running.Name
	}
	v.Workloads = append(v.Workloads, w)
	return ctx.Err()
}
