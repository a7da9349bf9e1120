// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"encoding/json"
	"errors"
	"testing"

	evanphx "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// The injection of most tests: one provider with a token, a variable that points
// to it, another one, and a group of two.
const (
	mountPath = "/lanyard"
	tokenPath = "/lanyard/aws/token"
)

func injection() *provider.Injection {
	return &provider.Injection{MountPath: mountPath, Providers: []provider.Provider{{
		Name:  "aws",
		Token: provider.Token{Audience: "aud", ExpirationSeconds: 3600, Path: "aws/token"},
		Variables: []annotations.Variable{
			{Name: "ROLE", Value: "r"},
			{Name: "FILE", Value: tokenPath, Credential: true},
			{Name: "REGION", Value: "eu", Group: "region"},
			{Name: "DEFAULT_REGION", Value: "eu", Group: "region"},
		},
		Shadows: []annotations.Shadow{{Name: "KEY"}},
	}}}
}

// withFile returns the injection with a credential file next to the token.
func withFile() *provider.Injection {
	i := injection()
	i.Providers[0].File = provider.File{Annotation: "gcp-credentials", Path: "gcp/credentials.json", Content: `{"type":"external_account"}`}
	return i
}

func newSettings(t testing.TB) *annotations.Settings {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// read returns the pod in a text that contains nothing else.
func read(text string, settings *annotations.Settings) (*mutate.Pod, error) {
	return mutate.ReadPod([]byte(text), settings)
}

func parse(t testing.TB, pod string) *mutate.Pod {
	t.Helper()
	parsed, err := read(pod, newSettings(t))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// tryCreate calls Create for a pod that selects all containers.
func tryCreate(t *testing.T, pod string, i *provider.Injection) (mutate.Result, error) {
	t.Helper()
	return mutate.Create(parse(t, pod), &annotations.Pod{}, mutate.NewInjection(i))
}

func create(t *testing.T, pod string, i *provider.Injection) mutate.Result {
	t.Helper()
	return createSelected(t, pod, i, &annotations.Pod{})
}

func createSelected(t *testing.T, pod string, i *provider.Injection, selection *annotations.Pod) mutate.Result {
	t.Helper()
	result, err := mutate.Create(parse(t, pod), selection, mutate.NewInjection(i))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// createTwice returns the pod with the patch of Create. A second pass over it
// must add nothing and find the same.
func createTwice(t *testing.T, pod string, i *provider.Injection) (patched string, first mutate.Result) {
	t.Helper()
	first = create(t, pod, i)
	patched = apply(t, pod, first.Patch.Bytes())
	want := first.Reason
	if want == reason.Injected {
		want = reason.AlreadyInjected
	}
	second := create(t, patched, i)
	if second.Patch != nil || second.Reason != want {
		t.Errorf("second pass: got reason %s and patch %s, want reason %s and no patch", second.Reason, second.Patch.Bytes(), want)
	}
	if diff := cmp.Diff(first.Findings, second.Findings); diff != "" {
		t.Errorf("second pass: findings (-first +second):\n%s", diff)
	}
	return patched, first
}

// denied checks that err denies the pod for the reason, without a patch.
func denied(t *testing.T, want reason.Reason, result mutate.Result, err error) {
	t.Helper()
	var got *reason.Error
	if !errors.As(err, &got) || got.Reason != want || result.Patch != nil {
		t.Fatalf("got error %v and patch %s, want %s and no patch", err, result.Patch.Bytes(), want)
	}
}

// pathsOf lists the paths of a patch's operations. All of them must add.
func pathsOf(t *testing.T, patch []byte) (paths []string) {
	t.Helper()
	var operations []struct{ Op, Path string }
	if patch == nil {
		return nil
	}
	if err := json.Unmarshal(patch, &operations); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	for _, operation := range operations {
		if operation.Op != "add" {
			t.Errorf("got operation %q, want add", operation.Op)
		}
		paths = append(paths, operation.Path)
	}
	return paths
}

func apply(t *testing.T, pod string, patch []byte) string {
	t.Helper()
	if patch == nil {
		return pod
	}
	decoded, err := evanphx.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	patched, err := decoded.Apply([]byte(pod))
	if err != nil {
		t.Fatalf("apply %s to %s: %v", patch, pod, err)
	}
	return string(patched)
}

// podSpec contains the parts of a pod that the tests read.
type podSpec struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct {
		Volumes                                         []any
		InitContainers, Containers, EphemeralContainers []containerSpec
	}
}

type containerSpec struct {
	Name         string
	Env          []variableSpec
	VolumeMounts []mountSpec
}

type variableSpec struct {
	Name, Value string
	ValueFrom   any
}

type mountSpec struct {
	Name, MountPath string
	ReadOnly        bool
}

func decode(t *testing.T, pod string) podSpec {
	t.Helper()
	var p podSpec
	if err := json.Unmarshal([]byte(pod), &p); err != nil {
		t.Fatalf("%s: %v", pod, err)
	}
	return p
}

// encode returns the JSON of a value.
func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func reasonsOf(findings []mutate.Finding) (reasons []reason.Reason) {
	for _, finding := range findings {
		reasons = append(reasons, finding.Reason)
	}
	return reasons
}
