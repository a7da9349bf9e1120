// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lanyard-dev/lanyard/internal/options"
)

// ErrOutside is returned for a webhook that the API server does not call through a Service.
var ErrOutside = errors.New("the webhook runs outside the cluster")

// webhook contains the objects behind one registration.
type webhook struct {
	service    part[*corev1.Service]
	deployment part[*appsv1.Deployment]
	options    part[*webhookOptions]
}

type webhookOptions struct {
	*options.Options
	allowed map[string]any
}

// webhook returns the parts behind a registration.
func (c *Survey) webhook(registration *admissionregistrationv1.MutatingWebhookConfiguration) *webhook {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.webhooks[registration.Name] == nil {
		c.webhooks[registration.Name] = new(webhook)
	}
	return c.webhooks[registration.Name]
}

// Service returns the Service that the API server calls. The error is ErrOutside if there is none.
func (c *Survey) Service(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration) (*corev1.Service, error) {
	return c.webhook(registration).service.get(func() (*corev1.Service, error) {
		entry := Entry(registration, PodWebhook)
		if entry == nil || entry.ClientConfig.Service == nil {
			return nil, ErrOutside
		}
		reference := entry.ClientConfig.Service
		service, err := c.client.CoreV1().Services(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("service %s/%s: %w", reference.Namespace, reference.Name, err)
		}
		return service, nil
	})
}

// Deployment returns the Deployment of the webhook, behind the Service that the API server
// calls.
func (c *Survey) Deployment(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration) (*appsv1.Deployment, error) {
	return c.webhook(registration).deployment.get(func() (*appsv1.Deployment, error) {
		service, err := c.Service(ctx, registration)
		if err != nil {
			return nil, err
		}
		all, err := c.client.AppsV1().Deployments(service.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list deployments in the namespace %s: %w", service.Namespace, err)
		}
		selector := labels.SelectorFromSet(service.Spec.Selector)
		for i := range all.Items {
			if len(service.Spec.Selector) > 0 && selector.Matches(labels.Set(all.Items[i].Spec.Template.Labels)) {
				return &all.Items[i], nil
			}
		}
		return nil, fmt.Errorf("service %s/%s: no deployment has its pods", service.Namespace, service.Name)
	})
}

// Replicas returns the pods behind the Service that the API server calls.
func (c *Survey) Replicas(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration) ([]corev1.Pod, error) {
	service, err := c.Service(ctx, registration)
	if err != nil {
		return nil, err
	}
	pods, err := c.client.CoreV1().Pods(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// Options returns the options of the webhook, from the Service that the API server calls, the
// arguments of the Deployment behind it, and the ConfigMap with the file of --config. No
// replica needs to run. allowed contains fields of the webhook's own pods. Other pods with
// these fields pass the policies of the cluster as well.
func (c *Survey) Options(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration) (o *options.Options, allowed map[string]any, err error) {
	read, err := c.webhook(registration).options.get(func() (*webhookOptions, error) {
		deployment, err := c.Deployment(ctx, registration)
		if err != nil {
			return new(webhookOptions), err
		}
		read := &webhookOptions{allowed: fieldsOf(deployment)}
		read.Options, err = options.Load(Container(deployment).Args, func(file string) ([]byte, error) { return c.readMounted(ctx, deployment, file) })
		if err != nil {
			return read, fmt.Errorf("deployment %s/%s: %w", deployment.Namespace, deployment.Name, err)
		}
		return read, nil
	})
	return read.Options, read.allowed, err
}

// fieldsOf returns the labels and the image of the pods of a Deployment.
func fieldsOf(deployment *appsv1.Deployment) map[string]any {
	values := map[string]any{}
	for key, value := range deployment.Spec.Template.Labels {
		if !strings.HasSuffix(key, "/inject") { // a label that opts out
			values[key] = value
		}
	}
	return map[string]any{
		"metadata": map[string]any{"labels": values},
		"spec":     map[string]any{"containers": []any{map[string]any{"image": Container(deployment).Image}}},
	}
}

// Container returns the container of the webhook: the container with the name in the
// manifests, or the first container.
func Container(deployment *appsv1.Deployment) *corev1.Container {
	pod := &deployment.Spec.Template.Spec
	named := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "webhook" })
	return &pod.Containers[max(named, 0)] // the API server rejects pods without containers
}

// readMounted returns the content of a file in the container of the webhook, from a
// ConfigMap.
func (c *Survey) readMounted(ctx context.Context, deployment *appsv1.Deployment, file string) ([]byte, error) {
	pod, namespace := &deployment.Spec.Template.Spec, deployment.Namespace
	for _, mount := range Container(deployment).VolumeMounts {
		relative, below := strings.CutPrefix(file, strings.TrimSuffix(mount.MountPath, "/")+"/")
		volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if !below || volume < 0 || pod.Volumes[volume].ConfigMap == nil {
			continue
		}
		source, key := pod.Volumes[volume].ConfigMap, path.Join(mount.SubPath, relative)
		if item := slices.IndexFunc(source.Items, func(item corev1.KeyToPath) bool { return item.Path == key }); item >= 0 {
			key = source.Items[item].Key
		}
		configMap, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, source.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("configmap %s/%s: %w", namespace, source.Name, err)
		}
		if text, found := configMap.Data[key]; found {
			return []byte(text), nil
		}
		return nil, fmt.Errorf("configmap %s/%s: the key %q is missing", namespace, source.Name, key)
	}
	return nil, fmt.Errorf("%s is not a file of a ConfigMap", file)
}
