// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// repository is the address of a file of the main branch, without its path. In a
// release, links of the chart contain the version instead of main.
const repository = "https://github.com/lanyard-dev/lanyard/blob/main/"

var released = regexp.MustCompile(`^https://github\.com/lanyard-dev/lanyard/blob/v[^/]+/`)

// resolve reports an error if a link on the page from does not lead anywhere.
// It does not check links to other sites.
func resolve(all map[string]*page, from, link string) error {
	base, link := path.Dir(from), released.ReplaceAllLiteralString(link, repository)
	if rest, found := strings.CutPrefix(link, repository); found {
		base, link = ".", rest
	}
	target, err := url.Parse(link)
	if err != nil {
		return fmt.Errorf("parse the link: %w", err)
	}
	if target.IsAbs() {
		return nil
	}
	name := from
	if target.Path != "" {
		name = path.Join(base, target.Path)
	}
	if strings.HasPrefix(name, "..") || strings.HasPrefix(target.Path, "/") {
		return fmt.Errorf("got a link out of the repository")
	}
	if _, err := os.Stat(filepath.Join(root, name)); err != nil {
		return fmt.Errorf("got no file %s", name)
	}
	if target.Fragment == "" {
		return nil
	}
	p, found := all[name]
	if !found {
		return fmt.Errorf("got an anchor of %s, which is not a Markdown file", name)
	}
	if !slices.Contains(p.anchors, target.Fragment) {
		return fmt.Errorf("got no heading #%s in %s, which has %s", target.Fragment, name, strings.Join(p.anchors, ", "))
	}
	return nil
}

func TestEveryLinkOfAPageResolves(t *testing.T) {
	all := pages(t)
	checked := 0
	for name, p := range all {
		var links [][]byte
		for _, link := range nodes[*ast.Link](p.tree) {
			links = append(links, link.Destination)
		}
		for _, image := range nodes[*ast.Image](p.tree) {
			links = append(links, image.Destination)
		}
		for _, link := range links {
			checked++
			if err := resolve(all, name, string(link)); err != nil {
				t.Errorf("%s: %s: %v", name, link, err)
			}
		}
	}
	if checked < 100 {
		t.Errorf("got %d links, want all of the documentation", checked)
	}
}

// Comments, alerts and messages name pages, too: as a path or as a URL.
func TestEveryPageThatAFileNamesExists(t *testing.T) {
	all := pages(t)
	reference := regexp.MustCompile(`(` + strings.Replace(regexp.QuoteMeta(repository), "main", `(?:main|v[^/\s]+)`, 1) + `|\b(?:docs|charts|deploy|test|examples)/)[\w./-]*\.md(#[\w-]+)?`)
	checked := 0
	for _, name := range tree.Files(t, root) {
		content := []byte(tree.Read(t, root, name))
		if bytes.IndexByte(content, 0) >= 0 {
			continue // not a text
		}
		for _, at := range reference.FindAllIndex(content, -1) {
			before, link := content[:at[0]], string(content[at[0]:at[1]])
			if bytes.HasSuffix(before, []byte("/")) || bytes.HasSuffix(before, []byte("-")) {
				continue // a part of a longer path or URL
			}
			checked++
			if !strings.HasPrefix(link, "https://") {
				link = repository + link
			}
			if err := resolve(all, name, link); err != nil {
				t.Errorf("%s names %s: %v", name, link, err)
			}
		}
	}
	if checked < 30 {
		t.Errorf("got %d names of pages, want the pages of the whole repository", checked)
	}
}

// A link of the chart's README must also work where only the chart is: in the
// package and on Artifact Hub.
func TestTheChartsReadmeHasNoRelativeLinks(t *testing.T) {
	p := pages(t)["charts/lanyard/README.md"]
	for _, link := range nodes[*ast.Link](p.tree) {
		if to := string(link.Destination); !strings.HasPrefix(to, "https://") && !strings.HasPrefix(to, "#") {
			t.Errorf("got a link to %s, want %s and the path", to, repository)
		}
	}
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	var taken []string
	for _, test := range []struct{ heading, want string }{
		{"The guard", "the-guard"},
		{"kube-system", "kube-system"},
		{"Who can't, and `why_not`?", "who-cant-and-why_not"},
		{"A & B", "a--b"},
		{"The guard", "the-guard-1"},
		{"The guard", "the-guard-2"},
	} {
		got := newAnchor(strings.ReplaceAll(test.heading, "`", ""), taken)
		if got != test.want {
			t.Errorf("%s: got #%s, want #%s", test.heading, got, test.want)
		}
		taken = append(taken, got)
	}
}
