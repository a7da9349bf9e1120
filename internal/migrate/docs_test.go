// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/migrate"
)

// The pages have the tables that migrate works with.
func TestTheDocumentationHasTheTables(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- inputs: generated -->\n", "<!-- end of inputs -->\n"
	for _, p := range migrate.Peers() {
		path := filepath.Join("..", "..", "docs", "migrate", p.Name+".md")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, found := strings.Cut(string(text), begin)
		_, after, foundEnd := strings.Cut(rest, end)
		if !found || !foundEnd {
			t.Errorf("%s: got no lines %s and %s", path, strings.TrimSpace(begin), strings.TrimSpace(end))
			continue
		}
		want := before + begin + p.Table() + end + after
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("%s: run go test ./internal/migrate -update (-want +got):\n%s", path, diff)
		}
	}
}
