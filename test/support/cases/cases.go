// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cases reads tables of test cases from YAML files in testdata. A file is an
// object whose keys are the names of the cases.
package cases

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

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

var repeated = regexp.MustCompile(`\{[0-9]+\*[^}]+\}`)

// Expand returns the text with {300*a} replaced by 300 times "a".
func Expand(text string) string {
	return repeated.ReplaceAllStringFunc(text, func(short string) string {
		count, part, _ := strings.Cut(strings.Trim(short, "{}"), "*")
		n, _ := strconv.Atoi(count)
		return strings.Repeat(part, n)
	})
}
