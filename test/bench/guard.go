// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// The targets: how many milliseconds the guard may add to the median creation of a pod in
// the namespace withGuard, and of an injected pod of guardContainers containers in
// withGuardMany.
const (
	guardLimit      = 1.5
	injectedLimit   = 3
	guardContainers = 20
)

// The namespaces of the targets, and of the comparison.
const (
	withoutGuard  = "without-guard"
	withGuard     = "with-guard"
	withGuardMany = "with-guard-of-many"
)

// guardSize is a namespace, with the number of ServiceAccounts and how many of them are
// labelled.
type guardSize struct {
	namespace          string
	accounts, labelled int
}

// guardSizes returns the namespaces. The first has no guard.
func guardSizes() []guardSize {
	return []guardSize{
		{withoutGuard, 100, 20}, {"with-guard-of-one", 100, 1}, {withGuard, 100, 20}, {"with-guard-in-large", 2000, 20}, {withGuardMany, 2000, 200},
	}
}

// guard measures how much the guard adds to the creation of a pod. Each namespace is
// measured separately, because all share the API server's garbage collector.
func (b *bench) guard(ctx context.Context) (*outcome, error) {
	c, err := b.prepareGuard(ctx)
	if err != nil {
		return nil, err
	}
	pods := either(b, 400, 100)
	result := b.outcome(c, "%d dry-run creations of each kind, taking turns", pods)
	t := result.table("cost",
		"Pod", "labelled ServiceAccounts", "median without the guard, ms", "median with the guard, ms", "added, ms")
	for _, size := range guardSizes()[1:] {
		namespace := size.namespace
		names := []string{"ServiceAccount without identity", "three clouds, injected", fmt.Sprintf("three clouds, injected, %d containers", guardContainers)}
		var ways []way
		for i, pod := range []*corev1.Pod{newPod(unannotated, 1), newPod(threeClouds, 1), newPod(threeClouds, guardContainers-1)} {
			ways = append(ways, c.creation(names[i], withoutGuard, pod), c.creation(names[i], namespace, pod))
		}
		times, err := b.takeTurns(ctx, warmUp, pods, ways...)
		if err != nil {
			return nil, err
		}
		labelled := fmt.Sprintf("%d of %d", size.labelled, size.accounts)
		for i, name := range names {
			without, with := median(times[2*i]), median(times[2*i+1])
			t.add(name, labelled, without, with, with-without)
			limit := map[string]float64{withGuard: guardLimit, withGuardMany: injectedLimit}[namespace]
			if namespace == withGuard && i < 2 || namespace == withGuardMany && i == 2 {
				result.Checks = append(result.Checks, check{
					What: fmt.Sprintf("%s, %s ServiceAccounts labelled", name, labelled),
					Got:  with - without, Limit: limit, Format: "%.2f ms",
					Detail: fmt.Sprintf("%.2f ms with, %.2f ms without the guard", with, without),
				})
			}
		}
	}
	return result, nil
}

// prepareGuard registers Lanyard for all namespaces and installs the guard.
func (b *bench) prepareGuard(ctx context.Context) (*cluster, error) {
	c, lanyard, err := b.startBoth(ctx)
	if err != nil {
		return nil, err
	}
	b.printf("creating ServiceAccounts")
	var guarded []string
	for _, size := range guardSizes() {
		// createNamespace creates two, one of them labelled, and "default" is the third.
		if err := c.createAccounts(ctx, size.namespace, size.accounts-3, size.labelled-1, nil); err != nil {
			return nil, err
		}
		guarded = append(guarded, size.namespace)
	}
	if err := c.register(ctx, lanyard.url+podPath, lanyard.ca, isInjected, withoutGuard); err != nil {
		return nil, err
	}
	return c, c.installWebhook(ctx, lanyard, guarded[1:]...)
}

// install creates the policies of a manifest in the namespaces, and waits until they are in
// effect.
func (c *cluster) install(ctx context.Context, manifest string, namespaces []string, inEffect wait.ConditionWithContextFunc) error {
	objects, err := webhook.ReadManifest(filepath.Join(deployDir, manifest))
	if err == nil {
		err = c.createIn(ctx, objects, namespaces)
	}
	if err != nil {
		return err
	}
	return process.Until(ctx, manifest, patience, inEffect)
}

