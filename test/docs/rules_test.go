// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// proof matches the name of a test, of a golden case or of a spec in the last column of
// the table of rules.
var proof = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`|`([a-z0-9-]+)`|\"([^\"]+)\"")

func TestTheTestsOfTheRulesExist(t *testing.T) {
	cases := map[string]bool{}
	var tests strings.Builder
	for _, name := range tree.Files(t, root) {
		switch {
		case strings.HasPrefix(name, "test/decisions/"):
			cases[strings.TrimSuffix(path.Base(name), ".yaml")] = true
		case strings.HasSuffix(name, "_test.go"):
			tests.WriteString(tree.Read(t, root, name))
		}
	}
	checked := 0
	for line := range strings.Lines(tree.Read(t, root, "test/rules.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, match := range proof.FindAllStringSubmatch(cells[3], -1) {
			checked++
			test, golden, spec := match[1], match[2], match[3]
			switch {
			case test != "" && !strings.Contains(tests.String(), "\nfunc "+test+"("):
				t.Errorf("test/rules.md names %s, which does not exist", test)
			case golden != "" && !cases[golden]:
				t.Errorf("test/rules.md names the golden case %s, which does not exist", golden)
			case spec != "" && !strings.Contains(tests.String(), `("`+spec):
				t.Errorf("test/rules.md names the spec %q, which does not exist", spec)
			}
		}
	}
	if checked < 40 {
		t.Errorf("got %d names of tests, want those of all rules", checked)
	}
}
