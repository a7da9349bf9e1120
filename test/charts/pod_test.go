// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A field that the chart sets would be in the pod twice.
func TestFieldsOfThePodCannotBeSetTwice(t *testing.T) {
	d := find(render(t, defaultInstall, parseValues(t, everything)).objects, "Deployment")[0]
	spec, _, err := unstructured.NestedMap(d.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	spec["hostNetwork"] = true // not in a restricted pod
	if len(spec) < 20 {
		t.Fatalf("got %d fields, want all of them", len(spec))
	}
	for field := range spec {
		_, err := tryRender(t, defaultInstall, parseValues(t, fmt.Sprintf("podSpecExtra: {%s: x}", field)))
		rejected := err != nil && strings.Contains(err.Error(), "podSpecExtra."+field+" is set by the chart")
		if extra := field == "shareProcessNamespace"; rejected == extra {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestPullSecretsOfTheParentChartAreUsedToo(t *testing.T) {
	v := parseValues(t, "global: {imagePullSecrets: [a, {name: b}]}\nimagePullSecrets: [{name: b}, {name: c}]")
	want := []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	specs := podSpecs(t, render(t, defaultInstall, v).objects)
	if len(specs) != 2 {
		t.Errorf("got %d pods, want those of the Deployment and of the test", len(specs))
	}
	for key, spec := range specs {
		if diff := cmp.Diff(want, spec.ImagePullSecrets); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

func TestAnnotationsOfPodsAreTemplates(t *testing.T) {
	objects := render(t, defaultInstall, parseValues(t, `podAnnotations: {release: "{{ .Release.Name }}", plain: "1"}`)).objects
	if diff := cmp.Diff(map[string]string{"release": release, "plain": "1"}, deployment(t, objects).Spec.Template.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// Both would set the number of replicas again and again.
func TestEitherTheChartOrTheAutoscalerSetsTheReplicas(t *testing.T) {
	objects := render(t, defaultInstall, nil).objects
	if got := find(objects, "HorizontalPodAutoscaler"); len(got) > 0 || deployment(t, objects).Spec.Replicas == nil {
		t.Errorf("got %d autoscalers and replicas %v by default", len(got), deployment(t, objects).Spec.Replicas)
	}
	objects = render(t, defaultInstall, parseValues(t, "autoscaling: {enabled: true, maxReplicas: 9}")).objects
	d := deployment(t, objects)
	if d.Spec.Replicas != nil {
		t.Errorf("got %d replicas, want none with an autoscaler", *d.Spec.Replicas)
	}
	hpa := decode[autoscalingv2.HorizontalPodAutoscaler](t, find(objects, "HorizontalPodAutoscaler")[0]).Spec
	if hpa.ScaleTargetRef.Name != d.Name || hpa.ScaleTargetRef.Kind != "Deployment" || *hpa.MinReplicas != 2 || hpa.MaxReplicas != 9 {
		t.Errorf("got %+v with at least %d replicas", hpa, *hpa.MinReplicas)
	}
	if got := hpa.Metrics[0].Resource; got.Name != corev1.ResourceCPU || *got.Target.AverageUtilization != 80 {
		t.Errorf("got the metric %+v, want 80 %% of the CPU", got)
	}
	objects = render(t, defaultInstall, parseValues(t, "autoscaling: {enabled: true, metrics: [{type: External}]}")).objects
	if got := decode[autoscalingv2.HorizontalPodAutoscaler](t, find(objects, "HorizontalPodAutoscaler")[0]).Spec.Metrics; len(got) != 1 || got[0].Type != "External" {
		t.Errorf("got the metrics %+v, want the user's", got)
	}
}

func TestTheNamespaceIsRestricted(t *testing.T) {
	if got := find(render(t, defaultInstall, nil).objects, "Namespace"); len(got) > 0 {
		t.Errorf("got %s by default: helm install creates it itself", got[0].key())
	}
	r := render(t, defaultInstall, parseValues(t, "namespaceOverride: own\nnamespace: {create: true}"))
	own := one(t, r.objects, "Namespace/own")
	got := own.GetLabels()
	for _, key := range []string{"enforce", "audit", "warn"} {
		if got["pod-security.kubernetes.io/"+key] != "restricted" {
			t.Errorf("got the labels %v, want Pod Security restricted", got)
		}
	}
}
