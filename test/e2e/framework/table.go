// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// Table is the final report of a suite, with a cell for each case, language and cloud.
type Table struct {
	// Languages and Clouds are the columns. If they are empty, the columns are
	// Languages and AllClouds.
	Languages, Clouds []string

	cases []string
	cells map[cell]string
}

type cell struct{ name, language, cloud string }

// Set writes the text of a cell.
func (t *Table) Set(name, language, cloud, text string) {
	if t.cells == nil {
		t.cells = map[cell]string{}
	}
	if !slices.Contains(t.cases, name) {
		t.cases = append(t.cases, name)
	}
	t.cells[cell{name, language, cloud}] = text
}

// titles are the display names of the clouds.
var titles = map[string]string{
	journal.AWS: "AWS", journal.Azure: "Azure", journal.GCP: "GCP",
	journal.Alibaba: "Alibaba Cloud", journal.IBM: "IBM Cloud", journal.Vault: "Vault",
	journal.Anthropic: "Anthropic", journal.OpenAI: "OpenAI", journal.Snowflake: "Snowflake",
}

// String formats the table as Markdown, with the cases in the order in which
// they began.
func (t *Table) String() string {
	languages, clouds := t.Languages, t.Clouds
	if len(languages) == 0 {
		languages, clouds = Languages(), AllClouds()
	}
	var out strings.Builder
	out.WriteString("| case |")
	for _, language := range languages {
		for _, cloud := range clouds {
			fmt.Fprintf(&out, " %s, %s |", language, titles[cloud])
		}
	}
	out.WriteString("\n|---|" + strings.Repeat("---|", len(languages)*len(clouds)) + "\n")
	for _, name := range t.cases {
		fmt.Fprintf(&out, "| %s |", name)
		for _, language := range languages {
			for _, cloud := range clouds {
				fmt.Fprintf(&out, " %s |", t.cells[cell{name, language, cloud}])
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}
