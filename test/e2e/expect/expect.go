// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect compares the reports of the SDKs in a pod with the records of the
// cloud emulators.
package expect

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// Patience limits each wait of a suite.
const Patience = framework.Patience

// Outcome is the expected result for a cloud: a credential for an identity, a
// refusal with a code of the cloud, or neither if the SDK must not find any
// credentials to use.
type Outcome struct{ identity, code string }

// Granted expects a credential for the identity, as named in the journal.
func Granted(identity string) Outcome { return Outcome{identity: identity} }

// Refused expects a refusal with the cloud's code.
func Refused(code string) Outcome { return Outcome{code: code} }

// None expects that the SDK found no credentials and did not call the cloud.
func None() Outcome { return Outcome{} }

// Outcomes are the expected results by cloud.
type Outcomes map[string]Outcome

// Clouds returns the clouds in the order of a report.
func (o Outcomes) Clouds() []string {
	return slices.DeleteFunc(slices.Concat(framework.AllClouds(), framework.CustomClouds()), func(cloud string) bool {
		_, ok := o[cloud]
		return !ok
	})
}

// Checker checks pods and records the results in a table.
type Checker struct {
	Cluster *framework.Cluster
	Clouds  *framework.Clouds
	Table   framework.Table
}

// Begin marks the case as failed until Check succeeds.
func (c *Checker) Begin(name, language string, want Outcomes) {
	for _, cloud := range want.Clouds() {
		c.Table.Set(name, language, cloud, "**FAILED**")
	}
}

// Check waits for the reports of a pod's container and compares them with the
// expected results. It fails the spec if they differ.
func (c *Checker) Check(ctx context.Context, name, language string, pod *corev1.Pod, container string, want Outcomes) {
	GinkgoHelper()
	results := c.Reports(ctx, pod, container, len(want))
	entries, err := c.Clouds.Journal(ctx)
	Expect(err).NotTo(HaveOccurred())
	All(want.Clouds(), func(cloud string) {
		index := slices.IndexFunc(results, func(r framework.Result) bool { return r.Cloud == cloud })
		Expect(index).To(BeNumerically(">=", 0), "a report about %s", cloud)
		c.CheckResult(name, language, pod, &results[index], want[cloud], entries)
	})
}

// All calls check for every item, even after a failure, so the table shows the result
// of each. It fails the spec with all failures together.
func All[T any](things []T, check func(T)) {
	GinkgoHelper()
	var failures error
	for _, thing := range things {
		failures = errors.Join(failures, InterceptGomegaFailure(func() { check(thing) }))
	}
	Expect(failures).NotTo(HaveOccurred())
}

// Reports waits for the first n reports of a pod's container.
func (c *Checker) Reports(ctx context.Context, pod *corev1.Pod, container string, n int) []framework.Result {
	GinkgoHelper()
	var results []framework.Result
	Eventually(func(g Gomega) {
		var err error
		results, err = c.Cluster.Results(ctx, pod, container)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(results)).To(BeNumerically(">=", n))
	}).WithContext(ctx).Should(Succeed(), "%d reports of container %s of pod %s", n, container, pod.Name)
	return results[:n]
}

// CheckResult is like Check for one report, with the journal from the time of
// the report.
func (c *Checker) CheckResult(name, language string, pod *corev1.Pod, got *framework.Result, want Outcome, entries []journal.Entry) {
	GinkgoHelper()
	ofPod := OfPod(entries, pod, got.Cloud)
	what := got.Cloud + " in " + language + ", pod " + pod.Name
	account := "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName
	switch {
	case want.identity != "":
		Expect(got.Error).To(BeEmpty(), what)
		Expect(got.Credential).To(HaveLen(64), what)
		// The cloud issued this credential for this pod's token.
		Expect(ofPod).To(ContainElement(And(
			HaveField("Credential", got.Credential), HaveField("Status", 200),
			HaveField("Identity", want.identity), HaveField("Subject", account), HaveField("Pod", pod.Name))), what)
		c.Table.Set(name, language, got.Cloud, "yes")
	case want.code != "":
		Expect(got.Credential).To(BeEmpty(), what)
		index := slices.IndexFunc(entries, func(e journal.Entry) bool {
			// A cloud that rejects a request before it checks the token does
			// not know the pod.
			return e.Cloud == got.Cloud && e.Code == want.code && (e.PodUID == string(pod.UID) || e.PodUID == "")
		})
		Expect(index).To(BeNumerically(">=", 0), "%s: got %v", what, ofPod)
		// Some SDKs show the cloud's code, others its message.
		Expect(got.Error).To(Or(ContainSubstring(want.code), ContainSubstring(entries[index].Message)), what)
		c.Table.Set(name, language, got.Cloud, "refused: "+want.code)
	default:
		Expect(got.Credential).To(BeEmpty(), what)
		Expect(got.Error).NotTo(BeEmpty(), what)
		Expect(ofPod).To(BeEmpty(), what)
		c.Table.Set(name, language, got.Cloud, "none")
	}
}

// OfPod returns a cloud's decisions about a pod, in order of time.
func OfPod(entries []journal.Entry, pod *corev1.Pod, cloud string) []journal.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e journal.Entry) bool {
		return e.Cloud != cloud || e.PodUID != string(pod.UID)
	})
}

// Untouched checks that a created pod has only the additions that Kubernetes
// itself makes. want is the pod spec as the API server stores it, with its
// defaults.
func Untouched(want *corev1.PodSpec, pod *corev1.Pod) {
	GinkgoHelper()
	for key := range pod.Annotations {
		Expect(key).NotTo(BeElementOf("lanyard.dev/injected", "lanyard.dev/aws-config", "lanyard.dev/gcp-credentials"), pod.Name)
	}
	Expect(slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(v corev1.Volume) bool { return ofKubernetes(v.Name) })).
		To(BeComparableTo(want.Volumes, cmpopts.EquateEmpty()), "volumes of pod %s", pod.Name)
	Expect(pod.Spec.Containers).To(HaveLen(len(want.Containers)))
	for i := range pod.Spec.Containers {
		got := &pod.Spec.Containers[i]
		Expect(got.Env).To(BeComparableTo(want.Containers[i].Env, cmpopts.EquateEmpty()), "environment of container %s of pod %s", got.Name, pod.Name)
		Expect(slices.DeleteFunc(slices.Clone(got.VolumeMounts), func(m corev1.VolumeMount) bool { return ofKubernetes(m.Name) })).
			To(BeComparableTo(want.Containers[i].VolumeMounts, cmpopts.EquateEmpty()), "mounts of container %s of pod %s", got.Name, pod.Name)
	}
}

// ofKubernetes reports whether the volume is the one that the ServiceAccount
// admission plugin adds.
func ofKubernetes(volume string) bool { return strings.HasPrefix(volume, "kube-api-access-") }
