// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"

	"k8s.io/component-base/term"
)

// result is a row of the final table.
type result struct {
	example, providers, containers string
	tokens                         int
	outcome                        string // a note next to "ok", or empty if the columns suffice
	failures                       []string
}

func (r *result) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *result) check(holds bool, format string, args ...any) {
	if !holds {
		r.fail(format, args...)
	}
}

// failures returns an error if any result has a failure.
func failures(results []*result) error {
	var errs []error
	for _, r := range results {
		for _, failure := range r.failures {
			errs = append(errs, fmt.Errorf("%s: %s", r.example, failure))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("checks failed:\n%w", errors.Join(errs...))
}

// printer prints the demo's output.
type printer struct {
	w      io.Writer
	colour bool
}

// newPrinter uses colours only on a terminal. NO_COLOR (https://no-color.org)
// disables them; FORCE_COLOR enables them everywhere.
func newPrinter(w io.Writer, getenv func(string) string) *printer {
	_, _, err := term.TerminalSize(w)
	terminal := err == nil
	forced := getenv("FORCE_COLOR")
	return &printer{w: w, colour: forced != "" && forced != "0" || terminal && getenv("NO_COLOR") == ""}
}

// printf ignores write errors: a closed terminal or pipe causes a signal, which
// stops the demo.
func (p *printer) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...)
}

func (p *printer) paint(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *printer) bold(text string) string  { return p.paint("1", text) }
func (p *printer) red(text string) string   { return p.paint("31", text) }
func (p *printer) green(text string) string { return p.paint("32", text) }

func (p *printer) headline(what, title string) {
	p.printf("\n%s  %s\n", p.paint("1;36", "── "+what), title)
}

// problems prints the failures of a result below its example.
func (p *printer) problems(r *result) {
	for _, failure := range r.failures {
		p.printf("  %s %s\n", p.red("FAILED:"), failure)
	}
}

// table prints all results. The verdict is the last column, because colour
// codes would shift the columns after it.
func (p *printer) table(results []*result) {
	p.printf("\n")
	t := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', 0)
	// Write errors are ignored for the reason given at printf.
	_, _ = fmt.Fprintln(t, "EXAMPLE\tPROVIDERS\tCONTAINERS\tTOKENS\tVERDICT")
	for _, r := range results {
		tokens, verdict := "-", p.green(strings.TrimSpace("ok "+r.outcome))
		if r.tokens > 0 {
			tokens = fmt.Sprintf("%d verified", r.tokens)
		}
		if len(r.failures) > 0 {
			verdict = p.red("FAILED, see above")
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.example, cmp.Or(r.providers, "-"), cmp.Or(r.containers, "-"), tokens, verdict)
	}
	_ = t.Flush()
}

// wrap splits a text at blanks into lines of at most width bytes. A longer word
// gets its own line.
func wrap(text string, width int) iter.Seq[string] {
	return func(yield func(string) bool) {
		current := ""
		for word := range strings.FieldsSeq(text) {
			if current != "" && len(current)+1+len(word) > width {
				if !yield(current) {
					return
				}
				current = ""
			}
			current = strings.TrimSpace(current + " " + word)
		}
		yield(current)
	}
}
