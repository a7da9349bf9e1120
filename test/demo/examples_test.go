// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestEveryExampleIsShown(t *testing.T) {
	t.Parallel()
	examples, err := readExamples("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, e := range examples {
		shown = append(shown, e.name+".yaml")
		for _, got := range []string{e.account.Namespace, e.pod.Namespace} {
			if got != namespace {
				t.Errorf("%s: got namespace %q, want %q", e.file(), got, namespace)
			}
		}
		if got := e.pod.Spec.ServiceAccountName; got != e.account.Name || got != e.name {
			t.Errorf("%s: got a pod of the ServiceAccount %q, want %q", e.file(), got, e.name)
		}
	}
	slices.Sort(shown)
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if diff := cmp.Diff(files, shown); diff != "" {
		t.Errorf("files of examples/ (-existing +shown):\n%s", diff)
	}
}

func TestContainerProblems(t *testing.T) {
	t.Parallel()
	grants := []grant{plainGrant("vault")}
	mounts := []corev1.VolumeMount{{Name: volumeName, MountPath: mountPath, ReadOnly: true}}
	variables := []corev1.EnvVar{{Name: "LANYARD_TOKEN_FILE", Value: mountPath + "/token"}}
	tests := map[string]struct {
		container corev1.Container
		want      []string
	}{
		"a complete container has no problems": {container: corev1.Container{VolumeMounts: mounts, Env: variables}},
		"a container without the volume": {
			corev1.Container{Name: "c", Env: variables},
			[]string{"container c: want the volume bound-sa-token, read-only, at " + mountPath},
		},
		"a container that can write to the volume": {
			corev1.Container{Name: "c", Env: variables, VolumeMounts: []corev1.VolumeMount{{Name: volumeName, MountPath: mountPath}}},
			[]string{"container c: want the volume bound-sa-token, read-only, at " + mountPath},
		},
		"a container without a variable": {
			corev1.Container{Name: "c", VolumeMounts: mounts},
			[]string{`container c: LANYARD_TOKEN_FILE: got "", want "` + mountPath + `/token"`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, containerProblems(&test.container, grants)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailuresAndTable(t *testing.T) {
	t.Parallel()
	good := &result{example: "aws", providers: "aws", containers: "1 of 1", tokens: 1}
	bad := &result{example: "gcp"}
	bad.check(true, "never")
	bad.check(false, "got %d, want %d", 1, 2)
	if err := failures([]*result{good}); err != nil {
		t.Errorf("got error %v, want none", err)
	}
	err := failures([]*result{good, bad})
	if want := "checks failed:\ngcp: got 1, want 2"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	var text strings.Builder
	(&printer{w: &text}).table([]*result{good, bad})
	want := `
EXAMPLE   PROVIDERS   CONTAINERS   TOKENS       VERDICT
aws       aws         1 of 1       1 verified   ok
gcp       -           -            -            FAILED, see above
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestStepFailure(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	err := (&printer{w: &text}).step("etcd", func() (string, error) { return "", errors.New("no") })
	if err == nil || err.Error() != "etcd: no" || text.String() != "• etcd ... failed\n" {
		t.Errorf("got %q and error %v, want the word failed", text.String(), err)
	}
}

func TestNewPrinter(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env  map[string]string
		want bool
	}{
		"not in a file":                     {want: false},
		"in a file if forced":               {env: map[string]string{"FORCE_COLOR": "1"}, want: true},
		"not in a file if FORCE_COLOR is 0": {env: map[string]string{"FORCE_COLOR": "0"}, want: false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPrinter(&strings.Builder{}, func(key string) string { return test.env[key] })
			if p.colour != test.want {
				t.Errorf("got colour %t, want %t", p.colour, test.want)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	got := slices.Collect(wrap("one two  three a-very-long-word end", 8))
	if diff := cmp.Diff([]string{"one two", "three", "a-very-long-word", "end"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
