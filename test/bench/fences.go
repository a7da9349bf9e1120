// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// The namespaces.
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

// mark is an annotation that the fence protects.
const mark = "lanyard.dev/injected"

// statusUpdate is an update of a pod's status without and with the fence around
// the marks. The times are in milliseconds.
type statusUpdate struct {
	Name                               string
	Without, WithoutP99, With, WithP99 float64
}

type fencesResult struct {
	Stamp   stamp
	Updates int // per way
	Pods    []statusUpdate
	Sizes   []sizeCost
}

// sizeCost is the creation of a pod, as a dry run, with few and with many labelled
// ServiceAccounts in its namespace. The medians are in milliseconds.
type sizeCost struct {
	Name      string
	Few, Many float64
}

// perAccount is what each labelled ServiceAccount adds.
func (c *sizeCost) perAccount() float64 { return (c.Many - c.Few) / (manyLabelled - fewLabelled) }

// fences measures what the fence around the marks adds to an update of a pod's
// status, as kubelets write it. The ways take turns, one update at a time, on one
// API server.
func (b *bench) fences(ctx context.Context) (*fencesResult, error) {
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	pods := []*corev1.Pod{newPod(unannotated, 1), newPod(unannotated, 1)}
	pods[1].Annotations[mark] = strings.Repeat("a", 32)
	pods[1].Annotations["lanyard.dev/injected"] = "aws,azure,gcp"
	pods[1].Annotations["lanyard.dev/gcp-credentials"] = strings.Repeat("a", 600) // as long as usual ones
	names := []string{"without marks", "with marks"}
	namespaces := []string{withoutFence, withFence}
	var ways []*corev1.Pod
	for i, pod := range pods {
		for _, namespace := range namespaces {
			if i == 0 {
				if err := c.createNamespace(ctx, namespace); err != nil {
					return nil, err
				}
			}
			created, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("create a pod: %w", err)
			}
			ways = append(ways, created)
		}
	}
	if err := c.installFences(ctx, ways[1]); err != nil {
		return nil, err
	}
	result := &fencesResult{Stamp: b.stamp(c), Updates: either(b, 3000, 500)}
	times, err := c.updateStatus(ctx, ways, result.Updates)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		without, with := times[2*i], times[2*i+1]
		result.Pods = append(result.Pods, statusUpdate{name, median(without), quantile(without, 0.99), median(with), quantile(with, 0.99)})
	}
	result.Sizes, err = b.sizes(ctx, c)
	return result, err
}

// sizes measures what the guard costs with large pods and ServiceAccounts.
func (b *bench) sizes(ctx context.Context, c *cluster) ([]sizeCost, error) {
	if err := c.createSized(ctx); err != nil {
		return nil, err
	}
	large := newPod(unannotated, 1)
	for i := range largePod {
		large.Spec.Containers[0].Env = append(large.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i)})
	}
	var costs []sizeCost
	for _, size := range []struct {
		name      string
		pod       *corev1.Pod
		namespace string
		pods      int
	}{
		{"usual pod", newPod(unannotated, 1), manyAccounts, either(b, 500, 100)},
		{fmt.Sprintf("pod of %d variables", largePod), large, manyAccounts, either(b, 40, 10)},
		{fmt.Sprintf("usual pod, ServiceAccounts of %d annotations", largeAccount), newPod(unannotated, 1), largeOnes, either(b, 100, 20)},
	} {
		b.printf("fences: %s", size.name)
		times := map[string][]float64{}
		for range size.pods {
			for _, namespace := range []string{fewAccounts, size.namespace} {
				start := time.Now()
				if _, err := c.dryRun(ctx, namespace, size.pod); err != nil {
					return nil, fmt.Errorf("%s: %w", size.name, err)
				}
				times[namespace] = append(times[namespace], time.Since(start).Seconds()*1000)
			}
		}
		costs = append(costs, sizeCost{size.name, median(times[fewAccounts]), median(times[size.namespace])})
	}
	return costs, nil
}

// createSized creates the namespaces of sizes, and the guard.
func (c *cluster) createSized(ctx context.Context) error {
	annotations := identity(0)
	for i := range largeAccount {
		annotations[fmt.Sprintf("a/%d", i)] = ""
	}
	for namespace, annotations := range map[string]map[string]string{fewAccounts: nil, manyAccounts: identity(0), largeOnes: annotations} {
		if err := c.createNamespace(ctx, namespace); err != nil {
			return err
		}
		for i := range manyLabelled - fewLabelled {
			if annotations == nil {
				break
			}
			_, err := c.CoreV1().ServiceAccounts(namespace).Create(ctx, newAccount(fmt.Sprintf("other-%d", i), annotations), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create a ServiceAccount: %w", err)
			}
		}
	}
	if err := webhook.Guard(ctx, c.Config(), deployDir); err != nil {
		return err
	}
	return c.waitForGuard(ctx, fewAccounts)
}

