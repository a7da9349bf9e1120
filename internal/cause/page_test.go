// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cause_test

import (
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cause"
)

var update = flag.Bool("update", false, "write the lists into docs/troubleshooting")

const docs = "../../docs/"

// read returns the causes in a file.
func read(t *testing.T, file string) map[string][]cause.Cause {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := cause.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestThePagesHaveTheCauses compares the lists of the pages with the causes, or writes them.
func TestThePagesHaveTheCauses(t *testing.T) {
	own := read(t, "causes.yaml")
	clouds := read(t, "../exchange/causes.yaml")
	for page, lists := range map[string]map[string][]cause.Cause{
		"troubleshooting/cloud-denies.md":   clouds,
		"troubleshooting/webhook-down.md":   {"webhook": own["webhook"], "replica": own["replica"]},
		"troubleshooting/no-credentials.md": {"kubelet": own["kubelet"]},
	} {
		text, err := os.ReadFile(docs + page)
		if err != nil {
			t.Fatal(err)
		}
		want := string(text)
		for origin, list := range lists {
			begin, end := "<!-- begin "+origin+" -->\n", "<!-- end "+origin+" -->\n"
			before, rest, found := strings.Cut(want, begin)
			_, after, ended := strings.Cut(rest, end)
			if !found || !ended || len(list) == 0 {
				t.Fatalf("%s lacks %q or %q, or there is no cause", page, begin, end)
			}
			want = before + begin + items(page, list) + end + after
		}
		if *update {
			if err := os.WriteFile(docs+page, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("%s (-want +got); make generate writes it:\n%s", page, diff)
		}
	}
}

// items formats the causes as a list. Errors with the same cause share an item.
func items(page string, list []cause.Cause) string {
	errors, texts := map[string][]string{}, []string{}
	for _, c := range list {
		text := c.Text
		if c.Fix != "" { // otherwise, the repair is in the output of a command
			text += " " + onPage(page, &c)
		}
		if errors[text] == nil {
			texts = append(texts, text)
		}
		errors[text] = append(errors[text], names(&c)...)
	}
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "- %s: %s\n", strings.Join(errors[text], ", "), text)
	}
	return b.String()
}

// names returns the patterns of a cause in the format of the pages.
func names(c *cause.Cause) []string {
	name := "`" + c.Message + "`"
	switch {
	case c.Code != "" && c.Message != "":
		name = "`" + c.Code + "` (" + name + ")"
	case c.Code != "":
		name = "`" + c.Code + "`"
	}
	all := []string{name}
	for _, also := range c.Also {
		all = append(all, "`"+also+"`")
	}
	return all
}

// here contains the sections with the lists.
var here = []string{"#the-probe", "#a-pod-hangs-in-containercreating"}

// onPage formats the fix as a link, or with its command if there is no page.
func onPage(page string, c *cause.Cause) string {
	text, command, found := strings.Cut(strings.TrimSuffix(c.Fix, "."), ": kubectl ")
	link, isHere := strings.CutPrefix(c.Link, page)
	switch {
	case isHere && !slices.Contains(here, link):
		return "[" + text + "](" + link + ")."
	case !isHere:
		return "[" + text + "](" + strings.TrimPrefix("../"+c.Link, "../"+path.Dir(page)+"/") + ")."
	case found:
		return text + ": `kubectl " + command + "`."
	}
	return c.Fix
}
