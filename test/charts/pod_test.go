// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A field that the chart sets would be in the pod twice.
func TestFieldsOfThePodCannotBeSetTwice(t *testing.T) {
	values := parseValues(t, everything)
	d := find(render(t, defaultInstall, values).objects, "Deployment")[0]
	spec, _, err := unstructured.NestedMap(d.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	spec["hostNetwork"] = true // not in a restricted pod
	extra := values["podSpecExtra"].(map[string]any)
	if len(spec) < 20 || len(extra) < 5 {
		t.Fatalf("got %d fields, of which %d are in podSpecExtra: want all of them", len(spec), len(extra))
	}
	for field := range spec {
		_, err := tryRender(t, defaultInstall, parseValues(t, fmt.Sprintf("podSpecExtra: {%s: x}", field)))
		rejected := err != nil && strings.Contains(err.Error(), "podSpecExtra."+field+" is set by the chart")
		if _, isExtra := extra[field]; rejected == isExtra {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestPullSecretsOfTheParentChartAreUsedToo(t *testing.T) {
	v := parseValues(t, checksValues+"global: {imagePullSecrets: [a, {name: b}]}\nimagePullSecrets: [{name: b}, {name: c}]")
	want := []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	specs := podSpecs(t, render(t, defaultInstall, v).objects)
	if len(specs) != 4 {
		t.Errorf("got %d pods, want those of the Deployment, of both checks and of the test", len(specs))
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

// The chart would undo changes by an autoscaler.
func TestAnAutoscalerCanSetTheReplicas(t *testing.T) {
	if got := deployment(t, render(t, defaultInstall, nil).objects).Spec.Replicas; got == nil || *got != 2 {
		t.Errorf("got %v replicas by default, want 2", got)
	}
	d := find(render(t, defaultInstall, parseValues(t, "replicaCount: null")).objects, "Deployment")[0]
	// It must not be null either, which would mean 1 replica.
	if got, found, _ := unstructured.NestedFieldNoCopy(d.Object, "spec", "replicas"); found {
		t.Errorf("got %v replicas, want none with an autoscaler", got)
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
