// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Files that updateDocs writes.
const (
	docsFile = "docs/evidence/performance.md"
	plotFile = "docs/evidence/performance.svg"
)

// updateDocs updates the tables and the plot of the documentation. The tables
// are between <!-- begin NAME --> and <!-- end NAME -->.
func updateDocs(r *results) error {
	if r.Load == nil || r.APIServer == nil || r.Memory == nil || r.Micro == nil {
		return errors.New("-update-docs needs the results of all parts; run make bench first")
	}
	text, err := os.ReadFile(docsFile)
	if err != nil {
		return fmt.Errorf("%w; run this in the root of the repository", err)
	}
	doc := string(text)
	for _, section := range []struct{ name, text string }{
		{"machine", r.machine()},
		{"targets", r.targetTable()},
		{"answers", r.Load.responseTable()},
		{"load", r.Load.table()},
		{"memory", r.Memory.table()},
		{"apiserver", r.APIServer.table()},
		{"micro", r.Micro.table()},
	} {
		if doc, err = replaceSection(doc, section.name, section.text); err != nil {
			return fmt.Errorf("%s: %w", docsFile, err)
		}
	}
	return errors.Join(os.WriteFile(docsFile, []byte(doc), 0o644), os.WriteFile(plotFile, []byte(plot(r.Load)), 0o644))
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

// markdown builds a Markdown table.
type markdown struct{ strings.Builder }

func newTable(columns ...string) *markdown {
	m := &markdown{}
	m.row(columns...)
	// The first column holds words, the others hold numbers.
	m.WriteString("|---|" + strings.Repeat("---:|", len(columns)-1) + "\n")
	return m
}

func (m *markdown) row(cells ...string) { m.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

func (r *results) machine() string {
	s := r.Load.Stamp
	text := fmt.Sprintf("Measured on %s: %d cores of %s, Linux %s, %s, kube-apiserver %s, load over %s.\n",
		s.Date, s.Cores, s.CPU, s.Kernel, s.Go, s.Kubernetes, protocolName(r.Load.Protocol))
	for _, stamp := range []stamp{r.Load.Stamp, r.APIServer.Stamp, r.Memory.Stamp, r.Micro.Stamp} {
		if stamp.Quick {
			return text + "\n**Provisional:** some of these results are from a short run (`-quick`).\n"
		}
	}
	return text
}

func protocolName(protocol string) string {
	return map[string]string{"h1": "HTTP/1.1", "h2": "HTTP/2"}[protocol]
}

func (r *results) targetTable() string {
	m := newTable("Target", "limit", "result", "")
	for _, c := range r.checks(parts) {
		m.row(c.what, fmt.Sprintf(c.format, c.limit), fmt.Sprintf("**"+c.format+"** ("+c.detail+")", c.got), c.verdict())
	}
	return m.String()
}

func (r *loadResult) responseTable() string {
	m := newTable("Request", "containers", "request, bytes", "response, bytes", "patch before base64, bytes")
	for _, a := range r.Responses {
		m.row(loadPairs[a.Account].lanyard, fmt.Sprintf("%d+1", a.Containers), fmt.Sprint(a.Review), fmt.Sprint(a.Sent), fmt.Sprint(a.Patch))
	}
	m.WriteString("\n")
	few, many := loadContainers[0], loadContainers[1]
	for _, account := range loadAccounts {
		first, last := r.response(account, few), r.response(account, many)
		if last.Patch == 0 {
			continue
		}
		fmt.Fprintf(&m.Builder, "%s: each additional container adds %d bytes to the response and %d to the patch.\n",
			loadPairs[account].lanyard, (last.Sent-first.Sent)/(many-few), (last.Patch-first.Patch)/(many-few))
	}
	return m.String()
}

func (r *loadResult) table() string {
	m := newTable("", "containers", "connections", "CPU per request, µs", "p50, µs", "p99, µs", "requests per second")
	for _, row := range r.Rows {
		m.row(row.Case, fmt.Sprintf("%d+1", row.Containers), fmt.Sprint(row.Connections), fmt.Sprintf("%.0f", row.CPU),
			fmt.Sprintf("%.0f", row.P50), fmt.Sprintf("%.0f", row.P99), fmt.Sprintf("%.0f", row.Throughput))
	}
	return m.String()
}

func (r *memoryResult) table() string {
	m := newTable("ServiceAccounts", "annotated", "ready after, s", "resident", "anonymous", "file-backed", "peak", "after updates", "resident", "anonymous")
	for _, row := range r.Rows {
		m.row(row.cells()...)
	}
	return m.String()
}

// cells returns the row for the printed table and for the documentation.
func (r *memoryRow) cells() []string {
	cells := []string{
		fmt.Sprint(r.Accounts), fmt.Sprint(r.Annotated), fmt.Sprintf("%.2f", r.Ready),
		mebibytes(r.Idle.RSS), mebibytes(r.Idle.Anon), mebibytes(r.Idle.File), mebibytes(r.Idle.Peak),
	}
	if r.Updates == 0 {
		return append(cells, "", "", "")
	}
	return append(cells, fmt.Sprint(r.Updates), mebibytes(r.Updated.RSS), mebibytes(r.Updated.Anon))
}

func (r *apiserverResult) table() string {
	m := newTable("Webhook", "median, ms", "p99, ms", "added to the median, ms")
	for _, c := range r.Creations {
		m.row(c.Name, fmt.Sprintf("%.2f", c.Median), fmt.Sprintf("%.2f", c.P99), fmt.Sprintf("%.2f", c.Added))
	}
	return m.String()
}

func (r *microResult) table() string {
	m := newTable("Benchmark", "µs", "bytes", "allocations", "response, bytes")
	for _, row := range r.Rows {
		response := ""
		if length, found := row.Values["answer-bytes"]; found {
			response = fmt.Sprintf("%.0f", length)
		}
		m.row("`"+row.Name+"`", fmt.Sprintf("%.1f", row.Values["ns/op"]/1000), fmt.Sprintf("%.0f", row.Values["B/op"]),
			fmt.Sprintf("%.0f", row.Values["allocs/op"]), response)
	}
	return m.String()
}
