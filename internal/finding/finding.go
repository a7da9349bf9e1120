// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finding defines what checks report about a cluster: one type, which is also the JSON of
// the commands.
//
// lanyard-webhook uses this package, so it imports no types of the Kubernetes API.
package finding

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/version"
)

// Status says whether something must be done.
type Status string

// The statuses. A finding with the status Warning, Failed or Skipped has a next step.
const (
	// OK means that no action is needed.
	OK Status = "ok"
	// Warning means that pods get their credentials, but something needs attention.
	Warning Status = "warning"
	// Failed means that pods do not get their credentials, or will not.
	Failed Status = "failed"
	// Skipped means that the check could not run, so the result is not known.
	Skipped Status = "skipped"
	// NotApplicable means that there is nothing to check.
	NotApplicable Status = "not-applicable"
)

// Finding is one result of a check.
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

// Warn returns a finding with the status Warning. fix is the next step, and page a page below docs,
// or empty.
func Warn(reason, fix, page, format string, args ...any) Finding {
	return Finding{Warning, "", reason, fmt.Sprintf(format, args...), fix, Page(page)}
}

// Fail returns a finding with the status Failed. fix and page are as for Warn.
func Fail(reason, fix, page, format string, args ...any) Finding {
	return Finding{Failed, "", reason, fmt.Sprintf(format, args...), fix, Page(page)}
}

// Skip returns a finding with the status Skipped. fix and page are as for Warn.
func Skip(reason, fix, page, format string, args ...any) Finding {
	return Finding{Skipped, "", reason, fmt.Sprintf(format, args...), fix, Page(page)}
}

// Unreadable returns the finding about something that could not be read. Neither a missing right
// nor a lost connection is a mistake of the installation.
func Unreadable(what string, err error) Finding {
	if right := LackedRight(err); right != "" {
		return NoRight(right, "%s cannot be read", what)
	}
	return Skip("", "Check the connection to the API server.", "", "%s cannot be read: %v", what, err)
}

// NoRight returns the finding about a part that the user may not read. right is the missing right,
// such as "list pods in the namespace shop".
func NoRight(right, format string, args ...any) Finding {
	fix := "Ask an administrator for the ClusterRole view."
	_, namespace, isNamespaced := strings.Cut(right, " in the namespace ")
	switch {
	case strings.HasPrefix(right, "create "):
		fix = "Choose a namespace in which you may create pods, with --namespace."
	case strings.Contains(right, ".admissionregistration.k8s.io") || strings.Contains(right, " /"):
		fix = "Ask an administrator for the ClusterRole lanyard-view."
	case isNamespaced:
		fix = "Ask an administrator to bind the ClusterRole \"view\" to you in the namespace " + namespace + "."
	}
	return Skip(MissingRight, fix, "operations/README.md#rights-of-readers", "%s: you may not %s", fmt.Sprintf(format, args...), right)
}

// forbidden matches the API server's description of a missing right. The denial of an
// object has another form.
var forbidden = regexp.MustCompile(`cannot ([a-z]+) (?:resource "([^"]+)" in API group "([^"]*)"|path "([^"]+)")(?: in the namespace "([^"]+)")?`)

// LackedRight returns the right that a user lacks, such as "list pods in the namespace
// shop". It is empty for any other error, such as a denial of the object.
func LackedRight(err error) string {
	match := forbidden.FindStringSubmatch(fmt.Sprint(err))
	if match == nil || !apierrors.IsForbidden(err) {
		return ""
	}
	right := match[1] + " " + cmp.Or(match[4], schema.GroupResource{Group: match[3], Resource: match[2]}.String())
	if match[5] != "" {
		right += " in the namespace " + match[5]
	}
	return right
}

// Page returns the link of a page below docs, in the version of this build, or "" if page is empty.
func Page(page string) string {
	if page == "" {
		return ""
	}
	return version.Page("docs/" + page)
}

// String formats the finding for people: the text, the next step, and the page with details.
func (f *Finding) String() string {
	return strings.Join(slices.DeleteFunc([]string{texts.Escape(f.Text), f.Fix, f.Link}, func(part string) bool { return part == "" }), "\n  ")
}

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
