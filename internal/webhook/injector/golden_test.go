// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
)

var update = flag.Bool("update", false, "write the golden files")

// want is the form of want.yaml: the decision, and the pod as it then is.
type want struct {
	Reason   string   `json:"reason"`
	Code     int      `json:"code,omitempty"`
	Message  string   `json:"message,omitempty"`
	Findings []string `json:"findings,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// ServiceAccount has the annotations after adoption.
	ServiceAccount map[string]string `json:"serviceAccount,omitempty"`
	Pod            map[string]any    `json:"pod,omitempty"`
}

// TestGolden decides about testdata/CASE/pod.yaml with the account of
// serviceaccount.yaml and, where there is one, the namespace of
// namespace.yaml, and holds the decision to want.yaml. A case with old.yaml,
// the pod before, adds ephemeral containers.
func TestGolden(t *testing.T) {
	t.Parallel()
	goldenCases(t, "testdata/*/pod.yaml")
}

// TestGoldenConfigured is like TestGolden, for clusters with the settings of
// config.yaml.
func TestGoldenConfigured(t *testing.T) {
	t.Parallel()
	goldenCases(t, "testdata/configured/*/pod.yaml")
}

// TestGoldenProviders is like TestGolden, with each file of examples/providers. None
// is without a case.
func TestGoldenProviders(t *testing.T) {
	t.Parallel()
	goldenCases(t, "testdata/providers/*/pod.yaml")
	examples, err := filepath.Glob(exampleOf("*"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("got %d examples and error %v", len(examples), err)
	}
	for _, file := range examples {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if _, err := os.Stat(filepath.Join("testdata/providers", name, "pod.yaml")); err != nil {
			t.Errorf("%s has no case: %v", file, err)
		}
	}
}

// exampleOf returns the file of a ready-made provider.
func exampleOf(name string) string { return "../../../examples/providers/" + name + ".yaml" }

func goldenCases(t *testing.T, pattern string) {
	t.Helper()
	cases, err := filepath.Glob(pattern)
	if err != nil || len(cases) == 0 {
		t.Fatalf("got %d cases and error %v", len(cases), err)
	}
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(strings.ReplaceAll(filepath.Base(dir), "-", " "), func(t *testing.T) {
			t.Parallel()
			golden(t, dir)
		})
	}
}

func golden(t *testing.T, dir string) {
	t.Helper()
	pods, _ := newPods(t, metadataOf(t, filepath.Join(dir, "serviceaccount.yaml")))
	if label := labelOf(t, filepath.Join(dir, "serviceaccount.yaml"), pods.Keys.IdentityLabel); label != "" {
		pods.ServiceAccounts = labelled{pods.ServiceAccounts, label}
	}
	configure(t, &pods.Config, filepath.Join(dir, "config.yaml"))
	if filepath.Base(filepath.Dir(dir)) == "providers" {
		configure(t, &pods.Config, exampleOf(filepath.Base(dir)))
	}
	var adoption map[string]string
	if filepath.Base(filepath.Dir(dir)) == "adopted" {
		adoption = adopted(t, &pods.Config, filepath.Join(dir, "serviceaccount.yaml"))
		pods.ServiceAccounts = objects{"team/app": adoption}
	}
	pods.Namespaces = objects{"/team": metadataOf(t, filepath.Join(dir, "namespace.yaml"))}
	pod := read(t, filepath.Join(dir, "pod.yaml"))
	r := create(pod)
	if old := read(t, filepath.Join(dir, "old.yaml")); old != nil {
		r = debug(pod, old)
	}
	response := ask(t, pods, r)
	got := want{Reason: string(response.Reason), Findings: response.Findings, Warnings: response.Warnings, ServiceAccount: adoption}
	if response.Code != 0 {
		got.Code, got.Message = response.Code, response.Message
	} else {
		result := apply(t, pod, response.Patch)
		got.Pod = unmarshal(t, result)
		holdsRemovable(t, pods.Keys, dir, pod, result)
	}
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "want.yaml")
	if *update {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), string(text)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// configure sets what a configuration file says, as lanyard-webhook reads it.
func configure(t *testing.T, config *injector.Config, file string) {
	t.Helper()
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return
	}
	config.Settings = optionstest.Settings(t, file, reservedAudience)
}

// read gives a YAML file as JSON, nil where there is no such file.
func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	pod, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return pod
}

// labelled gives the objects with a value of the one label that is kept.
type labelled struct {
	injector.Getter
	label string
}

// Get implements injector.Getter.
func (l labelled) Get(ctx context.Context, namespace, name string) (metadatacache.Object, error) {
	object, err := l.Getter.Get(ctx, namespace, name)
	object.Label = l.label
	return object, err
}

// labelOf gives the value of a label of an object, empty without the file.
func labelOf(t *testing.T, file, label string) string {
	t.Helper()
	text := read(t, file)
	if text == nil {
		return ""
	}
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object.Labels[label]
}

// metadataOf gives the annotations of an object, none without the file.
func metadataOf(t *testing.T, file string) map[string]string {
	t.Helper()
	text := read(t, file)
	if text == nil {
		return nil
	}
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object.Annotations
}
