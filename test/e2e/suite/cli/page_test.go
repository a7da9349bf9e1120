// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// recording is a command and its output on a terminal.
type recording struct {
	// when says when a user needs the command. It is empty for a command that is run but not
	// recorded.
	when string
	// command is what the user types.
	command string
	code    int
	// verbatim is set for output that lanyard does not format: scripts and manifests.
	verbatim bool
	// before prepares the cluster in each terminal.
	before func(ctx context.Context)
}

// page is a page of recordings, in testdata/pages. The pages in docs/cli contain excerpts
// of them, which test/docs compares.
type page struct {
	name, title string
	text        strings.Builder
}

// pages contains all pages by name.
var pages = map[string]*page{}

// newPage adds a page.
func newPage(name, title string) *page {
	p := &page{name: name, title: title}
	pages[name] = p
	return p
}

// coloured is how many commands had colours.
var coloured int

// record runs a command in each terminal, checks the output, and adds it to the page.
func (p *page) record(ctx context.Context, r *recording) {
	GinkgoHelper()
	By("$ " + r.command)
	without := map[int]string{} // by columns
	for i, t := range terminals {
		if r.before != nil {
			r.before(ctx)
		}
		code, shown := t.run(ctx, r.command)
		Expect(code).To(Equal(r.code), "exit code of %s in %+v:\n%s", r.command, t, shown)
		if !t.colour {
			Expect(shown).NotTo(ContainSubstring("\x1b"), "NO_COLOR is set")
		}
		text := unchanging(plain(shown))
		if !r.verbatim {
			Expect(tooWide(text, t.columns)).To(BeEmpty(), "lines wider than %d columns of %s", t.columns, r.command)
		}
		if t.colour {
			Expect(text).To(Equal(without[t.columns]), "%s with colours", r.command)
			if escapes.MatchString(shown) {
				coloured++
			}
		}
		without[t.columns] = text
		if i == 0 && r.when != "" {
			fmt.Fprintf(&p.text, "\n%s\n\n```text\n$ %s\n%s\n```\n", r.when, r.command, strings.TrimRight(text, "\n"))
		}
	}
}

// changing lists the parts of an output that differ between clusters or runs, and their
// replacements on the pages. Both are equally long, so that columns line up.
var changing = []struct {
	pattern *regexp.Regexp
	text    string
}{
	// The build of a release links to its version.
	{regexp.MustCompile(`/blob/v[^/]+/`), "/blob/main/"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-01-02T03:04:05Z"},
	// The line is not wrapped, so it may have another length.
	{regexp.MustCompile(`dial tcp [0-9.]+:(8?443)`), "dial tcp 10.96.0.10:$1"},
	{regexp.MustCompile(`lanyard-check-[a-z0-9]{5}\b`), "lanyard-check-abcde"},
	{regexp.MustCompile(`([Pp]ods? "[a-z0-9-]+)-[a-z0-9]{5}" is`), `$1-abcde" is`},
	{regexp.MustCompile(`Kubernetes is v1\.\d+\.\d+\S*`), "Kubernetes is v1.36.3"},
	{regexp.MustCompile(`\b[A-Za-z0-9_-]{43}( \(|\b)`), "Zt5rNQ0W8hXoU1v2kYcJp4LmEiGdSbAf7T9HxRqVwKc$1"},
	{regexp.MustCompile(`("[nxy]": ?)"[A-Za-z0-9_-]{43,}"`), `$1"..."`},
}

func unchanging(text string) string {
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.text)
	}
	return text
}

// check compares the page with its file, or writes it.
func (p *page) check() {
	GinkgoHelper()
	got := fmt.Sprintf("<!-- GINKGO_FLAGS=-update make e2e E2E=cli writes this file. -->\n\n# %s\n%s", p.title, p.text.String())
	path := testdata(filepath.Join("pages", p.name+".txt"))
	if *update {
		Expect(os.WriteFile(path, []byte(got), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	Expect(got).To(Equal(string(want)), path)
}
