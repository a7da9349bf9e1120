// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	// Skipped means that it could not be checked, so that nothing is known.
	Skipped Status = "skipped"
	// NotApplicable means that there is nothing to check.
	NotApplicable Status = "not-applicable"
)

// Line is one finding.
type Line struct {
	Status Status `json:"status"`
	// Text is the finding.
	Text string `json:"text"`
	// Missing is the right that the user lacks, such as "list pods in the namespace shop".
	Missing string `json:"missing,omitempty"`
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
	// Summary has the number of lines of each status.
	Summary map[Status]int `json:"summary,omitempty"`
}

// Summarize fills the summary.
func (r *Report) Summarize() {
	r.Summary = map[Status]int{}
	for _, status := range []Status{OK, Warning, Failed, Skipped, NotApplicable} {
		r.Summary[status] = r.Count(status)
	}
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

// Skip returns a line for something that could not be checked.
func Skip(fix, format string, args ...any) Line {
	return Line{Status: Skipped, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// DoesNotApply returns a line for something that does not have to be checked.
func DoesNotApply(format string, args ...any) Line {
	return Line{Status: NotApplicable, Text: fmt.Sprintf(format, args...)}
}

// Unreadable returns the line for something that could not be read. Neither a missing right
// nor a lost connection is a mistake of the installation.
func Unreadable(what string, err error) Line {
	if right := MissingRight(err); right != "" {
		return NoRight(right, "%s cannot be read", what)
	}
	return Skip("Check the connection to the API server.", "%s cannot be read: %v", what, err)
}

// NoRight returns the line for something that the user may not look at. right is the missing
// right, such as "list pods in the namespace shop".
func NoRight(right, format string, args ...any) Line {
	fix := "Ask an administrator for the ClusterRole view."
	_, namespace, isNamespaced := strings.Cut(right, " in the namespace ")
	switch {
	case strings.HasPrefix(right, "create "):
		fix = "Choose a namespace in which you may create pods, with --namespace."
	case strings.Contains(right, ".admissionregistration.k8s.io") || strings.Contains(right, " /"):
		fix = "Ask an administrator for the ClusterRole lanyard-view."
	case isNamespaced:
		fix = "Ask an administrator for the ClusterRole view in the namespace " + namespace + "."
	}
	line := Skip(fix, "%s: you may not %s", fmt.Sprintf(format, args...), right)
	line.Missing, line.Link = right, docs+"operations.md#rights-of-readers"
	return line
}

// forbidden matches the API server's description of a missing right. The denial of an
// object has another form.
var forbidden = regexp.MustCompile(`cannot ([a-z]+) (?:resource "([^"]+)" in API group "([^"]*)"|path "([^"]+)")(?: in the namespace "([^"]+)")?`)

// MissingRight returns the right that a user lacks, such as "list pods in the namespace
// shop". It is empty for another error, also if something denied the object of the request.
func MissingRight(err error) string {
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

// DryRun judges the result of a dry run of a pod of the ServiceAccount, which has
// the label of the probe: whether the API server can call the webhook, and whether the pod
// would get credentials.
func DryRun(keys *annotations.Keys, serviceAccount string, answer Answer) []Section {
	called := Probe(answer.Err)
	return []Section{{Name: "probe", Lines: []Line{called}}, {Name: "dry run", Lines: []Line{tried(keys, serviceAccount, answer, called)}}}
}

// tried is Injection, unless the webhook was not called.
func tried(keys *annotations.Keys, serviceAccount string, answer Answer, called Line) Line {
	switch {
	case called.Status == OK:
		return Injection(keys, serviceAccount, answer)
	case noServiceAccount.MatchString(answer.Err.Error()):
		return NoServiceAccount(serviceAccount)
	case called.Status == Failed:
		return Skip("Correct the cause first.", "pods of ServiceAccount %s were not tried: the API server cannot call the webhook", serviceAccount)
	}
	return Skip(called.Fix, "pods of ServiceAccount %s were not tried: no dry run reached the webhook", serviceAccount)
}

// NoServiceAccount is the line for a ServiceAccount that does not exist.
func NoServiceAccount(serviceAccount string) Line {
	return Fail("Create it, or correct the name.", "reference/annotations.md", "ServiceAccount %s does not exist", serviceAccount)
}

// noServiceAccount matches the error for a pod whose ServiceAccount does not exist.
var noServiceAccount = regexp.MustCompile(`error looking up service account \S+: serviceaccount "\S+" not found`)

// Probe judges the error of a dry run of a pod with the label of the probe. A pod
// that Lanyard denies shows that the webhook was called.
func Probe(err error) Line {
	if err == nil || Denied(err) {
		return Passed("the API server can call the webhook")
	}
	if strings.Contains(err.Error(), Webhook) {
		return Fail("Correct the cause in the error.", "operations.md#when-it-is-down", "the API server cannot call the webhook: %v", err)
	}
	if right := MissingRight(err); right != "" {
		return Unasked(right)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return Skip("Choose another namespace with --namespace, or set the image, labels or other fields of the pod with --overrides.",
			"the dry run of a pod was denied, but not by Lanyard: %v", err)
	}
	return Skip("Check the connection to the API server.", "the API server did not respond to the dry run of a pod: %v", err)
}

// Unasked returns the line for a user who lacks the right to send the dry run.
func Unasked(right string) Line {
	return NoRight(right, "it is not known whether the API server can call the webhook")
}

// Injection judges the result of the dry run of a pod of a ServiceAccount that
// needs credentials.
func Injection(keys *annotations.Keys, serviceAccount string, answer Answer) Line {
	injected, err := "", answer.Err
	if err == nil {
		injected, err = Injected(answer.Pod, keys)
	}
	if err != nil {
		namespace, name, _ := strings.Cut(serviceAccount, "/")
		return Fail("Run: lanyard explain serviceaccount "+name+" --namespace "+namespace, "reference/reasons.md", "pods of ServiceAccount %s get no credentials: %v", serviceAccount, err)
	}
	return Passed("pods of ServiceAccount %s get credentials: %s", serviceAccount, injected)
}
