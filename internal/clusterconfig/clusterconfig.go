// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterconfig reads the webhook's configuration file in a cluster. It is not
// part of package installation, which the webhook uses: the client here knows every API
// type.
package clusterconfig

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/installation"
)

// Read returns the content of the file that the webhook has as its --config; nil if it
// has none. It needs no running replica: it reads the Service that the API
// server calls, the Deployment behind it, and the Deployment's ConfigMap.
func Read(ctx context.Context, client kubernetes.Interface, configuration *admissionregistrationv1.MutatingWebhookConfiguration) ([]byte, error) {
	entry := installation.Entry(configuration, installation.PodWebhook)
	if entry == nil || entry.ClientConfig.Service == nil {
		return nil, errors.New("the webhook runs outside of the cluster")
	}
	deployment, err := deploymentOf(ctx, client, entry.ClientConfig.Service)
	if err != nil {
		return nil, err
	}
	name, key, err := configMapOf(&deployment.Spec.Template.Spec)
	if err != nil {
		return nil, fmt.Errorf("deployment %s/%s: %w", deployment.Namespace, deployment.Name, err)
	}
	if name == "" {
		return nil, nil
	}
	configMap, err := client.CoreV1().ConfigMaps(deployment.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("configmap %s/%s: %w", deployment.Namespace, name, err)
	}
	if text, found := configMap.Data[key]; found {
		return []byte(text), nil
	}
	return nil, fmt.Errorf("configmap %s/%s: got no key %q", deployment.Namespace, name, key)
}

// deploymentOf returns the Deployment behind a Service.
func deploymentOf(ctx context.Context, client kubernetes.Interface, reference *admissionregistrationv1.ServiceReference) (*appsv1.Deployment, error) {
	service, err := client.CoreV1().Services(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("service %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	all, err := client.AppsV1().Deployments(service.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list deployments in the namespace %s: %w", service.Namespace, err)
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for i := range all.Items {
		if len(service.Spec.Selector) > 0 && selector.Matches(labels.Set(all.Items[i].Spec.Template.Labels)) {
			return &all.Items[i], nil
		}
	}
	return nil, fmt.Errorf("service %s/%s: got no deployment with its pods", service.Namespace, service.Name)
}

// configMapOf returns the ConfigMap and the key that the file of --config is from.
// The name is empty if there is no such flag.
func configMapOf(pod *corev1.PodSpec) (name, key string, err error) {
	for i := range pod.Containers {
		file := configFlag(pod.Containers[i].Args)
		if file == "" {
			continue
		}
		for _, mount := range pod.Containers[i].VolumeMounts {
			relative, below := strings.CutPrefix(file, strings.TrimSuffix(mount.MountPath, "/")+"/")
			if !below {
				continue
			}
			if source := configMapVolume(pod.Volumes, mount.Name); source != nil {
				return source.Name, keyOf(source, path.Join(mount.SubPath, relative)), nil
			}
		}
		return "", "", fmt.Errorf("--config=%s is no file of a ConfigMap", file)
	}
	return "", "", nil
}

// configFlag returns the value of --config; empty if there is none.
func configFlag(args []string) string {
	value := ""
	for i, arg := range args {
		if file, found := strings.CutPrefix(arg, "--config="); found {
			value = file
		} else if arg == "--config" && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// configMapVolume returns the source of a volume; nil if it is no ConfigMap.
func configMapVolume(volumes []corev1.Volume, name string) *corev1.ConfigMapVolumeSource {
	for i := range volumes {
		if volumes[i].Name == name {
			return volumes[i].ConfigMap
		}
	}
	return nil
}

// keyOf returns the key of a file in a ConfigMap's volume.
func keyOf(source *corev1.ConfigMapVolumeSource, file string) string {
	for _, item := range source.Items {
		if item.Path == file {
			return item.Key
		}
	}
	return file
}
