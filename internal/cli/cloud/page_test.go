// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
)

// TestThePageHasTheCauses compares the page with causes.yaml, or writes it. Errors with the
// same cause are one item.
func TestThePageHasTheCauses(t *testing.T) {
	const page = "../../../docs/troubleshooting/cloud-denies.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for _, provider := range []string{"aws", "azure", "gcp"} {
		errors, causes, err := cloud.Causes(provider)
		if err != nil {
			t.Fatal(err)
		}
		var items strings.Builder
		for _, cause := range causes {
			fmt.Fprintf(&items, "- %s: %s\n", strings.Join(errors[cause], ", "), cause)
		}
		begin, end := "<!-- begin "+provider+" -->\n", "<!-- end "+provider+" -->\n"
		before, rest, found := strings.Cut(want, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s lacks %q or %q", page, begin, end)
		}
		want = before + begin + items.String() + end + after
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s (-want +got); -update writes it:\n%s", page, diff)
	}
}
