// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import "testing"

func TestMigrateChangesAServiceAccountAsItWasRead(t *testing.T) {
	t.Parallel()
	patch, err := annotationPatch(&Change{Object: &Object{version: "7"}, Set: map[string]string{"a": "b"}, Remove: []string{"c"}})
	if want := `{"metadata":{"annotations":{"a":"b","c":null},"resourceVersion":"7"}}`; err != nil || string(patch) != want {
		t.Errorf("got %s and %v, want %s", patch, err, want)
	}
}
