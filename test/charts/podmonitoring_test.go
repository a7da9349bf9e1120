// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// podMonitoring has the fields that the chart uses of the type PodMonitoring, from
// github.com/GoogleCloudPlatform/prometheus-engine, pkg/operator/apis/monitoring/v1.
// All of them are required there.
type podMonitoring struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// DeepCopyObject is for runtime.Object. Nothing changes the copy.
func (p *podMonitoring) DeepCopyObject() runtime.Object {
	c := *p
	return &c
}

func addPodMonitoring(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "monitoring.googleapis.com", Version: "v1", Kind: "PodMonitoring"}, new(podMonitoring))
	return nil
}
