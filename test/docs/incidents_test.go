// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// incident contains the fields of an entry of incidents.yaml that are about the pages. The
// suite cli reads the other fields, on a cluster.
type incident struct{ ID, Command, Answer, Page, Text, Read string }

// incidents returns the entries of incidents.yaml.
func incidents(t *testing.T) []incident {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "test/e2e/suite/cli/testdata/incidents.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Incidents []incident }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Incidents
}

// section returns the text below a heading of a page, up to the next heading of the same
// or a higher level.
func section(p *page, anchor string) string {
	var found []string
	level := 0
	for line := range strings.Lines(string(p.source)) {
		name, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		depth := len(line) - len(strings.TrimLeft(line, "#"))
		switch {
		case isHeading && depth > 0 && level > 0 && depth <= level:
			return strings.Join(found, "")
		case isHeading && depth > 0 && level == 0 && newAnchor(name, nil) == anchor:
			level = depth
		case level > 0:
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

func TestEachIncidentIsOnItsPage(t *testing.T) {
	all := pages(t)
	for _, i := range incidents(t) {
		name, anchor, _ := strings.Cut(i.Page, "#")
		name = path.Join("docs", name)
		switch p := all[name]; {
		case p == nil:
			t.Errorf("%s: got no page %s", i.ID, name)
		case i.Text == "" || !strings.Contains(section(p, anchor), i.Text):
			t.Errorf("%s: the section %s of %s lacks %q", i.ID, anchor, name, i.Text)
		}
	}
}

// 33 of 35 need no page.
func TestIncidentsAreAnsweredByCommands(t *testing.T) {
	var ids []string
	without := 0
	for _, i := range incidents(t) {
		ids = append(ids, i.ID)
		switch {
		case (i.Command == "") != (i.Answer == ""):
			t.Errorf("%s: got the command %q and the answer %q, want both or none", i.ID, i.Command, i.Answer)
		case i.Command == "" && i.Read == "":
			t.Errorf("%s: got no command, and no reason", i.ID)
		case i.Read == "":
			without++
		}
	}
	want := strings.Fields("1 2 3a 3b 4 5 6 7 8 9 10 a b c d e f g h i j k l m n o p q r s t u v w x")
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("incidents (-want +got):\n%s", diff)
	}
	if without < 33 {
		t.Errorf("got %d incidents with an answer that needs no page, want 33 or more", without)
	}
}
