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

func TestChanges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before, after string
		want          []string
	}{
		"an added key and an added element are no changes": {"{a: [1], b: {c: d}}", "{a: [1, 2], b: {c: d, e: f}, g: h}", nil},
		"a removed key":         {"{a: {b: c}}", "{a: {}}", []string{"a.b: got <nil>, want c as before"}},
		"a changed value":       {"{a: [{b: c}]}", "{a: [{b: d}]}", []string{"a[0].b: got d, want c as before"}},
		"a shorter list":        {"{a: [1, 2]}", "{a: [1]}", []string{"a: got [1], want [1 2] as before"}},
		"an element in between": {"{a: [1, 2]}", "{a: [1, 3, 2]}", []string{"a[1]: got 3, want 2 as before"}},
		"a removed object":      {"{a: {}}", "{}", []string{"a: got <nil>, want map[] as before"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, changes("", object(t, test.before), object(t, test.after))); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdditions(t *testing.T) {
	t.Parallel()
	before := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"mine": "x"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "one", Env: []corev1.EnvVar{{Name: "MINE"}}}, {Name: "two"}, {Name: "three"},
		}},
	}
	after := before.DeepCopy()
	after.Annotations["lanyard.dev/injected"] = "token"
	after.Labels = map[string]string{"lanyard.dev/identity": "injected"}
	for i := range 2 {
		c := &after.Spec.Containers[i]
		c.Env = append(c.Env, corev1.EnvVar{Name: "LANYARD_TOKEN_FILE", Value: strings.Repeat("a", 100) + strings.Repeat("b", 100)})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeName, MountPath: "/run", ReadOnly: true})
	}
	after.Spec.Volumes = []corev1.Volume{{Name: volumeName, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault", ExpirationSeconds: new(int64(7200))}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "aws/config", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"}},
			}}},
		},
	}}}}
	want := []string{
		"label lanyard.dev/identity: injected",
		"annotation lanyard.dev/injected: token",
		"container one:",
		"  LANYARD_TOKEN_FILE=" + strings.Repeat("a", 20) + "…" + strings.Repeat("b", 16),
		"  /run: volume bound-sa-token, read-only: true",
		"container two: the same as one",
		"volume bound-sa-token:",
		"  token: a token of 7200 seconds for vault",
		"  aws/config: metadata.annotations['x']",
	}
	if diff := cmp.Diff(want, additions(before, after)); diff != "" {
		t.Errorf("additions (-want +got):\n%s", diff)
	}
	if got := additions(before, before); got != nil {
		t.Errorf("got additions %q of a pod to itself, want none", got)
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
