// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finding defines what the commands report about a cluster: one type, which is also their
// JSON, and one printer.
package finding

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

// Status says whether something must be done.
type Status = probe.Status

// The statuses. A finding that is a Warning, Failed or Skipped has a next step.
const (
	// OK means that no action is needed.
	OK = probe.OK
	// Warning means that pods get their credentials, but something needs attention.
	Warning = probe.Warning
	// Failed means that pods do not get their credentials, or will not.
	Failed = probe.Failed
	// Skipped means that the check could not run, so the result is not known.
	Skipped = probe.Skipped
	// NotApplicable means that there is nothing to check.
	NotApplicable = probe.NotApplicable
)

// Finding is one result of a command.
type Finding struct {
	Status Status `json:"status"`
	// About is the part of the cluster, such as guard, or the object.
	About string `json:"about"`
	// Reason is a word for programs, or empty if Status says it all.
	Reason string `json:"reason,omitempty"`
	// Text is the finding for people.
	Text string `json:"text"`
	// Fix is the next step, which a person can do or paste. Lines after the first are commands.
	Fix string `json:"fix,omitempty"`
	// Link is the page with details.
	Link string `json:"link,omitempty"`
}

// MissingRight is the Reason of a finding about a part that the user may not read.
const MissingRight = "missing_right"

// Passed returns a finding that needs no action.
func Passed(format string, args ...any) Finding {
	return Finding{Status: OK, Text: fmt.Sprintf(format, args...)}
}

// DoesNotApply returns a finding about a part that this cluster does not have.
func DoesNotApply(format string, args ...any) Finding {
	return Finding{Status: NotApplicable, Text: fmt.Sprintf(format, args...)}
}

// Unreadable returns the finding about something that could not be read. Neither a missing right
// nor a lost connection is a mistake of the installation.
func Unreadable(what string, err error) Finding { return Of(probe.Unreadable(what, err)) }

// NoRight returns the finding about a part that the user may not read. right is the missing right,
// such as "list pods in the namespace shop".
func NoRight(right, format string, args ...any) Finding {
	return Of(probe.NoRight(right, format, args...))
}

// Of returns a line of package probe as a finding.
func Of(line probe.Line) Finding {
	f := Finding{Status: line.Status, Text: line.Text, Fix: line.Fix, Link: line.Link}
	if f.Fix == "" && f.Status != OK && f.Status != NotApplicable {
		f.Fix = "Try again. If the error persists, look at the program that returned it."
		if f.Link != "" {
			f.Fix = "Look for the error on the page."
		}
	}
	if line.Missing != "" {
		f.Reason = MissingRight
	}
	if line.Commands != "" {
		f.Fix = strings.TrimPrefix(f.Fix+"\n"+strings.TrimSuffix(line.Commands, "\n"), "\n")
	}
	return f
}

// Page returns the link of a page below docs, in the version of this build.
func Page(page string) string { return probe.Link(page) }

// String formats the finding for people: the text, the next step, and the page with details.
func (f *Finding) String() string {
	line := probe.Line{Text: f.Text, Fix: f.Fix, Link: f.Link}
	return line.String()
}

// Problem reports whether something must be done, so that a command exits with ExitFound.
func (f *Finding) Problem() bool { return f.Status == Failed }

// Summary is the number of findings by status.
type Summary map[Status]int

// Summarize returns the summary of findings.
func Summarize(findings []Finding) Summary {
	s := Summary{OK: 0, Warning: 0, Failed: 0, Skipped: 0, NotApplicable: 0}
	for i := range findings {
		s[findings[i].Status]++
	}
	return s
}

// styles are the styles of the statuses.
var styles = map[Status]string{
	OK: command.Good, Warning: command.Warn, Failed: command.Bad, Skipped: command.Unknown, NotApplicable: command.Faint,
}

// Print writes a finding behind the mark of its status, and its next step below.
func (f *Finding) Print(p *command.Page) {
	p.Marked(styles[f.Status], f.Text)
	fix, commands, _ := strings.Cut(f.Fix, "\n")
	if fix != "" {
		p.Text(4, "", fix)
	}
	if f.Link != "" {
		p.Line("    %s", p.Style(command.Faint, f.Link))
	}
	p.Lines(commands) // not indented: the end of a here-document must not be
}

// PrintSections writes findings below the parts that they are about. Findings about the same part
// must be adjacent.
func PrintSections(p *command.Page, findings []Finding) {
	for i := range findings {
		if i == 0 || findings[i].About != findings[i-1].About {
			p.Line("%s", p.Style(command.Title, findings[i].About))
		}
		findings[i].Print(p)
		if i == len(findings)-1 || findings[i].About != findings[i+1].About {
			p.Line("")
		}
	}
}

// Print writes the line at the end of findings.
func (s Summary) Print(p *command.Page) {
	style, summary := command.Good, "no check failed"
	failed, skipped, warnings := s[Failed], s[Skipped], s[Warning]
	switch {
	case failed > 0:
		style, summary = command.Bad, fmt.Sprintf("failed: %d", failed)
	case skipped > 0:
		style, summary = command.Unknown, "no check failed, but not all could run"
	case warnings > 0:
		style = command.Warn
	}
	if skipped > 0 {
		summary += fmt.Sprintf(", skipped: %d", skipped)
	}
	if failed+skipped+warnings > 0 {
		summary += fmt.Sprintf(", warnings: %d", warnings)
	}
	p.Text(0, style, summary)
}
