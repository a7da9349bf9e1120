// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reference generates the tables of docs/reference from the code. This
// package adds texts that the code does not have for a key, a metric or a reason. A
// key without such a text is an error, and so is a text without a key.
package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// section is a part of a page, between <!-- begin NAME --> and <!-- end NAME -->.
type section struct {
	name     string
	generate func() (string, error)
}

// sections are the generated sections of each page.
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
		"flags.md":   {{"flags", flags}, {"commands", commands}},
		"metrics.md": {{"metrics", metricsTable}},
		"reasons.md": {{"objects", objectReasons}, {"containers", containerReasons}},

		"../policies.md": {{"unavailable", unavailable}},
	}
}

// Pages returns the names of the pages that have generated sections, below docs/reference.
func Pages() []string { return slices.Sorted(maps.Keys(sections())) }

// Update returns the text of a page with its generated sections up to date.
func Update(page, text string) (string, error) {
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

// unused returns an error for the texts that are about nothing.
func unused[V any](texts map[string]V, used []string) error {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(used, name) {
			return fmt.Errorf("there is a text about %s, which does not exist", name)
		}
	}
	return nil
}
