// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// ambiguous lists the golden cases whose container sets a variable directly before the
// variables of Lanyard, or whose pod already has the label: the pod would be the same if
// Lanyard had set that variable or label.
var ambiguous = []string{
	"container-with-a-role-of-its-own", "profiles-and-a-role-of-the-container", "eks-skip-list-of-the-pod-has-no-effect",
	"tokens-for-external-secrets", "tokens-of-aws-in-each-container", "tokens-of-azure-do-not-need-a-client", "after-azure-1.5",
	"label-of-an-injected-pod-in-a-template",
}

// holdsRemovable checks that removing Lanyard's additions restores the original pod.
func holdsRemovable(t *testing.T, s *annotations.Settings, name string, pod, result []byte) {
	t.Helper()
	before, after := unmarshal(t, pod), unmarshal(t, result)
	if read, err := injected.Read(before, s); err != nil || len(read.Providers) > 0 {
		return // injected before, such as a pod that gets an ephemeral container
	}
	if err := injected.Remove(after, s, false); err != nil {
		t.Fatal(err)
	}
	prune(before)
	prune(after)
	if same := cmp.Equal(before, after); same == slices.Contains(ambiguous, name) {
		t.Errorf("%s: got equal: %t; pod after Remove (-before +after):\n%s", name, same, cmp.Diff(before, after))
	}
}

// prune removes lists and objects that are empty: Lanyard fills them, and Remove
// removes them.
func prune(object map[string]any) {
	for key, value := range object {
		switch v := value.(type) {
		case map[string]any:
			if prune(v); len(v) == 0 {
				delete(object, key)
			}
		case []any:
			for _, element := range v {
				if o, ok := element.(map[string]any); ok {
					prune(o)
				}
			}
			if len(v) == 0 {
				delete(object, key)
			}
		}
	}
}

// holdsReadable checks that reading an injected pod returns the injection.
func holdsReadable(t *testing.T, s *annotations.Settings, result []byte, injection *provider.Injection) {
	t.Helper()
	pod := unmarshal(t, result)
	got, err := injected.Read(pod, s)
	if err != nil {
		t.Fatal(err)
	}
	want := injected.Pod{MountPath: injection.MountPath, Files: map[string]string{}}
	for _, p := range injection.Providers {
		want.Providers = append(want.Providers, p.Name)
		want.Tokens = append(want.Tokens, injected.Token{
			Provider: p.Name, File: injection.MountPath + "/" + p.Token.Path,
			Path: p.Token.Path, Audience: p.Token.Audience, ExpirationSeconds: p.Token.ExpirationSeconds,
		})
		if p.File.Path != "" {
			want.Files[p.Name] = p.File.Content
		}
	}
	if len(got.Providers) == 0 {
		want = injected.Pod{Files: map[string]string{}} // no container takes part
	}
	ignore := []cmp.Option{cmpopts.IgnoreFields(injected.Pod{}, "Name", "Volume", "Containers"), cmpopts.IgnoreFields(injected.Token{}, "Volume"), cmpopts.IgnoreUnexported(injected.Pod{})}
	if diff := cmp.Diff(&want, got, ignore...); diff != "" {
		t.Errorf("pod (-injection +read):\n%s", diff)
	}
	var takePart, mounts []any
	for _, c := range got.Containers {
		if c.TakesPart {
			takePart = append(takePart, c.Name)
		}
	}
	spec := pod["spec"].(map[string]any)
	for _, c := range append(list(spec, "initContainers"), list(spec, "containers")...) {
		for _, m := range list(c, "volumeMounts") {
			if got.Volume != "" && m["name"] == got.Volume && m["mountPath"] == injection.MountPath {
				mounts = append(mounts, c["name"])
			}
		}
	}
	if diff := cmp.Diff(mounts, takePart); diff != "" {
		t.Errorf("containers (-mounted +read):\n%s", diff)
	}
	if state := got.Against(got).State; state != injected.Current && (state != injected.Unknown || len(got.Providers) > 0) {
		t.Errorf("the pod compared with itself: got %s", state)
	}
}
