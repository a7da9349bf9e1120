// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/test/docs/reference"
)

func TestTheReferenceIsGeneratedFromTheCode(t *testing.T) {
	for _, name := range reference.Pages() {
		file := "docs/reference/" + name
		got := string(readFile(t, file))
		want, err := reference.Update(name, got)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("run make generate: %s (-want +got):\n%s", file, diff)
		}
	}
}
