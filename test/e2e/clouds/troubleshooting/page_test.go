// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package troubleshooting

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// pages is the directory of the tested pages.
const pages = "../../../../docs/troubleshooting/"

// item is an error in the lists of cloud errors.
type item struct {
	line  int
	cloud string
	// code is the code of the cloud, and message is a part of its message.
	code, message string
}

// headings are the clouds, by the heading of their list.
var headings = map[string]string{"## AWS": "AWS", "## Azure": "Azure", "## Google Cloud": "Google"}

var (
	// listed matches an item: its errors, and the cause or the fix.
	listed = regexp.MustCompile("^- (`[^`]+`(?: \\(`[^`]+`\\))?(?:, `[^`]+`(?: \\(`[^`]+`\\))?)*): (.+)$")
	// printed matches an error: its code, and a part of the message.
	printed = regexp.MustCompile("`([^`]+)`(?: \\(`([^`]+)`\\))?")
)

// readErrors returns the errors on the page.
func readErrors(t *testing.T) []item {
	t.Helper()
	var items []item
	cloud := ""
	for n, line := range strings.Split(readPage(t, "cloud-denies.md"), "\n") {
		if strings.HasPrefix(line, "#") {
			cloud = headings[line]
		}
		if cloud == "" || !strings.HasPrefix(line, "- ") {
			continue
		}
		match := listed.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("line %d: got %q, want errors as `CODE` or `CODE` (`MESSAGE`), a colon, and the cause", n+1, line)
		}
		for _, parts := range printed.FindAllStringSubmatch(match[1], -1) {
			items = append(items, item{line: n + 1, cloud: cloud, code: parts[1], message: parts[2]})
		}
	}
	if len(items) < 30 {
		t.Fatalf("got %d errors, want 30 or more", len(items))
	}
	return items
}

// describes reports whether the item is about the answer.
func (i *item) describes(cloud string, got answer) bool {
	return i.cloud == cloud && i.code == got.code && strings.Contains(got.message, i.message)
}

// String returns the error as on the page.
func (i *item) String() string {
	if i.message == "" {
		return i.code
	}
	return fmt.Sprintf("%s (%s)", i.code, i.message)
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(pages + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
