// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before, after string
		want          string // as printed
		violations    []string
	}{
		"equal objects have no difference": {
			before: `{spec: {containers: [{name: app}]}}`,
			after:  `{spec: {containers: [{name: app}]}}`,
		},
		"additions are shown under their path": {
			before: `{metadata: {name: p}, spec: {containers: [{name: app, volumeMounts: [{name: old}]}]}}`,
			after: `{metadata: {name: p, annotations: {a: "1"}}, spec: {containers: [{name: app, env: [{value: x, name: A}],
				volumeMounts: [{name: old}, {name: new, readOnly: true}]}]}}`,
			want: `
  metadata:
+   annotations: {a: "1"}
  spec.containers[app]:
+   env:
+   - {name: A, value: x}
  spec.containers[app].volumeMounts:
+   - {name: new, readOnly: true}`,
		},
		"a container with the same additions as another refers to it": {
			before: `{containers: [{name: app}, {name: exporter}, {name: other}]}`,
			after: `{containers: [{name: app, env: [{name: A, value: x}]}, {name: exporter, env: [{name: A, value: x}]},
				{name: other, env: [{name: A, value: z}]}]}`,
			want: `
  containers[app]:
+   env:
+   - {name: A, value: x}
+ containers[exporter]: # same as app
  containers[other]:
+   env:
+   - {name: A, value: z}`,
		},
		"objects within objects are printed as blocks": {
			before: `{volumes: []}`,
			after:  `{volumes: [{projected: {sources: [{token: {path: p, audience: a}}, {api: {items: [{path: q, ref: {x: z}}]}}]}, name: v}]}`,
			want: `
  volumes:
+   - name: v
+     projected:
+       sources:
+       - token: {audience: a, path: p}
+       - api:
+           items:
+           - path: q
+             ref: {x: z}`,
		},
		"a removed key is a violation":     {before: `{a: {b: 1, c: 2}}`, after: `{a: {b: 1}}`, violations: []string{"a.c was removed"}},
		"a changed value is a violation":   {before: `{a: 1}`, after: `{a: 2}`, violations: []string{"a was changed from 1 to 2"}},
		"a changed element is a violation": {before: `{a: [x]}`, after: `{a: ["y"]}`, violations: []string{"a[0] was changed from x to y"}},
		"a shorter list is a violation": {
			before: `{a: [x, z]}`, after: `{a: [x]}`,
			violations: []string{"a got 1 elements, want at least the previous 2"},
		},
		"a change within an element is a violation": {
			before: `{a: [{name: app, b: 1}]}`, after: `{a: [{name: app, b: 2}]}`,
			violations: []string{"a[app].b was changed from 1 to 2"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := compare(object(t, test.before), object(t, test.after))
			var got strings.Builder
			for _, l := range c.lines {
				mark := "  "
				if l.added {
					mark = "+ "
				}
				got.WriteString("\n" + mark + l.String())
			}
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.violations, c.violations); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScalar(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		value any
		want  string
	}{
		"a plain string is not quoted":                {"sts.amazonaws.com", "sts.amazonaws.com"},
		"a string that looks like a number is quoted": {"7200", `"7200"`},
		"a string that would end an item is quoted":   {"aws,azure", `"aws,azure"`},
		"a string of several lines is quoted":         {"a\nb", `"a\nb"`},
		"a number is not quoted":                      {float64(420), "420"},
		"a very long string is cut in the middle":     {strings.Repeat("a", 100) + strings.Repeat("b", 100), strings.Repeat("a", 20) + "…" + strings.Repeat("b", 16)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := scalar(test.value); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestScrub(t *testing.T) {
	t.Parallel()
	pod := func(uid, volume string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid", ResourceVersion: uid, CreationTimestamp: metav1.Now(), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: uid}}},
			Spec:       corev1.PodSpec{Volumes: []corev1.Volume{{Name: "kube-api-access-" + volume}}, ServiceAccountName: "s"},
			Status:     corev1.PodStatus{Phase: corev1.PodPhase(uid)},
		}
	}
	one, err := scrub(pod("1", "abcde"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := scrub(pod("2", "fghij"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, other); diff != "" {
		t.Errorf("two creations of one pod (-one +other):\n%s", diff)
	}
	if one["spec"].(map[string]any)["serviceAccountName"] != "s" {
		t.Errorf("got %v, want the ServiceAccount's name in it", one)
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &o); err != nil {
		t.Fatal(err)
	}
	return o
}
