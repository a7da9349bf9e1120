// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	docsFile      = "test/bench/README.md"
	guardDocsFile = "docs/concepts/guard.md"
	// plotsDir holds the plots of docsFile.
	plotsDir = "test/bench/plots"
)

// sections returns the page of each table.
func sections() map[string]string {
	return map[string]string{
		"load": docsFile, "peers": docsFile, "memory": docsFile, "policies": docsFile, "feel": docsFile, "burst": docsFile, "watch": docsFile,
		"cost": guardDocsFile, "fences": guardDocsFile, "sizes": guardDocsFile,
	}
}

// outcome is the result of a part.
type outcome struct {
	Stamp  stamp
	How    string // it was measured
	Tables []*table
	Checks []check
	Plots  []plot
}

// table is printed, and stands between <!-- begin SECTION --> and
// <!-- end SECTION --> of a page. Its first row is the header.
type table struct {
	Section string
	Rows    [][]string
}

// outcome returns an empty result.
func (b *bench) outcome(c *cluster, how string, args ...any) *outcome {
	return &outcome{Stamp: b.stamp(c), How: fmt.Sprintf(how, args...)}
}

// table adds a table.
func (o *outcome) table(section string, header ...string) *table {
	t := &table{Section: section, Rows: [][]string{header}}
	o.Tables = append(o.Tables, t)
	return t
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
	return b.String()
}

// check is a target and its result.
type check struct {
	What       string
	Got, Limit float64
	Format     string // of Got and Limit
	Detail     string
}

func (c *check) missed() bool { return c.Got > c.Limit }

// line returns the check as an item of a list.
func (c *check) line() string {
	verdict := "met"
	if c.missed() {
		verdict = "NOT MET"
	}
	return fmt.Sprintf("- %s: "+c.Format+" (%s), limit "+c.Format+": %s\n", c.What, c.Got, c.Detail, c.Limit, verdict)
}

// footer returns the conditions of the measurement and the list of checks.
func (o *outcome) footer(shown func(*check) bool) string {
	text, separator := "\n"+o.Stamp.sentence(o.How), "\n"
	for i := range o.Checks {
		if c := &o.Checks[i]; shown(c) {
			text += separator + c.line()
			separator = ""
		}
	}
	return text
}

// stamp describes the environment of a run.
type stamp struct {
	Date            string
	Quick           bool
	CPU, Kubernetes string
	Cores           int
}

func (b *bench) stamp(c *cluster) stamp {
	return stamp{
		Date: time.Now().UTC().Format(time.DateOnly), Quick: b.quick, Cores: runtime.NumCPU(),
		CPU: cpuModel(), Kubernetes: c.Version(),
	}
}

// sentence returns where and how it was measured.
func (s *stamp) sentence(how string) string {
	text := fmt.Sprintf("%s, %d cores of %s, kube-apiserver %s: %s.", s.Date, s.Cores, s.CPU, s.Kubernetes, how)
	if s.Quick {
		text += " **Provisional** (`-quick`)."
	}
	return text + "\n"
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

// print prints the tables of a part and its checks.
func (b *bench) print(o *outcome) {
	for _, t := range o.Tables {
		t.print(b.out)
	}
	_, _ = fmt.Fprintln(b.out, o.footer(func(*check) bool { return true }))
}

// write writes the tables and plots of a part into the documentation.
func (o *outcome) write() error {
	for i, t := range o.Tables {
		text := t.markdown()
		if i == 0 {
			text += o.footer((*check).missed)
		}
		file := sections()[t.Section]
		old, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		doc, err := replaceSection(string(old), t.Section, text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, []byte(doc), 0o644); err != nil {
			return err
		}
	}
	for _, p := range o.Plots {
		if err := os.WriteFile(filepath.Join(plotsDir, p.Name+".svg"), []byte(p.svg()), 0o644); err != nil {
			return fmt.Errorf("write a plot: %w", err)
		}
	}
	return nil
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
