// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Status is the outcome of one line.
type Status string

const (
	// OK means that nothing needs to be done.
	OK Status = "ok"
	// Warning means that something should be done, but pods get their credentials.
	Warning Status = "warning"
	// Failed means that pods do not get their credentials, or will not.
	Failed Status = "failed"
	// Skipped means that it could not be checked.
	Skipped Status = "skipped"
)

// Line is one finding.
type Line struct {
	Status Status `json:"status"`
	// Text is the finding.
	Text string `json:"text"`
	// Fix is an instruction, and Link is the page with details.
	Fix  string `json:"fix,omitempty"`
	Link string `json:"link,omitempty"`
}

// String returns the line as people read it: the finding, its fix, and the page with
// details.
func (l *Line) String() string {
	parts := []string{texts.Escape(l.Text)}
	for _, more := range []string{l.Fix, l.Link} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	return strings.Join(parts, "\n  ")
}

// Section is a group of lines.
type Section struct {
	Name  string `json:"name"`
	Lines []Line `json:"lines"`
}

// Report is everything that was checked.
type Report struct {
	Sections []Section `json:"sections"`
}

// Count returns the number of lines with this status.
func (r *Report) Count(status Status) int {
	n := 0
	for _, section := range r.Sections {
		for _, line := range section.Lines {
			if line.Status == status {
				n++
			}
		}
	}
	return n
}

// docs is where the links point to.
const docs = "https://github.com/lanyard-dev/lanyard/blob/main/docs/"

// Passed returns a line for something that is right.
func Passed(format string, args ...any) Line {
	return Line{Status: OK, Text: fmt.Sprintf(format, args...)}
}

// Warn returns a line with the status Warning. The link is a page below docs.
func Warn(fix, link, format string, args ...any) Line {
	return Line{Status: Warning, Text: fmt.Sprintf(format, args...), Fix: fix, Link: docs + link}
}

// Fail returns a line with the status Failed. The link is a page below docs.
func Fail(fix, link, format string, args ...any) Line {
	return Line{Status: Failed, Text: fmt.Sprintf(format, args...), Fix: fix, Link: docs + link}
}

// Skip returns a line for something that does not apply, or cannot be checked.
func Skip(format string, args ...any) Line {
	return Line{Status: Skipped, Text: fmt.Sprintf(format, args...)}
}

// Unreadable returns the line for something that could not be read. A missing right
// is not a mistake of the installation.
func Unreadable(what string, err error) Line {
	if apierrors.IsForbidden(err) {
		return Line{Status: Skipped, Text: fmt.Sprintf("%s cannot be read: %v", what, err), Fix: "Run check as a user with the right."}
	}
	return Line{Status: Failed, Text: fmt.Sprintf("%s cannot be read: %v", what, err), Fix: "Check the connection to the API server."}
}
