// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A ServiceAccount that lost its annotation in the meantime must not be labelled: the API server
// denies a patch of another version. The label of a user stays.
func TestTheLabel(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{"": "enabled", "required": "required", "enabled": "enabled", "Required": "enabled"} {
		patch := labelPatch(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{"lanyard.dev/identity": label}}})
		if want := `{"metadata":{"labels":{"lanyard.dev/identity":"` + want + `"},"resourceVersion":"7"}}`; string(patch) != want {
			t.Errorf("%s: got %s, want %s", label, patch, want)
		}
	}
}
