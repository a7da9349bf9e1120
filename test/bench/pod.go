// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// newPod returns a pod as a Deployment creates it, with one init container and
// n containers. The API server adds defaults, its own token volume and
// managedFields before it calls a webhook.
func newPod(account string, n int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "ingester-7c9d8b6f5d-",
			Labels:       map[string]string{"app.kubernetes.io/name": "logs", "app.kubernetes.io/component": "ingester", "pod-template-hash": "7c9d8b6f5d"},
			Annotations:  map[string]string{"checksum/config": "6f1ed002ab5595859014ebf0951522d9", "prometheus.io/scrape": "true"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "ingester-7c9d8b6f5d", UID: "7f0b8e0e-2a51-4e2d-9a6e-1f0c1f5f7a11",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: account,
			SecurityContext:    &corev1.PodSecurityContext{RunAsNonRoot: new(true), FSGroup: new(int64(10001))},
			InitContainers:     []corev1.Container{{Name: "prepare", Image: "example.com/prepare:3.5.1"}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "logs"}}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
	for i := range n {
		pod.Spec.Containers = append(pod.Spec.Containers, newContainer(i))
	}
	return pod
}

func newContainer(i int) corev1.Container {
	return corev1.Container{
		Name: fmt.Sprintf("ingester-%d", i), Image: "example.com/ingester:3.5.1",
		Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "2GiB"}},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt(3100 + i)}}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/logs"}},
	}
}
