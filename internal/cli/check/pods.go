// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

// running compares running pods with new pods, by the rules of the webhook as they are here:
// a dry run for each ServiceAccount would load the cluster.
type running struct {
	*checkCommand
	*survey
	asker *ask.Asker
	// fresh are new pods by namespace, ServiceAccount and lifetime of the token; nil if a new
	// pod is not known.
	fresh map[[3]string]*injected.Pod
}

// pods counts the running pods with a former identity or none. It needs the settings of the
// webhook. mutating is nil if it was not read.
func (k *checkCommand) pods(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration, s *survey) error {
	if len(s.asking) == 0 || k.Webhook.Unread != nil {
		return nil
	}
	defer k.Progress("reading pods")()
	config, err := k.Config()
	if err != nil {
		return err
	}
	r := &running{checkCommand: k, survey: s, fresh: map[[3]string]*injected.Pod{}}
	if r.asker, err = ask.New(config, k.settings, ask.Options{Registration: mutating, NoDryRun: true}); err != nil {
		return err
	}
	numbers := map[injected.State]int{}
	for _, name := range slices.Sorted(maps.Keys(s.asking)) {
		err := command.EachPage(ctx, k.client.CoreV1().Pods(name).List, func(page *corev1.PodList) error {
			for i := range page.Items {
				numbers[r.state(ctx, &page.Items[i])]++
			}
			return nil
		})
		if err != nil {
			k.add("pods", probe.Unreadable("the running pods", err))
			return nil
		}
	}
	k.add("pods", Outdated(s.namespace, numbers[injected.Stale], numbers[injected.Without]))
	return nil
}

// state compares a running pod with a new pod of its ServiceAccount.
func (r *running) state(ctx context.Context, pod *corev1.Pod) injected.State {
	keys := r.settings.Keys
	name := cmp.Or(pod.Spec.ServiceAccountName, cluster.DefaultServiceAccount)
	_, mirror := pod.Annotations[annotations.MirrorPodKey]
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	windows := mutate.IsWindows(string(cmp.Or(pod.Spec.OS, new(corev1.PodOS)).Name), pod.Spec.NodeSelector)
	if r.asking[pod.Namespace][name] == nil || mirror || ended || windows {
		return injected.Unknown
	}
	found, err := injected.Read(pod, keys)
	if err != nil {
		return injected.Unknown
	}
	selection, _ := annotations.ParsePod(keys, pod.Annotations, pod.Labels[keys.Inject])
	fresh := r.newPod(ctx, pod.Namespace, name, pod.Annotations[keys.TokenExpirationSeconds])
	return injected.Judge(found, fresh, true, selection.OptOut || selection.LeftToPeer != "", keys)
}

// newPod returns a new pod of a ServiceAccount, or nil if it is not known.
func (r *running) newPod(ctx context.Context, namespace, name, expiration string) *injected.Pod {
	key := [3]string{namespace, name, expiration}
	if known, asked := r.fresh[key]; asked {
		return known
	}
	r.fresh[key] = nil
	pod := r.ProbePod(name)
	if expiration != "" {
		pod.SetAnnotations(map[string]string{r.settings.Keys.TokenExpirationSeconds: expiration})
	}
	if answer := r.asker.Ask(ctx, r.called[namespace], r.asking[namespace][name], pod); answer.Problem() == nil {
		if found, err := injected.Read(answer.Pod.Object, r.settings.Keys); err == nil {
			r.fresh[key] = found
		}
	}
	return r.fresh[key]
}
