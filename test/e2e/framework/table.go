// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"
	"slices"
	"strings"
)

// Table is what a suite ends with: case by language by cloud.
type Table struct {
	cases []string
	cells map[cell]string
}

type cell struct{ name, language, cloud string }

// Begin notes that a case has something to say about the language and the cloud.
// Until it does, it failed.
func (t *Table) Begin(name, language, cloud string) { t.set(name, language, cloud, "**FAILED**") }

// Granted notes a credential.
func (t *Table) Granted(name, language, cloud string) { t.set(name, language, cloud, "yes") }

// Refused notes with what code the cloud refused.
func (t *Table) Refused(name, language, cloud, code string) {
	t.set(name, language, cloud, "refused: "+code)
}

// None notes that the SDK found nothing to ask the cloud with.
func (t *Table) None(name, language, cloud string) { t.set(name, language, cloud, "none") }

func (t *Table) set(name, language, cloud, text string) {
	if t.cells == nil {
		t.cells = map[cell]string{}
	}
	if !slices.Contains(t.cases, name) {
		t.cases = append(t.cases, name)
	}
	t.cells[cell{name, language, cloud}] = text
}

// titles are the clouds' names as people write them.
var titles = map[string]string{AWS: "AWS", Azure: "Azure", GCP: "GCP"}

// String gives it in Markdown, the cases in the order in which they began.
func (t *Table) String() string {
	var out strings.Builder
	out.WriteString("| case |")
	for _, language := range Languages() {
		for _, cloud := range AllClouds() {
			fmt.Fprintf(&out, " %s, %s |", language, titles[cloud])
		}
	}
	out.WriteString("\n|---|" + strings.Repeat("---|", len(Languages())*len(AllClouds())) + "\n")
	for _, name := range t.cases {
		fmt.Fprintf(&out, "| %s |", name)
		for _, language := range Languages() {
			for _, cloud := range AllClouds() {
				fmt.Fprintf(&out, " %s |", t.cells[cell{name, language, cloud}])
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}
