// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A ServiceAccount that lost its annotation in the meantime must not be labelled:
// the API server denies a patch of another version.
func TestTheLabelDependsOnTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	patch := labelPatch(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", ResourceVersion: "7"}})
	if want := `{"metadata":{"labels":{"lanyard.dev/identity":"enabled"},"resourceVersion":"7"}}`; string(patch) != want {
		t.Errorf("got %s, want %s", patch, want)
	}
}

func TestTheLabelOfAUserStays(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{"required": "required", "enabled": "enabled", "Required": "enabled"} {
		patch := labelPatch(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"lanyard.dev/identity": label}}})
		if want := `{"metadata":{"labels":{"lanyard.dev/identity":"` + want + `"},"resourceVersion":""}}`; string(patch) != want {
			t.Errorf("%s: got %s, want %s", label, patch, want)
		}
	}
}
