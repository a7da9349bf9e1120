// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reference compares the tables of docs/reference with the code, and writes them with
// the flag -update. It contains texts for keys, metrics and reasons that are not in the code.
// A key without a text is an error, and so is a text without a key.
package reference

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables into docs/reference")

func TestTheReferenceIsGeneratedFromTheCode(t *testing.T) {
	for name := range sections() {
		file := filepath.Join("../../../docs/reference", name)
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := generate(name, string(got))
		if err == nil && *update {
			err = os.WriteFile(file, []byte(want), 0o644)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		} else if diff := cmp.Diff(want, string(got)); diff != "" && !*update {
			t.Errorf("run make generate: %s (-want +got):\n%s", file, diff)
		}
	}
}

// section is a part of a page, between <!-- begin NAME --> and <!-- end NAME -->.
type section struct {
	name     string
	generate func() (string, error)
}

// sections are the generated sections of each page, below docs/reference.
func sections() map[string][]section {
	return map[string][]section{
		"annotations.md": {
			{"serviceaccount", serviceAccountAnnotations},
			{"pod", podAnnotations},
			{"namespace", namespaceAnnotations},
			{"written", writtenAnnotations},
			{"tokens", tokens},
			{"variables", variables},
			{"shadows", shadows},
		},
		"flags.md":   {{"flags", flags}},
		"metrics.md": {{"metrics", metricsTable}},
		"reasons.md": {{"objects", objectReasons}, {"containers", containerReasons}},

		"../policies.md":        {{"unavailable", unavailable}},
		"../../ARCHITECTURE.md": {{"packages", packages}},
	}
}

// generate returns the text of a page with its generated sections up to date.
func generate(page, text string) (string, error) {
	for _, s := range sections()[page] {
		table, err := s.generate()
		if err != nil {
			return "", fmt.Errorf("section %s: %w", s.name, err)
		}
		begin, end := "<!-- begin "+s.name+" -->\n", "<!-- end "+s.name+" -->"
		before, rest, found := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			return "", fmt.Errorf("section %s: not found, want it between %q and %q", s.name, strings.TrimSpace(begin), end)
		}
		text = before + begin + table + end + after
	}
	return text, nil
}

// table is a Markdown table.
type table struct{ strings.Builder }

func newTable(columns ...string) *table {
	t := &table{}
	t.row(columns...)
	t.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	return t
}

func (t *table) row(cells ...string) { t.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

func code(text string) string { return "`" + text + "`" }

// unused returns an error for texts without a key.
func unused[V any](texts map[string]V, used []string) error {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(used, name) {
			return fmt.Errorf("there is a text about %s, which does not exist", name)
		}
	}
	return nil
}
