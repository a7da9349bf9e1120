// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// deployDir holds the manifests, as they are for a cluster.
const deployDir = "deploy/base"

// Service accounts that pods run as, by what Lanyard gives them.
const (
	threeClouds = "app-of-3"
	awsAlone    = "app-of-1"
	unannotated = "app-of-0"
)

// cluster is a control plane with an administrator's client.
type cluster struct {
	*controlplane.ControlPlane
	kubernetes.Interface
	kubeconfig string // of the webhook, with the rights that it has in a cluster
}

// startCluster starts a control plane, which the run ends.
func (b *bench) startCluster(ctx context.Context) (*cluster, error) {
	b.printf("starting etcd and kube-apiserver")
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return nil, err
	}
	b.ends = append(b.ends, plane.Stop)
	config := plane.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.UserAgent = "kube-controller-manager/" + plane.Version() // as pods come
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane, Interface: client}
	dir, err := b.subdir(fmt.Sprintf("cluster-%d", len(b.ends)))
	if err != nil {
		return nil, err
	}
	c.kubeconfig = filepath.Join(dir, "kubeconfig")
	return c, c.grant(ctx)
}

// grant lets a user do what deploy/ lets the webhook do.
func (c *cluster) grant(ctx context.Context) error {
	config, err := webhook.Grant(ctx, c.ControlPlane, deployDir)
	if err != nil {
		return fmt.Errorf("%w; this runs in the repository's root", err)
	}
	return controlplane.WriteKubeconfig(c.kubeconfig, config)
}

// createNamespace makes a namespace with the accounts above.
func (c *cluster) createNamespace(ctx context.Context, name string) error {
	if err := c.CreateNamespace(ctx, name); err != nil {
		return err
	}
	all := identity(0)
	aws := map[string]string{}
	for _, key := range []string{"lanyard.dev/aws-role-arn", "lanyard.dev/aws-region"} {
		aws[key] = all[key]
	}
	for account, annotations := range map[string]map[string]string{threeClouds: all, awsAlone: aws, unannotated: nil} {
		_, err := c.CoreV1().ServiceAccounts(name).Create(ctx, newAccount(account, annotations), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating a service account: %w", err)
		}
	}
	return nil
}

// identity gives the annotations of three clouds. Any two numbers give
// different ones, as different applications have.
func identity(number int) map[string]string {
	return map[string]string{
		"lanyard.dev/aws-role-arn":                   fmt.Sprintf("arn:aws:iam::111122223333:role/production/application-%06d", number),
		"lanyard.dev/aws-region":                     "eu-central-1",
		"lanyard.dev/azure-client-id":                fmt.Sprintf("55556666-cccc-7777-dddd-%012d", number),
		"lanyard.dev/azure-tenant-id":                "aaaabbbb-0000-cccc-1111-dddd2222eeee",
		"lanyard.dev/gcp-workload-identity-provider": "projects/123456789012/locations/global/workloadIdentityPools/example-pool/providers/example-cluster",
		"lanyard.dev/gcp-service-account":            fmt.Sprintf("application-%06d@example-project.iam.gserviceaccount.com", number),
	}
}

func newAccount(name string, annotations map[string]string) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: annotations, Labels: map[string]string{"app.kubernetes.io/name": name},
	}}
	if annotations != nil {
		account.Labels["lanyard.dev/identity"] = "enabled" // as Lanyard's own webhook for accounts sets it
	}
	return account
}

// register has the API server call url for the pods of one namespace, and for
// no others, as deploy/ registers Lanyard, and returns when that is in effect:
// when inEffect says so of what becomes of a pod. Without inEffect it returns
// at once.
func (c *cluster) register(ctx context.Context, url string, ca []byte, namespace string, inEffect func(*corev1.Pod) bool) error {
	config, err := webhook.ReadMutating(deployDir)
	if err != nil {
		return fmt.Errorf("%w; this runs in the repository's root", err)
	}
	config.Name = namespace
	config.Webhooks = config.Webhooks[:1]
	pods := &config.Webhooks[0]
	pods.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca}
	pods.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	// What was not answered must not pass for measured.
	pods.FailurePolicy = new(admissionregistrationv1.Fail)
	_, err = c.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, config, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("registering %s: %w", url, err)
	}
	if inEffect == nil {
		return nil
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		pod, err := c.dryRun(ctx, namespace, newPod(threeClouds, 1))
		return err == nil && inEffect(pod), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server to call %s: %w", url, err)
	}
	return nil
}

// dryRun creates a pod without storing it, and gives what would be stored.
func (c *cluster) dryRun(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}
