// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

const (
	role      = "arn:aws:iam::111122223333:role/app"
	clientID  = "11111111-2222-3333-4444-555555555555"
	tenantID  = "99999999-8888-7777-6666-555555555555"
	pool      = "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/cluster"
	mountPath = "/var/run/secrets/lanyard.dev/serviceaccount"

	startTimeout = controlplane.Patience
)

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// threeClouds returns the annotations of a ServiceAccount with identities of all three clouds.
func threeClouds() map[string]string {
	return map[string]string{
		"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1",
		"lanyard.dev/azure-client-id": clientID, "lanyard.dev/azure-tenant-id": tenantID,
		"lanyard.dev/gcp-workload-identity-provider": pool,
	}
}

// variables contains those of an AWS, an Azure and a Google identity.
var variables = map[string][]string{
	"aws":   {"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_SESSION_NAME", "AWS_STS_REGIONAL_ENDPOINTS", "AWS_REGION", "AWS_DEFAULT_REGION"},
	"azure": {"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"},
	"gcp":   {"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"},
}

// allVariables returns the variables of all three, sorted.
func allVariables() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(variables))...)))
}

// newNamespace creates a namespace for the spec.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return labelledNamespace(ctx, nil)
}

// labelledNamespace makes a namespace that has labels from the start: the API server learns of a
// change from a watch, but looks for a namespace that it does not know.
func labelledNamespace(ctx context.Context, labels map[string]string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-" + rand.String(8), Labels: labels}}
	_, err := cluster.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	newAccount(ctx, namespace.Name, "default", nil)
	return namespace.Name
}

func newAccount(ctx context.Context, namespace, name string, annotations map[string]string) *corev1.ServiceAccount {
	GinkgoHelper()
	account, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return account
}

// newPod returns a pod with n containers that is not created yet.
func newPod(name, account string, n int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account},
	}
	for i := range n {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("main-%d", i), Image: "image"})
	}
	return pod
}

func createPod(ctx context.Context, namespace string, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	created, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return created
}

// names returns the names of the variables, sorted.
func names(env []corev1.EnvVar) []string {
	var names []string
	for _, v := range env {
		names = append(names, v.Name)
	}
	return slices.Sorted(slices.Values(names))
}

// value returns the value of a variable.
func value(env []corev1.EnvVar, name string) string {
	for _, v := range env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// tokenVolume returns the pod's volume with this name.
func tokenVolume(pod *corev1.Pod, name string) *corev1.ProjectedVolumeSource {
	for _, v := range pod.Spec.Volumes {
		if v.Name == name {
			return v.Projected
		}
	}
	return nil
}

// expectThreeClouds checks that a container has the variables of the three clouds and
// the mount.
func expectThreeClouds(env []corev1.EnvVar, mounts []corev1.VolumeMount) {
	GinkgoHelper()
	Expect(names(env)).To(Equal(allVariables()))
	Expect(mounts).To(ContainElement(corev1.VolumeMount{Name: "bound-sa-token", MountPath: mountPath, ReadOnly: true}))
}
