// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
const maxVerified = 2000

// States of a workload, with their styles.
const (
	stateSame        = "same"
	stateDiffers     = "differs"
	stateDenied      = "denied"
	stateNotCompared = "not-compared"
)

var stateStyles = map[string]string{
	stateSame: command.Good, stateDiffers: command.Bad, stateDenied: command.Bad, stateNotCompared: command.Warn,
}

// verification compares running pods with new ones.
type verification struct {
	// Webhooks are the peers' webhook configurations that are still there.
	Webhooks  []string   `json:"webhooks"`
	Workloads []verified `json:"workloads"`
}

// verified is one workload, by one of its pods.
type verified struct {
	Namespace   string       `json:"namespace"`
	Workload    string       `json:"workload"`
	Pod         string       `json:"pod"`
	State       string       `json:"state"`
	Why         string       `json:"why,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
}

func (v *verification) Print(p *command.Page) {
	for _, name := range v.Webhooks {
		p.Text(0, command.Warn, fmt.Sprintf("The webhook configuration %s is still there: both webhooks inject into new pods.", name))
	}
	if len(v.Webhooks) > 0 {
		p.Line("")
	}
	if len(v.Workloads) == 0 {
		p.Line("no running pod has credentials")
		return
	}
	count := map[string]int{}
	for i := range v.Workloads {
		w := &v.Workloads[i]
		count[w.State]++
		state := p.Style(stateStyles[w.State], strings.ReplaceAll(w.State, "-", " "))
		p.Text(0, "", fmt.Sprintf("%s in the namespace %s: %s", p.Style(command.Title, w.Workload), w.Namespace, state))
		if w.Why != "" {
			p.Text(2, "", w.Why)
		}
		for _, d := range w.Differences {
			what := strings.TrimPrefix(d.Container+": "+d.What, ": ")
			p.Text(2, "", fmt.Sprintf("%s: running pod %s, new pod %s", what, cmp.Or(d.Running, "none"), cmp.Or(d.New, "none")))
		}
	}
	p.Line("")
	p.Line("%d same, %d differ, %d denied, %d not compared",
		count[stateSame], count[stateDiffers], count[stateDenied], count[stateNotCompared])
}

// verifier compares the pods of a cluster.
type verifier struct {
	keys   *annotations.Keys
	client dynamic.Interface
	probe  *probe.Client
	// seen are the owners that have been compared.
	seen map[types.UID]bool
	verification
}

// verifyPods compares one running pod of each workload with a new one, which is a dry run.
func (k *migrateCommand) verifyPods(ctx context.Context, peers []*peer.Peer) error {
	namespace, err := k.Scope(k.all)
	if err != nil {
		return err
	}
	s, err := k.Settings(ctx)
	if err != nil {
		return err
	}
	v := &verifier{keys: s.Keys, seen: map[types.UID]bool{}, verification: verification{Webhooks: []string{}, Workloads: []verified{}}}
	if _, v.client, err = k.Clients(); err != nil {
		return err
	}
	if v.probe, err = k.Probe(); err != nil {
		return err
	}
	configurations, err := k.list(ctx, v.client, s.Keys, webhookConfigurations)
	if err != nil {
		return err
	}
	for _, o := range configurations {
		if slices.ContainsFunc(peers, func(p *peer.Peer) bool { return p.Registers(o.Name, o.Labels, o.Webhooks) }) {
			v.Webhooks = append(v.Webhooks, o.Name)
		}
	}
	done := k.Progress("comparing running pods with new ones")
	pods := v.client.Resource(command.CoreResource("pods")).Namespace(namespace)
	err = command.EachPage(ctx, pods.List, func(page *unstructured.UnstructuredList) error {
		for i := range page.Items {
			if err := v.pod(ctx, &page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	done()
	if err != nil {
		return fmt.Errorf("compare pods: %w", err)
	}
	if err := k.Output.Write(k.CLI, &v.verification); err != nil {
		return err
	}
	if slices.ContainsFunc(v.Workloads, func(w verified) bool { return w.State == stateDiffers || w.State == stateDenied }) {
		return command.ErrFound
	}
	return nil
}

// pod compares a pod, if it is the first pod of its owner.
func (v *verifier) pod(ctx context.Context, u *unstructured.Unstructured) error {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
		return fmt.Errorf("pod %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	ended := pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if ended || !HasCredentials(v.keys, pod) {
		return nil
	}
	w := verified{Namespace: pod.Namespace, Workload: "pod/" + pod.Name, Pod: pod.Name, State: stateNotCompared}
	if owner := metav1.GetControllerOf(u); owner == nil {
		w.Why = "Nothing creates the pod again. Create it again, and compare."
	} else if v.seen[owner.UID] {
		return nil
	} else if v.seen[owner.UID] = true; len(v.seen) > maxVerified {
		return fmt.Errorf("got more than %d workloads: verify one namespace after the other", maxVerified)
	} else if err := v.compare(ctx, pod, owner, &w); err != nil {
		return err
	}
	v.Workloads = append(v.Workloads, w)
	return nil
}

// compare creates the pod that the owner would create, as a dry run.
func (v *verifier) compare(ctx context.Context, pod *corev1.Pod, owner *metav1.OwnerReference, w *verified) error {
	kind, found := cluster.ByOwner(owner)
	if !found {
		w.Workload, w.Why = strings.ToLower(owner.Kind)+"/"+owner.Name, "Its kind is not one of Kubernetes' own."
		return nil
	}
	w.Workload = kind.Name(owner.Name)
	object, err := v.client.Resource(kind.Resource).Namespace(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.Why = "It does not exist any more."
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s in the namespace %s: %w", w.Workload, w.Namespace, err)
	}
	if grand := metav1.GetControllerOf(object); grand != nil {
		if kind, known := cluster.ByOwner(grand); known {
			w.Workload = kind.Name(grand.Name)
		}
	}
	template, err := kind.Pod(object)
	if err != nil {
		return err
	}
	template.SetNamespace("")
	answer := v.probe.Create(ctx, pod.Namespace, template)
	if answer.Err != nil {
		w.State, w.Why = stateDenied, "A new pod is denied: "+answer.Err.Error()
		return nil //nolint:nilerr // the denial is the result
	}
	fresh := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Pod.Object, fresh); err != nil {
		return fmt.Errorf("dry run of %s: %w", w.Workload, err)
	}
	w.State = stateSame
	if w.Differences = Compare(v.keys, pod, fresh); len(w.Differences) > 0 {
		w.State = stateDiffers
	}
	return nil
}
