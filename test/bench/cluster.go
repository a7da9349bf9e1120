// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	// deployDir is the directory of the manifests.
	deployDir = "deploy/base"
	// patience is how long the API server may take to notice a change of its configuration.
	patience = 30 * time.Second
)

// ServiceAccounts of the pods, named by their number of clouds.
const (
	threeClouds = "app-of-3"
	unannotated = "app-of-0"
)

// cluster is a control plane with an administrator's client.
type cluster struct {
	*controlplane.ControlPlane
	kubernetes.Interface
	kubeconfig string // for the webhook, with its RBAC rules
}

// startCluster starts the control plane of a directory, by default the project's. The run
// stops it.
func (b *bench) startCluster(ctx context.Context, assets ...string) (*cluster, error) {
	b.printf("starting etcd and kube-apiserver")
	plane, err := controlplane.Start(ctx, controlplane.Options{Assets: strings.Join(assets, "")})
	if err != nil {
		return nil, err
	}
	b.ends = append(b.ends, plane.Stop)
	config := plane.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.UserAgent = "kube-controller-manager/" + plane.Version() // the client that creates most pods
	config.WarningHandler = rest.NoWarnings{}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane, Interface: clientset}
	dir, err := b.subdir("cluster")
	if err != nil {
		return nil, err
	}
	if config, err = webhook.Grant(ctx, plane, deployDir); err != nil {
		return nil, err
	}
	c.kubeconfig = filepath.Join(dir, "kubeconfig")
	return c, controlplane.WriteKubeconfig(c.kubeconfig, config)
}

// createNamespace creates a namespace with the ServiceAccounts above.
func (c *cluster) createNamespace(ctx context.Context, name string) error {
	if err := c.CreateNamespace(ctx, name); err != nil {
		return err
	}
	for account, annotations := range map[string]map[string]string{threeClouds: identity(0), unannotated: nil} {
		if err := c.createAccount(ctx, name, account, annotations); err != nil {
			return err
		}
	}
	return nil
}

// identity returns annotations for three clouds. Each number results in
// different values, as for different applications.
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

// createAccount creates a ServiceAccount. It labels an annotated one, as Lanyard's
// webhook for ServiceAccounts does.
func (c *cluster) createAccount(ctx context.Context, namespace, name string, annotations map[string]string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: annotations, Labels: map[string]string{"app.kubernetes.io/name": name},
	}}
	if annotations != nil {
		account.Labels["lanyard.dev/identity"] = "enabled"
	}
	if _, err := c.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a ServiceAccount: %w", err)
	}
	return nil
}

// register makes the API server call url for the pods of the namespaces, with the
// manifests' configuration. It returns when inEffect reports true for a created pod.
func (c *cluster) register(ctx context.Context, url string, ca []byte, inEffect func(*corev1.Pod) bool, namespaces ...string) error {
	config, err := webhook.ReadMutating(deployDir)
	if err != nil {
		return err
	}
	config.Name = namespaces[0]
	config.Webhooks = config.Webhooks[:1]
	pods := &config.Webhooks[0]
	pods.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca}
	pods.NamespaceSelector = in(namespaces)
	// A pod that was created without the webhook must not be measured.
	pods.FailurePolicy = new(admissionregistrationv1.Fail)
	_, err = c.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, config, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register %s: %w", url, err)
	}
	return c.waitInjected(ctx, "the API server to call "+url, namespaces[0], inEffect)
}

// waitInjected waits until inEffect reports true for a created pod.
func (c *cluster) waitInjected(ctx context.Context, what, namespace string, inEffect func(*corev1.Pod) bool) error {
	return process.Until(ctx, what, patience, func(ctx context.Context) (bool, error) {
		pod, err := c.dryRun(ctx, namespace, newPod(threeClouds, 1))
		return err == nil && inEffect(pod), err
	})
}

// in selects the namespaces.
func in(namespaces []string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces},
	}}
}

// createIn creates policies and their bindings, in effect in the namespaces.
func (c *cluster) createIn(ctx context.Context, objects []client.Object, namespaces []string) error {
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch binding := object.(type) {
		case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
			binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: in(namespaces)}
		case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
			binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: in(namespaces)}
		}
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create a policy: %w", err)
		}
	}
	return nil
}

// isInjected reports whether Lanyard's patch was applied to the pod.
func isInjected(pod *corev1.Pod) bool { return pod.Annotations["lanyard.dev/injected"] != "" }

// createAccounts creates a namespace with n other ServiceAccounts, of which the first
// ones are labelled. All have the given annotations or, if there are none, each its
// own.
func (c *cluster) createAccounts(ctx context.Context, namespace string, n, labelled int, annotations map[string]string) error {
	if err := c.createNamespace(ctx, namespace); err != nil {
		return err
	}
	for i := range n {
		own := annotations
		if own == nil {
			own = identity(i + 1)
		}
		if i >= labelled {
			own = nil
		}
		if err := c.createAccount(ctx, namespace, other(i), own); err != nil {
			return err
		}
	}
	return nil
}

// other returns the name of another ServiceAccount.
func other(i int) string { return fmt.Sprintf("other-%d", i) }

// dryRun creates a pod without storing it and returns the result.
func (c *cluster) dryRun(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// warmUp is the number of turns that are not measured.
const warmUp = 50

// way is an action to compare with others.
type way struct {
	name string
	do   func(ctx context.Context, turn int) error
}

// creation is the creation of a pod, as a dry run.
func (c *cluster) creation(name, namespace string, pod *corev1.Pod) way {
	return way{name, func(ctx context.Context, _ int) error {
		_, err := c.dryRun(ctx, namespace, pod)
		return err
	}}
}

// takeTurns does everything the given number of times, in turns, and returns the
// duration of each action in milliseconds.
func (b *bench) takeTurns(ctx context.Context, warmUp, turns int, ways ...way) ([][]float64, error) {
	times := make([][]float64, len(ways))
	last := time.Now()
	for i := range warmUp + turns {
		for j := range ways {
			next := (i + j) % len(ways)
			start := time.Now()
			if err := ways[next].do(ctx, i); err != nil {
				return nil, fmt.Errorf("%s: %w", ways[next].name, err)
			}
			if i >= warmUp {
				times[next] = append(times[next], time.Since(start).Seconds()*1000)
			}
		}
		if time.Since(last) > 5*time.Second {
			b.printf("turn %d of %d", i, warmUp+turns)
			last = time.Now()
		}
	}
	return times, nil
}
