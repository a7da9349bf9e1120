// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

// attempt is a way to create pods directly after a write of their ServiceAccount.
type attempt struct {
	name string
	// existing is true for a ServiceAccount that exists and is annotated.
	existing bool
	// label is the user's label of the ServiceAccount, inject the annotation of the pod.
	label, inject string
}

// closed reports whether no pod may be created without credentials.
func (a *attempt) closed() bool { return a.inject == "true" || a.existing && a.label == "required" }

var attempts = []attempt{
	{name: "new ServiceAccount"},
	{name: "ServiceAccount just annotated", existing: true},
	{name: `new, pod with inject: "true"`, inject: "true"},
	{name: `just annotated, pod with inject: "true"`, existing: true, inject: "true"},
	{name: "new, identity: required", label: "required"},
	{name: "just annotated, identity: required", existing: true, label: "required"},
}

// figures are the results of one series.
type figures struct {
	// without and denied count the pods that were created at once.
	without, denied int
	// later counts the later pods that were created without credentials.
	later int
	// lags are the times from the write of the ServiceAccount to the first pod that was
	// injected.
	lags []time.Duration
}

// race measures how long it takes until the policies know a ServiceAccount, which the
// API server reads from a watch. $E2E_SAMPLES is the length of a series.
func race() {
	samples := 20
	if n, err := strconv.Atoi(os.Getenv("E2E_SAMPLES")); err == nil {
		samples = n
	}
	const raced, loaded = "identity-race", "identity-load"
	It("inject the pods of a new identity after a moment", func(ctx SpecContext) {
		for _, name := range []string{raced, loaded} {
			// The pods of the stream are not restricted.
			Expect(cluster.CreateNamespace(ctx, name, map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})).To(Succeed())
			DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, name) })
		}
		report = append(report, "| ServiceAccount | load | samples | pods at once without credentials | denied | min | p50 | p99 | max |", "|---|---|--:|--:|--:|--:|--:|--:|--:|")
		measureAll(ctx, raced, "idle", samples)
		stream, err := podstream.Start(ctx, cluster, loaded, 50, 0)
		Expect(err).NotTo(HaveOccurred())
		defer stream.Stop()
		// The policies know the stream's ServiceAccount after a moment.
		Expect(cluster.WaitInjected(ctx, loaded, podstream.WithIdentity)).To(Succeed())
		stream.Counts()
		measureAll(ctx, raced, "busy", samples)
		counts := stream.Counts()
		Expect(counts.Identity.Failed).To(BeEmpty(), counts.Identity.String())
		report = append(report, fmt.Sprintf("busy: %d pods meanwhile, %s", counts.Pods(), counts.Identity.String()))
	})
}

func measureAll(ctx context.Context, namespace, load string, samples int) {
	GinkgoHelper()
	for i, a := range attempts {
		prefix := fmt.Sprintf("%s-%d-", load, i)
		f := measure(ctx, namespace, prefix, &a, samples)
		slices.Sort(f.lags)
		at := func(percent int) string {
			return fmt.Sprintf("%.1f", float64(f.lags[min(len(f.lags)-1, len(f.lags)*percent/100)].Microseconds())/1000)
		}
		report = append(report, fmt.Sprintf("| %s | %s | %d | %d (%.1f %%) | %d | %s | %s | %s | %s |", a.name, load, samples, f.without,
			100*float64(f.without)/float64(samples), f.denied, at(0), at(50), at(99), at(100)))
		if a.closed() {
			Expect(f.without+f.later).To(BeZero(), a.name)
		}
	}
}

// batch is the number of ServiceAccounts that exist before they are annotated.
const batch = 20

// measure measures one series.
func measure(ctx context.Context, namespace, prefix string, a *attempt, samples int) (f figures) {
	GinkgoHelper()
	accounts := cluster.CoreV1().ServiceAccounts(namespace)
	annotations := map[string]string{"lanyard.dev/aws-role-arn": identities.Role, "lanyard.dev/aws-region": "eu-central-1"}
	account := func(i int) *corev1.ServiceAccount {
		meta := metav1.ObjectMeta{Name: prefix + strconv.Itoa(i)}
		if a.label != "" {
			meta.Labels = map[string]string{"lanyard.dev/identity": a.label}
		}
		return &corev1.ServiceAccount{ObjectMeta: meta}
	}
	for i := range samples {
		// Create a few at a time, because each labelled ServiceAccount costs time in its namespace.
		if a.existing && i%batch == 0 {
			for j := i; j < min(i+batch, samples); j++ {
				_, err := accounts.Create(ctx, account(j), metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
			}
			if a.closed() {
				waitClosed(ctx, namespace, prefix+strconv.Itoa(min(i+batch, samples)-1), a)
			}
		}
		written := account(i)
		var err error
		if a.existing {
			_, err = accounts.Patch(ctx, written.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":"`+
				identities.Role+`","lanyard.dev/aws-region":"eu-central-1"}}}`), metav1.PatchOptions{})
		} else {
			written.Annotations = annotations
			_, err = accounts.Create(ctx, written, metav1.CreateOptions{})
		}
		Expect(err).NotTo(HaveOccurred())
		f.follow(ctx, namespace, written.Name, a)
		Expect(accounts.Delete(ctx, written.Name, metav1.DeleteOptions{})).To(Succeed())
	}
	return f
}

// pod returns a pod of the ServiceAccount.
func (a *attempt) pod(account string) *corev1.Pod {
	pod := framework.SDKPod(account, framework.Go, journal.AWS)
	if a.inject != "" {
		pod.Annotations = map[string]string{"lanyard.dev/inject": a.inject}
	}
	return pod
}

// waitClosed waits until the policies know the ServiceAccount, which was created last.
func waitClosed(ctx context.Context, namespace, account string, a *attempt) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) error {
		_, err := podstream.Create(ctx, cluster, namespace, a.pod(account))
		return err
	}).Should(MatchError(ContainSubstring("lanyard: ")))
}

// follow creates pods of a ServiceAccount that was just written until one is injected.
func (f *figures) follow(ctx context.Context, namespace, account string, a *attempt) {
	GinkgoHelper()
	written := time.Now()
	pod := a.pod(account)
	for first := true; ; first = false {
		Expect(time.Since(written)).To(BeNumerically("<", expect.Patience), account)
		begun := time.Now()
		created, err := podstream.Create(ctx, cluster, namespace, pod)
		switch {
		case err == nil && podstream.HasIdentity(created):
			f.lags = append(f.lags, begun.Sub(written))
			return
		case err == nil && first:
			f.without++
		case err == nil:
			f.later++
		case first:
			f.denied++
		}
	}
}
