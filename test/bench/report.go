// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	// resultsDir holds the last outcome of each part.
	resultsDir = "bench-results"

	docsFile      = "docs/evidence/performance.md"
	guardDocsFile = "docs/concepts/guard.md"
)

// outcome is the result of a part.
type outcome struct {
	Stamp  stamp
	Tables []table
	Checks []check
}

// table is printed, and stands between <!-- begin SECTION --> and
// <!-- end SECTION --> of a page. Its first row is the header. Without rows, it is
// only the note of the page.
type table struct {
	File, Section string
	Rows          [][]string
	Note          string // below the table of the page
}

func newTable(file, section string, header ...string) *table {
	return &table{File: file, Section: section, Rows: [][]string{header}}
}

// add appends a row. Numbers have two digits after the point.
func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		if number, ok := cell.(float64); ok {
			row[i] = fmt.Sprintf("%.2f", number)
		} else {
			row[i] = fmt.Sprint(cell)
		}
	}
	t.Rows = append(t.Rows, row)
}

func (t *table) print(w io.Writer) {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tabs)
	for _, row := range t.Rows {
		_, _ = fmt.Fprintln(tabs, strings.Join(row, "\t"))
	}
	_ = tabs.Flush()
}

// markdown returns the text of the section.
func (t *table) markdown() string {
	var b strings.Builder
	for i, row := range t.Rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			// The first column holds words, the others hold numbers.
			b.WriteString("|---|" + strings.Repeat("---:|", len(row)-1) + "\n")
		}
	}
	return b.String() + t.Note
}

// check is a target and its result.
type check struct {
	What       string
	Got, Limit float64
	Format     string // of Got and Limit
	Detail     string
}

func (c *check) met() bool { return c.Got <= c.Limit }

// targets returns the table of all checks.
func targets(outcomes []*outcome) *table {
	t := newTable(docsFile, "targets", "Target", "limit", "result", "")
	for _, o := range outcomes {
		for _, c := range o.Checks {
			verdict := "NOT MET"
			if c.met() {
				verdict = "met"
			}
			t.add(c.What, fmt.Sprintf(c.Format, c.Limit), fmt.Sprintf("**"+c.Format+"** ("+c.Detail+")", c.Got), verdict)
		}
	}
	return t
}

// stamp describes the environment of a run.
type stamp struct {
	Date                        string
	Quick                       bool `json:",omitempty"`
	CPU, Kernel, Go, Kubernetes string
	Cores                       int
}

func (b *bench) stamp(c *cluster) stamp {
	return stamp{
		Date: time.Now().UTC().Format(time.DateOnly), Quick: b.quick, Cores: runtime.NumCPU(),
		CPU: cpuModel(), Kernel: kernelVersion(), Go: runtime.Version(), Kubernetes: c.Version(),
	}
}

// sentence returns where and how it was measured.
func (s *stamp) sentence(how string) string {
	text := fmt.Sprintf("Measured on %s: %d cores of %s, Linux %s, %s, kube-apiserver %s, %s.\n",
		s.Date, s.Cores, s.CPU, s.Kernel, s.Go, s.Kubernetes, how)
	if s.Quick {
		text += "\n**Provisional:** from a short run (`-quick`).\n"
	}
	return text
}

// cpuModel returns the kernel's name of the processor, if any.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// kernelVersion returns the kernel's release without the suffix of its builder.
func kernelVersion() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(text)), "-")
	return version
}

// file returns the file with the last outcome of a part. Both protocols of the
// load test have one.
func (b *bench) file(part string) string {
	if part == "load" {
		part += "-" + b.protocol
	}
	return filepath.Join(resultsDir, part+".json")
}

func (b *bench) store(part string, o *outcome) error {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return fmt.Errorf("store results: %w", err)
	}
	return errors.Join(os.MkdirAll(resultsDir, 0o755), os.WriteFile(b.file(part), append(text, '\n'), 0o644))
}

// print prints the tables of this run and its targets.
func (b *bench) print(outcomes []*outcome) {
	for _, o := range outcomes {
		for _, t := range o.Tables {
			t.print(b.out)
		}
	}
	if t := targets(outcomes); len(t.Rows) > 1 {
		t.print(b.out)
	}
}

// writeDocs writes the tables of all parts into their pages.
func (b *bench) writeDocs() error {
	var outcomes []*outcome
	for _, part := range parts() {
		text, err := os.ReadFile(b.file(part.name))
		if err != nil {
			return fmt.Errorf("%w; -update-docs needs the results of all parts: run make bench first", err)
		}
		o := &outcome{}
		if err := json.Unmarshal(text, o); err != nil {
			return fmt.Errorf("%s: %w", b.file(part.name), err)
		}
		outcomes = append(outcomes, o)
	}
	tables := []table{*targets(outcomes)}
	for _, o := range outcomes {
		tables = append(tables, o.Tables...)
	}
	for _, t := range tables {
		if err := replaceInFile(t.File, t.Section, t.markdown()); err != nil {
			return err
		}
	}
	return nil
}

// replaceInFile replaces a section of a file.
func replaceInFile(file, name, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w; run this in the root of the repository", err)
	}
	doc, err := replaceSection(string(old), name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(doc), 0o644)
}

// replaceSection replaces the text between the two markers of a section.
func replaceSection(doc, name, text string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(doc, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("section %q not found, want it between %q and %q", name, strings.TrimSpace(begin), end)
	}
	return before + begin + text + end + after, nil
}
