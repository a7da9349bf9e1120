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

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// maxVerified is how many workloads are compared: each one takes a dry run.
const maxVerified = 5000

// states are the states of a workload, in the order of the summary.
var states = []string{Same, Gains, Loses, Differs, denied, notCompared}

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
	for _, state := range states {
		line := fmt.Sprintf("%d %s", count[state], strings.ReplaceAll(state, "-", " "))
		if state == Same && without > 0 {
			line += fmt.Sprintf(", %d of them without credentials before and after", without)
		}
		if count[state] > 0 {
			p.Line("  %s", p.Style(styles[state], line))
		}
	}
}

func (w *verified) print(p *command.Page) {
	state := p.Style(styles[w.State], strings.ReplaceAll(w.State, "-", " "))
	p.Text(0, "", fmt.Sprintf("%s in the namespace %s: %s", p.Style(command.Title, w.Workload), w.Namespace, state))
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
	*reader
	probe *probe.Client
	// workloads are the objects that make pods and that no other workload makes.
	workloads []*unstructured.Unstructured
	// owners are the owners of ReplicaSets and Jobs, pods the running pods: one for each
	// workload, by the UID of the workload.
	owners map[types.UID]*metav1.OwnerReference
	pods   map[types.UID]*corev1.Pod
	verification
}

// verifyPods compares one running pod of each workload with a new one, which is a dry run.
func (k *migrateCommand) verifyPods(ctx context.Context, s *annotations.Settings, peers []*peer.Peer) (err error) {
	v := &verifier{
		owners: map[types.UID]*metav1.OwnerReference{}, pods: map[types.UID]*corev1.Pod{},
		verification: verification{Webhooks: []string{}, Workloads: []verified{}},
	}
	if v.reader, err = k.reader(s); err != nil {
		return err
	}
	if v.probe, err = k.Probe(); err != nil {
		return err
	}
	configurations, err := command.Configurations(ctx, v.typed)
	if err != nil {
		return err
	}
	for i := range configurations {
		found := cluster.Registered(&configurations[i])
		if slices.ContainsFunc(peers, func(p *peer.Peer) bool { return p.Registers(found) }) {
			v.Webhooks = append(v.Webhooks, found.Name)
		}
	}
	done := k.Progress("comparing running pods with new ones")
	err = v.all(ctx)
	done()
	if err != nil {
		return fmt.Errorf("compare pods: %w", err)
	}
	bad := slices.ContainsFunc(v.Workloads, func(w verified) bool { return w.State != Same && w.State != notCompared })
	return command.FoundIf(bad, k.Output.Write(k.CLI, &v.verification))
}

// all compares all workloads.
func (v *verifier) all(ctx context.Context) error {
	for _, kind := range cluster.Kinds() {
		if kind.Kind == "Pod" || kind.Kind == "PodTemplate" { // which make no pods
			continue
		}
		if err := v.each(ctx, listing{GroupVersionResource: kind.Resource}, v.addWorkload); err != nil {
			return err
		}
	}
	if err := command.EachObject(ctx, v.typed.CoreV1().Pods(v.namespace).List, v.addPod); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	report := v.Periodically()
	for i, object := range v.workloads {
		report("compared %d workloads ...", i)
		if err := v.compare(ctx, object); err != nil {
			return err
		}
	}
	// The rest are pods of other workloads, and pods that nothing creates.
	for _, uid := range slices.Sorted(maps.Keys(v.pods)) {
		pod := v.pods[uid]
		w := verified{Namespace: pod.Namespace, Workload: "pod/" + pod.Name, Pod: pod.Name, State: notCompared, Why: "Nothing creates the pod again."}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			w.Workload, w.Why = strings.ToLower(owner.Kind)+"/"+owner.Name, "Its pod template is not known, or it does not exist any more."
		}
		if HasCredentials(v.settings, pod) {
			w.Why += " Create a pod, and compare."
		} else {
			w.Why += " The pod has no credentials."
		}
		v.Workloads = append(v.Workloads, w)
	}
	slices.SortStableFunc(v.Workloads, func(a, b verified) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
	})
	return nil
}

// addWorkload notes a workload, or its owner if that is a workload.
func (v *verifier) addWorkload(object *unstructured.Unstructured) error {
	if owner := ownerOf(object); owner != nil {
		v.owners[object.GetUID()] = owner
		return nil
	}
	if len(v.workloads) == maxVerified {
		return fmt.Errorf("there are more than %d workloads: verify one namespace after the other", maxVerified)
	}
	v.workloads = append(v.workloads, object.DeepCopy()) // without the rest of the page
	return nil
}

// addPod notes a running pod, if it is the first of its workload.
func (v *verifier) addPod(pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	uid := pod.UID
	for owner := metav1.GetControllerOf(pod); owner != nil; owner = v.owners[uid] {
		uid = owner.UID
	}
	if v.pods[uid] == nil {
		pod.ManagedFields = nil
		v.pods[uid] = pod.DeepCopy() // without the rest of the page
	}
	return nil
}

// compare compares the running pod of a workload with the pod that the workload would
// create, as a dry run.
func (v *verifier) compare(ctx context.Context, object *unstructured.Unstructured) error {
	running := v.pods[object.GetUID()]
	delete(v.pods, object.GetUID())
	w := verified{Namespace: object.GetNamespace(), Workload: strings.ToLower(object.GetKind()) + "/" + object.GetName(), State: notCompared}
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
		w.State, w.Differences = Compare(v.settings, running, fresh)
		w.without = w.State == Same && !HasCredentials(v.settings, running)
		fallthrough
	default:
		w.Pod = running.Name
	}
	v.Workloads = append(v.Workloads, w)
	return ctx.Err()
}