// installGuard installs the guard in the namespaces and in unchecked, which has no
// webhook. It returns when the guard denies pods that were not injected.
func (c *cluster) installGuard(ctx context.Context, unchecked string, namespaces ...string) error {
	return c.install(ctx, webhook.Guard, append(namespaces, unchecked), func(ctx context.Context) (bool, error) {
		_, err := c.dryRun(ctx, unchecked, newPod(threeClouds, 1))
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
}

// The namespaces of the fences, and of the sizes.
const (
	withoutFence = "without-fence"
	withFence    = "with-fence"
	fewAccounts  = "few-accounts"
	manyAccounts = "many-accounts"
	largeOnes    = "large-accounts"
)

const (
	fewLabelled  = 2 // of createNamespace
	manyLabelled = 52
	// largePod is the number of variables of a large pod: half a megabyte.
	largePod = 20_000
	// largeAccount is the number of annotations of a large ServiceAccount: nearly
	// as many as the API server accepts.
	largeAccount = 15_000
)

// fences measures how much the fence around the marks adds to an update of a pod's
// status, as kubelets write it.
func (b *bench) fences(ctx context.Context) (*outcome, error) {
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	marked := newPod(unannotated, 1)
	marked.Annotations["lanyard.dev/injected"] = "aws,azure,gcp"
	marked.Annotations["lanyard.dev/gcp-credentials"] = strings.Repeat("a", 600) // as long as usual ones
	names := []string{"without marks", "with marks"}
	var ways []way
	var protected *corev1.Pod
	if err := errors.Join(c.createNamespace(ctx, withoutFence), c.createNamespace(ctx, withFence)); err != nil {
		return nil, err
	}
	for i, pod := range []*corev1.Pod{newPod(unannotated, 1), marked} {
		for _, namespace := range []string{withoutFence, withFence} {
			created, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("create a pod: %w", err)
			}
			ways = append(ways, c.statusUpdate(names[i], created))
			protected = created // the last one is in withFence
		}
	}
	if err := c.installFences(ctx, protected); err != nil {
		return nil, err
	}
	updates := either(b, 1000, 200)
	result := b.outcome(c, "%d updates of each kind, taking turns", updates)
	times, err := b.takeTurns(ctx, 2*warmUp, updates, ways...)
	if err != nil {
		return nil, err
	}
	t := result.table("fences", "Status update of a pod", "median without the fence, ms", "median with the fence, ms", "added, ms",
		"p99 without the fence, ms", "p99 with the fence, ms")
	for i, name := range names {
		without, with := times[2*i], times[2*i+1]
		t.add(name, median(without), median(with), median(with)-median(without), quantile(without, 0.99), quantile(with, 0.99))
	}
	return result, b.sizes(ctx, c, result)
}

// statusUpdate changes a condition of the pod.
func (c *cluster) statusUpdate(name string, pod *corev1.Pod) way {
	return way{name, func(ctx context.Context, turn int) error {
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","message":"%d"}]}}`, turn)
		_, err := c.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}}
}

// installFences creates the fences in the pod's namespace, and waits until they protect
// the pod.
func (c *cluster) installFences(ctx context.Context, pod *corev1.Pod) error {
	patch := []byte(`{"metadata":{"annotations":{"lanyard.dev/injected":"changed"}}}`)
	dryRun := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	return c.install(ctx, webhook.Fences, []string{pod.Namespace}, func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, dryRun, "status")
		return err != nil, nil
	})
}

// sizes measures the cost of the guard with large pods and ServiceAccounts.
func (b *bench) sizes(ctx context.Context, c *cluster, result *outcome) error {
	annotations := identity(0)
	for i := range largeAccount {
		annotations[fmt.Sprintf("a/%d", i)] = ""
	}
	for namespace, annotations := range map[string]map[string]string{manyAccounts: identity(0), largeOnes: annotations} {
		const others = manyLabelled - fewLabelled
		if err := c.createAccounts(ctx, namespace, others, others, annotations); err != nil {
			return err
		}
	}
	if err := c.createNamespace(ctx, fewAccounts); err != nil {
		return err
	}
	if err := c.installGuard(ctx, fewAccounts, manyAccounts, largeOnes); err != nil {
		return err
	}
	usual, large := newPod(unannotated, 1), newPod(unannotated, 1)
	for i := range largePod {
		large.Spec.Containers[0].Env = append(large.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i)})
	}
	t := result.table("sizes", "Creation of a pod", fmt.Sprintf("median with %d labelled ServiceAccounts, ms", fewLabelled),
		fmt.Sprintf("median with %d, ms", manyLabelled), "for each ServiceAccount, ms")
	for _, size := range []struct {
		name      string
		pod       *corev1.Pod
		namespace string
		pods      int
	}{
		{"usual pod", usual, manyAccounts, either(b, 300, 50)},
		{fmt.Sprintf("pod of %d variables", largePod), large, manyAccounts, either(b, 9, 3)},
		{fmt.Sprintf("usual pod, ServiceAccounts of %d annotations", largeAccount), usual, largeOnes, either(b, 40, 10)},
	} {
		b.printf("fences: %s", size.name)
		few, many := c.creation(size.name, fewAccounts, size.pod), c.creation(size.name, size.namespace, size.pod)
		times, err := b.takeTurns(ctx, 0, size.pods, few, many)
		if err != nil {
			return err
		}
		ofFew, ofMany := median(times[0]), median(times[1])
		t.add(size.name, fmt.Sprintf("%.1f", ofFew), fmt.Sprintf("%.1f", ofMany), (ofMany-ofFew)/(manyLabelled-fewLabelled))
	}
	return nil
}
