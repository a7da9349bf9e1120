// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lanyard-dev/lanyard/test/support/podstream"
	"github.com/lanyard-dev/lanyard/test/support/process"
)

// Where the chart installs the webhook.
const (
	systemNamespace = "lanyard-system"
	deployment      = "lanyard-webhook"
)

// slow limits operations of a node, such as the end of a pod.
const slow = 10 * time.Minute

// installedSteps prepares the cluster of the kubeconfig, on which Lanyard is installed.
// Pods are first tried in a namespace that opted out, which means without Lanyard.
func (d *demo) installedSteps(ctx context.Context) []step {
	replicas := int32(0)
	d.outage = outage{
		what: "the webhook is scaled to no replicas, and the API server decides without it",
		begin: func(ctx context.Context) (err error) {
			if replicas, err = d.cluster.scale(ctx, 0); err != nil {
				return err
			}
			return d.cluster.waitReplicas(ctx, 0)
		},
		end: func(ctx context.Context) error {
			if replicas == 0 {
				return nil
			}
			_, err := d.cluster.scale(ctx, replicas)
			if err = errors.Join(err, d.cluster.waitReplicas(ctx, replicas)); err != nil {
				return err
			}
			// The node forwards calls to a ready replica only a moment later.
			return d.cluster.waitInEffect(ctx, d.examples[0])
		},
	}
	steps := []step{
		{"API server", func() (how string, err error) {
			config, err := clientcmd.BuildConfigFromFlags("", d.options.kubeconfig)
			if err != nil {
				return "", err
			}
			config.WarningHandler = rest.NoWarnings{}
			if d.cluster, err = connect(config); err != nil {
				return "", err
			}
			version, err := d.cluster.Discovery().ServerVersion()
			if err != nil {
				return "", err
			}
			return version.GitVersion + " ready", nil
		}},
		{"namespace " + namespace + ", which opted out of Lanyard, with the ServiceAccounts of examples/", func() (string, error) {
			if err := d.cluster.emptyNamespace(ctx); err != nil {
				return "", err
			}
			return "created", d.cluster.createOptedOut(ctx, d.examples)
		}},
		{"namespace opted in", func() (string, error) {
			if err := d.cluster.optOut(ctx, "null"); err != nil {
				return "", err
			}
			return "in effect", d.cluster.waitInEffect(ctx, d.examples[0])
		}},
	}
	if d.options.policies {
		steps = slices.Insert(steps, 1, step{"policies of deploy/policies", func() (string, error) {
			return "in effect", podstream.WaitLabelled(ctx, d.cluster)
		}})
	}
	return steps
}

// emptyNamespace creates the examples' namespace. If there is one from another run,
// it is deleted first.
func (c *cluster) emptyNamespace(ctx context.Context) error {
	// The examples' pods would only end after their grace period.
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := c.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := c.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{prefix + "inject": "disabled"}}}
	return process.Until(ctx, "the namespace "+namespace, slow, func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return false, nil // it is being deleted
		}
		return err == nil, err
	})
}

// createOptedOut creates the ServiceAccounts except for those that are denied, and
// records how the pods look without Lanyard.
func (c *cluster) createOptedOut(ctx context.Context, examples []*example) error {
	valid := slices.DeleteFunc(slices.Clone(examples), func(e *example) bool { return e.denied })
	if err := c.createServiceAccounts(ctx, valid); err != nil {
		return err
	}
	for _, e := range valid {
		if got := e.without.Annotations[injectedKey]; got != "" {
			return fmt.Errorf("pod %s: got the annotation %s: %s, want none in a namespace that opted out", e.pod.Name, injectedKey, got)
		}
	}
	return nil
}

// optOut sets the namespace's label to a value in JSON. The value null removes it.
func (c *cluster) optOut(ctx context.Context, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, prefix+"inject", value)
	_, err := c.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// scale sets the number of replicas and returns the previous one.
func (c *cluster) scale(ctx context.Context, replicas int32) (previous int32, err error) {
	deployments := c.AppsV1().Deployments(systemNamespace)
	current, err := deployments.GetScale(ctx, deployment, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	desired := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: deployment, Namespace: systemNamespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if _, err := deployments.UpdateScale(ctx, deployment, desired, metav1.UpdateOptions{}); err != nil {
		return 0, fmt.Errorf("scale the Deployment %s to %d: %w", deployment, replicas, err)
	}
	return current.Spec.Replicas, nil
}

// waitReplicas waits until the Deployment has this number of replicas, all ready.
func (c *cluster) waitReplicas(ctx context.Context, replicas int32) error {
	return process.Until(ctx, fmt.Sprintf("%d replicas of the Deployment %s", replicas, deployment), slow, func(ctx context.Context) (bool, error) {
		d, err := c.AppsV1().Deployments(systemNamespace).Get(ctx, deployment, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		pods, err := c.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		if err != nil {
			return false, err
		}
		return len(pods.Items) == int(replicas) && d.Status.ReadyReplicas == replicas, nil
	})
}