// installFences creates the fences, and waits until they protect the pod. Two
// namespaces have none: withoutFence, and largeOnes, whose ServiceAccounts the
// fences would deny.
func (c *cluster) installFences(ctx context.Context, pod *corev1.Pod) error {
	objects, err := webhook.ReadManifest(filepath.Join(deployDir, "71-fences.yaml"))
	if err != nil {
		return fmt.Errorf("%w; run this in the root of the repository", err)
	}
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	for _, object := range objects {
		if binding, ok := object.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); ok {
			binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{withoutFence, largeOnes},
				}},
			}}
		}
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create a fence: %w", err)
		}
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"changed"}}}`, mark)
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return err != nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the fences: %w", err)
	}
	return nil
}

// updateStatus updates the status of each pod the given number of times, in turns,
// and returns the duration of each update in milliseconds.
func (c *cluster) updateStatus(ctx context.Context, pods []*corev1.Pod, updates int) ([][]float64, error) {
	const warmUp = 100
	times := make([][]float64, len(pods))
	for i := range warmUp + updates {
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","message":"%d"}]}}`, i)
		for j := range pods {
			way := (i + j) % len(pods)
			start := time.Now()
			_, err := c.CoreV1().Pods(pods[way].Namespace).Patch(ctx, pods[way].Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			if err != nil {
				return nil, fmt.Errorf("update a status: %w", err)
			}
			if i >= warmUp {
				times[way] = append(times[way], time.Since(start).Seconds()*1000)
			}
		}
	}
	return times, nil
}

// cells returns the row for the printed table and for the documentation.
func (u *statusUpdate) cells() []string {
	cells := []string{u.Name}
	for _, value := range []float64{u.Without, u.With, u.With - u.Without, u.WithoutP99, u.WithP99} {
		cells = append(cells, fmt.Sprintf("%.2f", value))
	}
	return cells
}

func (r *fencesResult) print(b *bench) {
	b.table("\nStatus update\tmedian without ms\tmedian with ms\tadded ms\tp99 without ms\tp99 with ms", func(w io.Writer) {
		for _, pod := range r.Pods {
			_, _ = fmt.Fprintln(w, strings.Join(pod.cells(), "\t"))
		}
	})
	b.table(fmt.Sprintf("\nDry-run pod creation\t%d labelled, median ms\t%d labelled, median ms\tper ServiceAccount ms", fewLabelled, manyLabelled), func(w io.Writer) {
		for _, size := range r.Sizes {
			_, _ = fmt.Fprintln(w, strings.Join(size.cells(), "\t"))
		}
	})
}

// cells returns the row for the printed table and for the documentation.
func (c *sizeCost) cells() []string {
	return []string{c.Name, fmt.Sprintf("%.1f", c.Few), fmt.Sprintf("%.1f", c.Many), fmt.Sprintf("%.2f", c.perAccount())}
}

func (r *fencesResult) sizeTable() string {
	m := newTable("Creation of a pod", fmt.Sprintf("median with %d labelled ServiceAccounts, ms", fewLabelled),
		fmt.Sprintf("median with %d, ms", manyLabelled), "for each ServiceAccount, ms")
	for _, size := range r.Sizes {
		m.row(size.cells()...)
	}
	return m.String()
}

func (r *fencesResult) table() string {
	m := newTable("Status update of a pod", "median without the fence, ms", "median with the fence, ms", "added, ms", "p99 without the fence, ms", "p99 with the fence, ms")
	for _, pod := range r.Pods {
		m.row(pod.cells()...)
	}
	m.WriteString("\n" + r.Stamp.sentence(fmt.Sprintf("%d updates of each kind", r.Updates)))
	return m.String()
}

// updateDocs updates the table in the guard's documentation.
func (r *fencesResult) updateDocs() error {
	if r == nil {
		return errors.New("-update-docs needs the results of all parts; run make bench first")
	}
	return errors.Join(
		replaceInFile(guardDocsFile, "fences", r.table()), replaceInFile(guardDocsFile, "sizes", r.sizeTable()))
}
