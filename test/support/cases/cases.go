// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cases reads tables of test cases from YAML files in testdata. A file is an
// object: the names of the cases are its keys.
package cases

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the results into the files in testdata")

const license = "# Copyright The Lanyard Authors.\n# SPDX-License-Identifier: Apache-2.0\n\n"

// Read returns the cases of a file in testdata.
func Read[C any](t *testing.T, file string) map[string]*C {
	t.Helper()
	var all map[string]*C
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &all)
	}
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: got %d cases and error %v", file, len(all), err)
	}
	return all
}

// Check calls decide for each case of a file in testdata. decide replaces the result in
// the case, and the case must stay the same. With the flag -update, the file gets the new
// results.
func Check[C any](t *testing.T, file string, decide func(t *testing.T, c *C)) {
	t.Helper()
	all := Read[C](t, file)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			want := *c
			decide(t, c)
			if diff := cmp.Diff(want, *c, cmpopts.EquateEmpty()); diff != "" && !*update {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if !*update {
		return
	}
	text, err := yaml.Marshal(all)
	if err == nil {
		err = os.WriteFile(filepath.Join("testdata", file), append([]byte(license), text...), 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

var repeated = regexp.MustCompile(`\{[0-9]+\*[^}]+\}`)

// Expand returns the text with 300 times "a" in place of {300*a}.
func Expand(text string) string {
	return repeated.ReplaceAllStringFunc(text, func(short string) string {
		count, part, _ := strings.Cut(strings.Trim(short, "{}"), "*")
		n, _ := strconv.Atoi(count)
		return strings.Repeat(part, n)
	})
}
