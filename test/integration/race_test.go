// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rounds is how often each race is run. A webhook that relied on its watch would miss one
// pod of 43 (docs/concepts/guard.md), so a test of 200 rounds notices it 99 times of 100.
const rounds = 200

// Other webhooks admit a pod without credentials when their cache is behind.
var _ = Describe("A ServiceAccount in the same instant as its pod", func() {
	It("created: no pod misses its identity", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		before := lookups(ctx)
		missed := race(func(i int) bool {
			name := fmt.Sprintf("app-%d", i)
			created := make(chan error, 1)
			go func() {
				_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
					ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"lanyard.dev/aws-role-arn": role}},
				}, metav1.CreateOptions{})
				created <- err
			}()
			// The API server rejects the pod until the ServiceAccount exists.
			pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod(name, name, 1), metav1.CreateOptions{})
			for apierrors.IsForbidden(err) && ctx.Err() == nil {
				pod, err = cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod(name, name, 1), metav1.CreateOptions{})
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(<-created).To(Succeed())
			return value(pod.Spec.Containers[0].Env, "AWS_ROLE_ARN") != role
		})
		report("created in the same instant", missed, before, lookups(ctx))
		Expect(missed).To(BeZero())
	})

	// The pod follows as soon as the ServiceAccount was written. A pod that the guard
	// denies is retried, and misses nothing.
	annotated := func(ctx SpecContext, namespace, annotation string) (missed, refused int) {
		for i := range rounds {
			newAccount(ctx, namespace, fmt.Sprintf("app-%d", i), nil)
		}
		missed = race(func(i int) bool {
			name := fmt.Sprintf("app-%d", i)
			_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, name, types.MergePatchType, []byte(annotation), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod(name, name, 1), metav1.CreateOptions{})
			if deniedByGuard(err) {
				refused++
				return false
			}
			return value(pod.Spec.Containers[0].Env, "AWS_ROLE_ARN") != role
		})
		return missed, refused
	}

	It("annotated: no pod misses its identity where the webhook saw the ServiceAccount's write", func(ctx SpecContext) {
		before := lookups(ctx)
		missed, refused := annotated(ctx, newNamespace(ctx), fmt.Sprintf(`{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":%q}}}`, role))
		report("annotated just before, seen by the webhook", missed, before, lookups(ctx))
		Expect(missed).To(BeZero())
		Expect(refused).To(BeZero(), "the guard denied pods that have their identity")
	})

	// A pod that the webhook or the guard denies is retried, and has no identity.
	DescribeTable("changed: no pod has the previous identity where the webhook saw the ServiceAccount's write", func(ctx SpecContext, label, write string) {
		namespace := newNamespace(ctx)
		for i := range rounds / 4 {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("app-%d", i), Annotations: map[string]string{"lanyard.dev/aws-role-arn": role}, Labels: map[string]string{"lanyard.dev/identity": label},
			}}
			_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		previous, before := 0, validated(ctx)
		for i := range rounds / 4 {
			name := fmt.Sprintf("app-%d", i)
			Expect(createPod(ctx, namespace, newPod(name+"-before", name, 1)).Annotations).To(HaveKey("lanyard.dev/injected"))
			_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, name, types.MergePatchType, []byte(write), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod(name, name, 1), metav1.CreateOptions{})
			if err == nil && value(pod.Spec.Containers[0].Env, "AWS_ROLE_ARN") == role {
				previous++
			}
		}
		Expect(previous).To(BeZero(), "pods with the previous identity, of %d", rounds/4)
		Expect(validated(ctx)-before).To(Equal(rounds/4), "writes that the webhook saw: the watch may have been fast enough for the others")
	},
		Entry("to another one", "enabled", `{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":"arn:aws:iam::111122223333:role/other"}}}`),
		Entry("to none", "enabled", `{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":null}}}`),
		Entry("to none, and the label is removed in the same write", "enabled", `{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":null},"labels":{"lanyard.dev/identity":null}}}`),
		Entry("to none, and the label is required", "required", `{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":null}}}`),
		Entry("to none, and the label required is removed in the same write", "required", `{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":null},"labels":{"lanyard.dev/identity":null}}}`),
	)

	// This is the situation of a replica that did not review the write of the
	// ServiceAccount. How many pods miss their identity depends on the two watches, the
	// webhook's and the guard's, so it is only reported.
	It("annotated: pods have their identity as soon as the watch alone has brought the news", func(ctx SpecContext) {
		unregisterAccounts(ctx)
		namespace, before := newNamespace(ctx), lookups(ctx)
		missed, refused := annotated(ctx, namespace, fmt.Sprintf(`{"metadata":{"labels":{"lanyard.dev/identity":"enabled"},"annotations":{"lanyard.dev/aws-role-arn":%q}}}`, role))
		report("annotated just before, known from the watch alone", missed, before, lookups(ctx))
		AddReportEntry(fmt.Sprintf("the guard denied %d pods more", refused), ReportEntryVisibilityAlways)
		for i := range rounds {
			Eventually(ctx, func(ctx context.Context) (string, error) {
				pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("later", fmt.Sprintf("app-%d", i), 1), dryRun)
				if err != nil {
					return "", err
				}
				return value(pod.Spec.Containers[0].Env, "AWS_ROLE_ARN"), nil
			}).Within(startTimeout).Should(Equal(role))
		}
	})
})

