// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// sample is a result.
type sample struct {
	Name string `json:"name"`
}

func (s sample) Print(p *Page) { p.Line("name %s", s.Name) }

// output returns the flag with a value, of a command with the formats name and diff.
func output(t *testing.T, format string) *Output {
	t.Helper()
	var o Output
	cmd := &cobra.Command{Use: "x"}
	o.AddFlag(cmd, "Sample", OutputName, "diff")
	if err := cmd.ParseFlags([]string{"--output=" + format}); err != nil {
		t.Fatalf("%s: %v", format, err)
	}
	return &o
}

// named is a result with objects.
type named struct{ sample }

func (n named) Names() []string { return []string{"serviceaccount/" + n.Name} }

func TestOutputFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"":                      "name x\n",
		"diff":                  "name x\n",
		"name":                  "serviceaccount/x\n",
		"json":                  "{\n    \"apiVersion\": \"cli.lanyard.dev/v1\",\n    \"kind\": \"Sample\",\n    \"name\": \"x\"\n}\n",
		"yaml":                  "apiVersion: cli.lanyard.dev/v1\nkind: Sample\nname: x\n",
		"jsonpath={.name}":      "x",
		"kyaml":                 "---\n{\n  apiVersion: \"cli.lanyard.dev/v1\",\n  kind: \"Sample\",\n  name: \"x\",\n}\n",
		"go-template={{.kind}}": "Sample",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		if err := output(t, format).Write(&CLI{IOStreams: streams}, named{sample{"x"}}); err != nil || out.String() != want {
			t.Errorf("%s: got %q and %v, want %q", format, out, err, want)
		}
	}
}

// No format writes a character that controls a terminal. A template may contain line breaks and
// tabs.
func TestOutputIsEscaped(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"":                                 "name \\x1b[2J\\u009b\\nx\n",
		"name":                             "serviceaccount/\\x1b[2J\\u009b\\nx\n",
		"jsonpath={.name}{\"\\t\\n\"}":     "\\x1b[2J\\u009b\nx\t\n",
		"go-template={{.name}}{{\"\\n\"}}": "\\x1b[2J\\u009b\nx\n",
		"json":                             "{\n    \"apiVersion\": \"cli.lanyard.dev/v1\",\n    \"kind\": \"Sample\",\n    \"name\": \"\\u001b[2J\\u009b\\nx\"\n}\n",
		"yaml":                             "apiVersion: cli.lanyard.dev/v1\nkind: Sample\nname: \"\\e[2J\\x9B\\nx\"\n",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		if err := output(t, format).Write(&CLI{IOStreams: streams}, named{sample{"\x1b[2J\u009b\nx"}}); err != nil || out.String() != want {
			t.Errorf("%s: got %q and %v, want %q", format, out, err, want)
		}
	}
}

func TestAnUnknownOutputFormatIsAMistake(t *testing.T) {
	t.Parallel()
	var o Output
	cmd := &cobra.Command{Use: "x"}
	o.AddFlag(cmd, "Sample", "shell")
	if err := cmd.ParseFlags([]string{"-o", "shell"}); err != nil || o.Format != "shell" {
		t.Errorf("got %q and %v", o.Format, err)
	}
	for _, value := range []string{"wide", "name", "table"} {
		err := cmd.ParseFlags([]string{"-o", value})
		if err == nil || !strings.Contains(err.Error(), `invalid argument "`+value+`" for "-o, --output" flag: allowed formats are: shell, json, yaml, kyaml, go-template`) {
			t.Errorf("got %v", err)
		}
	}
	if err := cmd.ParseFlags([]string{"-o", "jsonpath={"}); err == nil {
		t.Error("got no error for a malformed template")
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Page{W: &out, Colour: true}
	p.Table(2, [][]string{{"NAME", "STATE", "WHY"}, {p.Style(Good, "ümlaut"), "", "a long text"}, {"a", "b", ""}})
	// A second part keeps the columns, and may widen them.
	p.Table(2, [][]string{{"b", "longer state", "x"}})
	p.Table(0, [][]string{{"other", "table"}})
	want := "  NAME    STATE  WHY\n  \x1b[32mümlaut\x1b[0m         a long text\n  a       b\n  b       longer state  x\nother  table\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || p.Err != nil {
		t.Errorf("table (-want +got):\n%s%v", diff, p.Err)
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	rows := func(p *Page) [][]string {
		return [][]string{
			{"NAME", "WHY", "N"},
			{"short", p.Style(Bad, "it is too long for a column that is narrow"), "1"},
			{"deployment/payments-api", "a path: projects/123456789/locations/global", "22"},
		}
	}
	for name, test := range map[string]struct {
		width int
		want  string
	}{
		"no terminal": {0, "  NAME                     WHY                                          N\n" +
			"  short                    it is too long for a column that is narrow   1\n" +
			"  deployment/payments-api  a path: projects/123456789/locations/global  22\n"},
		"a wide terminal": {75, "  NAME                     WHY                                          N\n" +
			"  short                    it is too long for a column that is narrow   1\n" +
			"  deployment/payments-api  a path: projects/123456789/locations/global  22\n"},
		"a narrow terminal": {40, "  NAME              WHY               N\n" +
			"  short             it is too long    1\n" +
			"                    for a column\n" +
			"                    that is narrow\n" +
			"  deployment/       a path:           22\n" +
			"  payments-api      projects/\n" +
			"                    123456789/\n" +
			"                    locations/global\n"},
	} {
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			p := &Page{W: &out, Width: test.width, Colour: colour}
			p.Table(2, rows(p))
			got := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(out.String(), "")
			if diff := cmp.Diff(test.want, got); diff != "" || p.Err != nil {
				t.Errorf("%s, colours %t (-want +got):\n%s%v", name, colour, diff, p.Err)
			}
		}
	}
}

// Each line of a broken cell has the style of its text.
func TestBrokenCellsKeepTheirStyle(t *testing.T) {
	t.Parallel()
	p := &Page{Colour: true}
	want := []string{p.Style(Bad, "one two"), p.Style(Bad, "three-"), p.Style(Bad, "four")}
	if diff := cmp.Diff(want, wrapCell(p.Style(Bad, "one two three-four"), 8)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	// Nothing is lost, whatever the width is.
	for width := minColumn; width < 30; width++ {
		const text = "arn:aws:iam::111122223333:role/a-long-name-without-a-place-to-break"
		lines := wrapCell(text, width)
		if got := strings.Join(lines, ""); got != text {
			t.Errorf("width %d: got %q", width, got)
		}
		for _, line := range lines {
			if len(line) > width {
				t.Errorf("width %d: got %q", width, line)
			}
		}
	}
}

func TestTextIsWrappedOnATerminalOnly(t *testing.T) {
	t.Parallel()
	const text = "one two three four five six seven"
	for name, test := range map[string]struct {
		width int
		want  string
	}{
		"no terminal":         {0, "  " + text + "\n"},
		"a wide terminal":     {80, "  " + text + "\n"},
		"a narrow terminal":   {24, "  one two three four\n  five six seven\n"},
		"a terminal too slim": {12, "  " + text + "\n"},
	} {
		var out bytes.Buffer
		p := &Page{W: &out, Width: test.width}
		p.Text(2, "", text)
		if out.String() != test.want {
			t.Errorf("%s: got %q, want %q", name, out.String(), test.want)
		}
	}
}
