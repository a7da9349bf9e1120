// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// redactor replaces names in texts with placeholders, the same for each occurrence of a name.
// The nil redactor replaces nothing.
type redactor struct {
	placeholders map[string]string
	counts       map[string]int
	// names are the names that are replaced as whole words, the longest first.
	names []string
}

// newRedactor returns a redactor, or nil if the report is not redacted.
func newRedactor(enabled bool) *redactor {
	if !enabled {
		return nil
	}
	return &redactor{placeholders: map[string]string{}, counts: map[string]int{}}
}

// public are names that exist in every cluster. They are harmless and help to read a report.
var public = []string{"", "default", "kube-system", "kube-public", "lanyard-system", "kubernetes.default.svc.cluster.local", "https://kubernetes.default.svc.cluster.local"}

// name adds the name of an object.
func (r *redactor) name(kind, name string) {
	if r == nil || slices.Contains(public, name) || slices.Contains(r.names, name) {
		return
	}
	r.placeholder(kind, name)
	r.names = append(r.names, name)
	slices.SortStableFunc(r.names, func(a, b string) int { return len(b) - len(a) })
}

// placeholder returns the placeholder of a value.
func (r *redactor) placeholder(kind, value string) string {
	if slices.Contains(public, value) {
		return value
	}
	if r.placeholders[value] == "" {
		r.counts[kind]++
		r.placeholders[value] = fmt.Sprintf("<%s-%d>", kind, r.counts[kind])
	}
	return r.placeholders[value]
}

// patterns match values whose names are not known in advance. The first group, or the whole
// match, is replaced.
var patterns = []struct {
	kind    string
	pattern *regexp.Regexp
}{
	{"url", regexp.MustCompile(`https?://[^\s"',;<>]+[^\s"',;:.<>]`)},
	{"user", regexp.MustCompile(`[Uu]ser "([^"]+)"`)},
	{"user", regexp.MustCompile(`system:serviceaccount:[^\s"',]+`)},
	{"identity", regexp.MustCompile(`arn:[^\s"',]*[^\s"',:.]`)},
	{"identity", regexp.MustCompile(`(?:/*[a-z.]+/)?projects/[^\s"',]*[^\s"',:.]`)},
	{"identity", regexp.MustCompile(`[\w.+-]+@[\w.-]*\w`)},
	{"identity", regexp.MustCompile(`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b`)},
	{"identity", regexp.MustCompile(`\b[0-9]{12}\b`)},
	{"host", regexp.MustCompile(`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)},
	{"host", regexp.MustCompile(`\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\]`)},
	{"host", regexp.MustCompile(`\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z][a-z0-9-]*[a-z0-9]\b`)},
}

// ours are suffixes of dotted names that belong to Kubernetes or Lanyard.
var ours = []string{".k8s.io", ".kubernetes.io", "lanyard.dev", ".apps", ".policy", ".md"}

// text replaces the names in a text.
func (r *redactor) text(text string) string {
	if r == nil {
		return text
	}
	for _, p := range patterns {
		text = p.pattern.ReplaceAllStringFunc(text, func(match string) string {
			value := match
			if groups := p.pattern.FindStringSubmatch(match); len(groups) > 1 {
				value = groups[1]
			}
			if p.kind == "host" && slices.ContainsFunc(ours, func(end string) bool { return strings.HasSuffix(value, end) }) {
				return match
			}
			return strings.Replace(match, value, r.placeholder(p.kind, value), 1)
		})
	}
	for _, name := range r.names {
		whole := regexp.MustCompile(`(^|[^\w.<-])` + regexp.QuoteMeta(name) + `($|[^\w>-])`)
		// Replace twice, because adjacent matches share a character.
		for range 2 {
			text = whole.ReplaceAllString(text, "${1}"+r.placeholders[name]+"${2}")
		}
	}
	return text
}