// race counts the rounds that return true.
func race(round func(i int) bool) (missed int) {
	GinkgoHelper()
	for i := range rounds {
		if round(i) {
			missed++
		}
	}
	return missed
}

// report prints the result of each case, including those that pass.
func report(what string, missed int, before, after map[string]int) {
	line := fmt.Sprintf("%s: %d of %d pods without their identity; lookups: %d from the cache, %d live",
		what, missed, rounds, after["cache"]-before["cache"], after["live"]-before["live"])
	AddReportEntry(line, ReportEntryVisibilityAlways)
}

// unregisterAccounts keeps the API server from calling webhooks for ServiceAccounts
// until the spec ends.
func unregisterAccounts(ctx context.Context) {
	GinkgoHelper()
	api := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	config, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	all := config.DeepCopy().Webhooks
	config.Webhooks = all[:1]
	Expect(all[0].Name).To(Equal("pods.lanyard.dev"))
	config, err = api.Update(ctx, config, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	validating := cluster.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	validator, err := validating.Get(ctx, "lanyard", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(validating.Delete(ctx, "lanyard", metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, labels(ctx)).Within(startTimeout).Should(BeEmpty())
	DeferCleanup(func(ctx SpecContext) {
		config.Webhooks = all
		_, err := api.Update(ctx, config, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		validator.ObjectMeta = metav1.ObjectMeta{Name: validator.Name, Labels: validator.Labels, Annotations: validator.Annotations}
		_, err = validating.Create(ctx, validator, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		waitForRegistration(ctx)
		Eventually(ctx, labels(ctx)).Within(startTimeout).ShouldNot(BeEmpty())
	})
}

// labels creates an annotated ServiceAccount as a dry run, and returns its labels.
func labels(ctx context.Context) func(context.Context) (map[string]string, error) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "labels", Annotations: threeClouds()}}
	return func(ctx context.Context) (map[string]string, error) {
		created, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, dryRun)
		if err != nil {
			return nil, err
		}
		return created.Labels, nil
	}
}

var lookupLine = regexp.MustCompile(`(?m)^lanyard_serviceaccount_lookups_total\{result="[a-z_]+",source="([a-z]+)"\} (\d+)$`)

// lookups counts the webhook's lookups of ServiceAccounts by their source.
func lookups(ctx context.Context) map[string]int {
	GinkgoHelper()
	counts := map[string]int{}
	for _, match := range lookupLine.FindAllStringSubmatch(get(ctx, cluster.webhook.MetricsURL), -1) {
		n, err := strconv.Atoi(match[2])
		Expect(err).NotTo(HaveOccurred())
		counts[match[1]] += n
	}
	return counts
}

var validatedLine = regexp.MustCompile(`(?m)^lanyard_admissions_total\{reason="valid",resource="serviceaccounts",result="allowed"\} (\d+)$`)

// validated counts the writes of ServiceAccounts that the webhook has validated.
func validated(ctx context.Context) int {
	GinkgoHelper()
	match := validatedLine.FindStringSubmatch(get(ctx, cluster.webhook.MetricsURL))
	Expect(match).NotTo(BeNil())
	n, err := strconv.Atoi(match[1])
	Expect(err).NotTo(HaveOccurred())
	return n
}

// get reads a URL, which must respond with 200.
func get(ctx context.Context, url string) string {
	GinkgoHelper()
	status, body := fetch(ctx, url)
	Expect(status).To(Equal(http.StatusOK), body)
	return body
}

func fetch(ctx context.Context, url string) (status int, body string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(text)
}
