// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/internal/annotations"
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
	// Commands are the commands of Fix, in lines.
	Commands string `json:"commands,omitempty"`
}

// String returns the line as people read it: the finding, its fix, and the page with
// details.
func (l *Line) String() string {
	return strings.Join(slices.DeleteFunc([]string{texts.Escape(l.Text), l.Fix, l.Link}, func(part string) bool { return part == "" }), "\n  ")
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

// Link returns the link of a page below docs.
func Link(page string) string { return docs + page }

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

// DryRun judges the result of a dry run of a pod of the ServiceAccount, which has
// the label of the probe: whether the API server can call the webhook, and if so,
// whether the pod would get credentials.
func DryRun(keys *annotations.Keys, serviceAccount string, answer Answer) []Section {
	called := Probe(answer.Err)
	sections := []Section{{Name: "probe", Lines: []Line{called}}}
	if called.Status == OK {
		sections = append(sections, Section{Name: "dry run", Lines: []Line{Injection(keys, serviceAccount, answer)}})
	}
	return sections
}

// Probe judges the error of a dry run of a pod with the label of the probe. A pod
// that Lanyard denies shows that the webhook was called.
func Probe(err error) Line {
	if err == nil || Denied(err) {
		return Passed("the API server can call the webhook")
	}
	var status apierrors.APIStatus
	switch {
	case strings.Contains(err.Error(), Webhook):
		return Fail("Correct the cause in the error.", "operations.md#when-it-is-down", "the API server cannot call the webhook: %v", err)
	case errors.As(err, &status):
		return Line{Status: Failed, Text: "the dry run of a pod was denied, but not by Lanyard: " + err.Error(), Fix: "Choose another namespace with --namespace."}
	}
	return Line{Status: Failed, Text: "the API server did not respond to the dry run of a pod: " + err.Error(), Fix: "Check the connection to the API server."}
}

// Injection judges the result of the dry run of a pod of a ServiceAccount that
// needs credentials.
func Injection(keys *annotations.Keys, serviceAccount string, answer Answer) Line {
	injected, err := "", answer.Err
	if err == nil {
		injected, err = Injected(answer.Pod, keys)
	}
	if err != nil {
		return Fail("Run: lanyard explain serviceaccount", "reference/reasons.md", "pods of ServiceAccount %s get no credentials: %v", serviceAccount, err)
	}
	return Passed("pods of ServiceAccount %s get credentials: %s", serviceAccount, injected)
}
