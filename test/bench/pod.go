// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

//go:embed pod.yaml
var podYAML []byte

// newPod returns a pod like those of a Deployment, with one init container and n containers,
// after the API server has added defaults, its token volume and managedFields.
func newPod(account string, n int) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(podYAML, pod); err != nil {
		panic(err) // the file is part of the program
	}
	pod.Spec.ServiceAccountName = account
	container := pod.Spec.Containers[0]
	pod.Spec.Containers = nil
	for i := range n {
		c := container.DeepCopy()
		c.Name = fmt.Sprintf("ingester-%d", i)
		c.ReadinessProbe.HTTPGet.Port = intstr.FromInt(3100 + i)
		pod.Spec.Containers = append(pod.Spec.Containers, *c)
	}
	return pod
}
