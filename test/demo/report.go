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

// result is a row of the table in the end.
type result struct {
	example, providers, containers string
	tokens                         int
	outcome                        string // what "ok" stands for; empty where the columns say it
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

// failures is an error where a result has one.
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
	return fmt.Errorf("not everything held:\n%w", errors.Join(errs...))
}

// printer writes for a person.
type printer struct {
	w      io.Writer
	colour bool
}

// newPrinter uses colours on a terminal alone, and not with NO_COLOR
// (https://no-color.org); FORCE_COLOR wants them anyway.
func newPrinter(w io.Writer, getenv func(string) string) *printer {
	_, _, err := term.TerminalSize(w)
	terminal := err == nil
	forced := getenv("FORCE_COLOR")
	return &printer{w: w, colour: forced != "" && forced != "0" || terminal && getenv("NO_COLOR") == ""}
}

// printf writes. A reader who is gone is noticed by the signal that comes with
// it, not here.
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
func (p *printer) dim(text string) string   { return p.paint("2", text) }
func (p *printer) red(text string) string   { return p.paint("31", text) }
func (p *printer) green(text string) string { return p.paint("32", text) }

func (p *printer) headline(what, title string) {
	p.printf("\n%s  %s\n", p.paint("1;36", "── "+what), title)
}

// problems shows what did not hold, where one is looking at the moment.
func (p *printer) problems(r *result) {
	for _, failure := range r.failures {
		p.printf("  %s %s\n", p.red("FAILED:"), failure)
	}
}

// table shows all results on one screen. The verdict comes last, so that
// colours move no column.
func (p *printer) table(results []*result) {
	p.printf("\n")
	t := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', 0)
	// Flush reports what went wrong, and printf says why nobody needs to know.
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

// wrap breaks a text into lines of at most width bytes, at its blanks. A longer
// word has a line of its own.
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
