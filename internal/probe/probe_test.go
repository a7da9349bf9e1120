// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestWhenAPodCountsAsInjected(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	marked := map[string]any{"annotations": map[string]any{"lanyard.dev/injected": "aws,gcp"}}
	volume := func(name string) map[string]any {
		return map[string]any{"volumes": []any{map[string]any{"name": "data"}, map[string]any{"name": name}}}
	}
	for name, test := range map[string]struct {
		pod         map[string]any
		want, error string
	}{
		"the annotation and the volume":      {map[string]any{"metadata": marked, "spec": volume("bound-sa-token")}, "aws, gcp, from volume bound-sa-token", ""},
		"the volume under its fallback name": {map[string]any{"metadata": marked, "spec": volume("lanyard-bound-sa-token")}, "aws, gcp, from volume lanyard-bound-sa-token", ""},
		"a pod without both":                 {map[string]any{}, "", "the pod has no annotation lanyard.dev/injected: "},
		"a pod with only the volume":         {map[string]any{"spec": volume("bound-sa-token")}, "", "the pod has no annotation lanyard.dev/injected: "},
		"a pod with only the annotation":     {map[string]any{"metadata": marked, "spec": volume("other")}, "", "the pod has no token volume, "},
		"a pod without volumes":              {map[string]any{"metadata": marked}, "", "the pod has no token volume, "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := probe.Injection(s, "n/a", probe.Answer{Pod: &unstructured.Unstructured{Object: test.pod}})
			want := "pods of ServiceAccount n/a get credentials: " + test.want
			if test.error != "" {
				want = "pods of ServiceAccount n/a get no credentials: " + test.error
			}
			if !strings.HasPrefix(got.Text, want) || (got.Status == finding.OK) != (test.error == "") {
				t.Errorf("got %q, want %q", got.Text, want)
			}
		})
	}
}

// The webhook configuration selects the pod of a check by this label.
func TestThePodOfACheckIsAProbe(t *testing.T) {
	t.Parallel()
	if got := probe.Pod("app").GetLabels()["lanyard.dev/probe"]; got != "true" {
		t.Errorf("got label %q, want true", got)
	}
}

func TestOverridesAreMergedIntoThePod(t *testing.T) {
	t.Parallel()
	allowed := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": "mirror.example/webhook:v1"}}}}
	overrides, err := probe.ParseOverrides(`{metadata: {labels: {team: shop}}, spec: {containers: [{resources: {limits: {cpu: 1}}}, {name: more}], tolerations: [{operator: Exists}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(probe.Pod("app", allowed, overrides, nil).Object, &got); err != nil {
		t.Fatal(err)
	}
	if first := got.Spec.Containers[0]; first.Name != "check" || first.Image != "mirror.example/webhook:v1" || first.Resources.Limits.Cpu().String() != "1" || first.Resources.Limits.Memory().String() != "16Mi" {
		t.Errorf("got the container %+v", first)
	}
	if len(got.Spec.Containers) != 2 || len(got.Spec.Tolerations) != 1 || got.Labels["team"] != "shop" || got.Labels[annotations.Probe] != "true" {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(probe.Pod("app"), probe.Pod("app")); diff != "" || probe.Pod("app").GetLabels()["team"] != "" {
		t.Error("a pod has the overrides of another pod")
	}
	if _, err := probe.ParseOverrides("[]"); err == nil {
		t.Error("overrides that are no object are no error")
	}
}
