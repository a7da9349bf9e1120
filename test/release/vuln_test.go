// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// url returns the URL of a directory.
func url(t *testing.T, directory string) string {
	t.Helper()
	path, err := filepath.Abs(directory)
	if err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// A scan that failed must not look like a scan that found nothing. The tests have a database with
// one entry, for golang.org/x/text v0.3.7.
//
//nolint:paralleltest // each run builds the tool if it is missing
func TestVulnerabilities(t *testing.T) {
	const (
		vulnerable, other = "test/release/testdata/vulnerable", "hack/tools/benchstat"

		none, found, noDatabase, failed = "", "Error 3", "Error 4", "Error 1"
	)
	database, empty := url(t, "testdata/vulndb"), url(t, t.TempDir())
	tests := map[string]struct {
		modules, database string
		exit              string // as make shows it
		says              []string
	}{
		"a vulnerable module is found": {
			vulnerable, database, found, []string{"updated 2022-10-11", "GO-2022-1059", "golang.org/x/text@v0.3.7", "main.go:", "language.ParseAcceptLanguage"},
		},
		"a module without a vulnerability passes": {
			other, database, none, []string{"updated 2022-10-11", "govulncheck in " + other, "No vulnerabilities found"},
		},
		"a vulnerable module among others is found": {
			other + " " + vulnerable + " " + other, database, found, []string{"GO-2022-1059", "govulncheck in " + other},
		},
		"a module that cannot be scanned":       {"test/nothing " + vulnerable, database, failed, []string{"test/nothing could not be scanned", "GO-2022-1059"}},
		"no module":                             {"", database, failed, []string{"got no module"}},
		"a database that does not exist":        {vulnerable, "file:///nonexistent", noDatabase, []string{"no vulnerability database: file:///nonexistent", "GOVULNDB="}},
		"a database that is an empty directory": {vulnerable, empty, noDatabase, []string{"no vulnerability database: " + empty, "GOVULNDB="}},
		"a database that cannot be reached":     {vulnerable, "http://127.0.0.1:1", noDatabase, []string{"no vulnerability database: http://127.0.0.1:1", "GOVULNDB="}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			output, err := tree.Make(t, root, "vuln", "MODULES="+test.modules, "GOVULNDB="+test.database)
			if (err == nil) != (test.exit == none) || !strings.Contains(output, test.exit) {
				t.Errorf("got error %v, want %q in\n%s", err, test.exit, output)
			}
			for _, part := range test.says {
				if !strings.Contains(output, part) {
					t.Errorf("no %q in\n%s", part, output)
				}
			}
		})
	}
}
