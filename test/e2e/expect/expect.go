// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect holds what the SDKs in a pod report against what the clouds
// themselves know of it.
package expect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// Patience is how long a program may take until it has reported: SDKs try a
// refused request again for a while.
const Patience = 2 * time.Minute

// Outcome is what is wanted of a cloud: the credential of an identity, a refusal
// with a code of the cloud's, or neither, where an SDK is to find nothing to ask
// the cloud with.
type Outcome struct{ identity, code string }

// Granted wants a credential of the identity, as the journal names it.
func Granted(identity string) Outcome { return Outcome{identity: identity} }

// Refused wants a refusal with the cloud's own code.
func Refused(code string) Outcome { return Outcome{code: code} }

// None wants that the SDK found nothing, and that the cloud was not asked.
func None() Outcome { return Outcome{} }

// Outcomes are those of several clouds.
type Outcomes map[string]Outcome

// Clouds lists them in the order of a report.
func (o Outcomes) Clouds() []string {
	return slices.DeleteFunc(framework.AllClouds(), func(cloud string) bool {
		_, ok := o[cloud]
		return !ok
	})
}

// Checker checks pods and notes what it found in a table.
type Checker struct {
	Cluster *framework.Cluster
	Clouds  *framework.Clouds
	Table   framework.Table
}

// Begin has the table say that the case failed, until Check finds that it did
// not.
func (c *Checker) Begin(name, language string, want Outcomes) {
	for _, cloud := range want.Clouds() {
		c.Table.Begin(name, language, cloud)
	}
}

// Check waits for the reports of a pod's container and holds them against what
// is wanted. A failure is the spec's.
func (c *Checker) Check(ctx context.Context, name, language string, pod *corev1.Pod, container string, want Outcomes) {
	GinkgoHelper()
	results := c.Reports(ctx, pod, container, len(want))
	entries, err := c.Clouds.Journal(ctx)
	Expect(err).NotTo(HaveOccurred())
	All(want.Clouds(), func(cloud string) {
		index := slices.IndexFunc(results, func(r framework.Result) bool { return r.Cloud == cloud })
		Expect(index).To(BeNumerically(">=", 0), "a report of %s", cloud)
		c.CheckResult(name, language, pod, &results[index], want[cloud], entries)
	})
}

// All checks each of the things, also after one failed, so that the table tells
// them apart. The failures, in one, are the spec's.
func All[T any](things []T, check func(T)) {
	GinkgoHelper()
	var failures error
	for _, thing := range things {
		failures = errors.Join(failures, InterceptGomegaFailure(func() { check(thing) }))
	}
	Expect(failures).NotTo(HaveOccurred())
}

// Reports waits for the first reports of a pod's container, as many as n.
func (c *Checker) Reports(ctx context.Context, pod *corev1.Pod, container string, n int) []framework.Result {
	GinkgoHelper()
	var results []framework.Result
	Eventually(func(g Gomega) {
		var err error
		results, err = c.Cluster.Results(ctx, pod, container)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(results)).To(BeNumerically(">=", n))
	}).WithContext(ctx).WithTimeout(Patience).WithPolling(200*time.Millisecond).
		Should(Succeed(), "%d reports of container %s of pod %s", n, container, pod.Name)
	return results[:n]
}

// CheckResult is Check for one report, and what the clouds' journal was when it
// was made.
func (c *Checker) CheckResult(name, language string, pod *corev1.Pod, got *framework.Result, want Outcome, entries []journal.Entry) {
	GinkgoHelper()
	ofPod := OfPod(entries, pod, got.Cloud)
	what := got.Cloud + " in " + language + ", pod " + pod.Name
	account := "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName
	switch {
	case want.identity != "":
		Expect(got.Error).To(BeEmpty(), what)
		Expect(got.Credential).To(HaveLen(64), what)
		// The cloud handed out this credential, for this pod's own token.
		Expect(ofPod).To(ContainElement(And(
			HaveField("Credential", got.Credential), HaveField("Status", 200),
			HaveField("Identity", want.identity), HaveField("Subject", account), HaveField("Pod", pod.Name))), what)
		c.Table.Granted(name, language, got.Cloud)
	case want.code != "":
		Expect(got.Credential).To(BeEmpty(), what)
		index := slices.IndexFunc(entries, func(e journal.Entry) bool {
			// Where the cloud did not look at the token, it does not know whose it is.
			return e.Cloud == got.Cloud && e.Code == want.code && (e.PodUID == string(pod.UID) || e.PodUID == "")
		})
		Expect(index).To(BeNumerically(">=", 0), "%s: got %v", what, ofPod)
		// Some SDKs show a cloud's code, some its message.
		Expect(got.Error).To(Or(ContainSubstring(want.code), ContainSubstring(entries[index].Message)), what)
		c.Table.Refused(name, language, got.Cloud, want.code)
	default:
		Expect(got.Credential).To(BeEmpty(), what)
		Expect(got.Error).NotTo(BeEmpty(), what)
		Expect(ofPod).To(BeEmpty(), what)
		c.Table.None(name, language, got.Cloud)
	}
}

// OfPod gives what a cloud decided of a pod, in the order of time.
func OfPod(entries []journal.Entry, pod *corev1.Pod, cloud string) []journal.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e journal.Entry) bool {
		return e.Cloud != cloud || e.PodUID != string(pod.UID)
	})
}

// Untouched holds a pod as it was created against what was asked for: it has
// nothing more than what Kubernetes itself adds. want is as the API server has
// it, with its defaults.
func Untouched(want *corev1.PodSpec, pod *corev1.Pod) {
	GinkgoHelper()
	for key := range pod.Annotations {
		Expect(key).NotTo(BeElementOf("lanyard.dev/injected", "lanyard.dev/identity-hash", "lanyard.dev/gcp-credentials"), pod.Name)
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

// ofKubernetes says whether the volume is the one that the ServiceAccount plugin
// adds.
func ofKubernetes(volume string) bool { return strings.HasPrefix(volume, "kube-api-access-") }
