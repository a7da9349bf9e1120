// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/status"
)

// run runs a command line and returns its exit code and its output.
func run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = Run(t.Context(), args, streams)
	return code, stdout.String(), stderr.String()
}

func TestMistakesInTheCommandLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":            {[]string{"lanyard"}, "lanyard: a command is missing\nRun 'lanyard --help' for usage.\n"},
		"an unknown command":    {[]string{"lanyard", "frobnicate"}, "lanyard: unknown command \"frobnicate\"\nRun 'lanyard --help' for usage.\n"},
		"an unknown flag":       {[]string{"lanyard", "--frobnicate"}, "lanyard: unknown flag: --frobnicate\nRun 'lanyard --help' for usage.\n"},
		"a plugin of kubectl":   {[]string{"/usr/bin/kubectl-lanyard", "--x"}, "kubectl lanyard: unknown flag: --x\nRun 'kubectl lanyard --help' for usage.\n"},
		"a path of the program": {[]string{"/opt/kubectl-tools/lanyard", "--x"}, "lanyard: unknown flag: --x\nRun 'lanyard --help' for usage.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, errOut := run(t, test.args...)
			if code != command.ExitUsage || errOut != test.want {
				t.Errorf("got %d and %q, want %d and %q", code, errOut, command.ExitUsage, test.want)
			}
		})
	}
}

// Every command has examples, and they can be pasted: their commands and flags
// exist.
func TestExamples(t *testing.T) {
	t.Parallel()
	root := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.HasSubCommands() || cmd == root {
			return
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: want Short, Long and Example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if line = strings.TrimRight(line, "\n"); len(line) > 80 {
				t.Errorf("%s: %q is wider than a terminal of 80 columns", cmd.CommandPath(), line)
			}
		}
		for line := range strings.Lines(cmd.Example) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " > ")
			args := strings.Fields(line)
			if args[0] != "lanyard" {
				t.Errorf("%s: example %q does not start with lanyard", cmd.CommandPath(), line)
				continue
			}
			fresh := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
			found, rest, err := fresh.Find(args[1:])
			if err != nil || found.CommandPath() != cmd.CommandPath() {
				t.Errorf("%s: example %q is of another command: %v", cmd.CommandPath(), line, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("example %q: %v", line, err)
			} else if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("example %q: %v", line, err)
			}
		}
	})
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, child := range cmd.Commands() {
		eachCommand(child, do)
	}
}

func TestExamplesShowTheNameOfThePlugin(t *testing.T) {
	t.Parallel()
	root := newRootCommand(command.NewCLI("kubectl-lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			if strings.HasPrefix(line, "  lanyard") {
				t.Errorf("%s: %q", cmd.CommandPath(), line)
			}
		}
	})
}

// sample is a result.
type sample struct {
	Name string `json:"name"`
}

func (s sample) Print(p *command.Page) { p.Line("name %s", s.Name) }

func TestOutputFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"table": "name x\n",
		"json":  "{\n  \"name\": \"x\"\n}\n",
		"yaml":  "name: x\n",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		c := &command.CLI{IOStreams: streams}
		o := command.Output{Format: format}
		if err := o.Write(c, sample{"x"}); err != nil || out.String() != want {
			t.Errorf("%s: got %q and %v, want %q", format, out, err, want)
		}
	}
}

func TestAnUnknownOutputFormatIsAMistake(t *testing.T) {
	t.Parallel()
	var o command.Output
	cmd := &cobra.Command{Use: "x"}
	o.AddFlag(cmd, "shell")
	if err := cmd.ParseFlags([]string{"-o", "shell"}); err != nil || o.Format != "shell" {
		t.Errorf("got %q and %v", o.Format, err)
	}
	err := cmd.ParseFlags([]string{"-o", "wide"})
	if err == nil || !strings.Contains(err.Error(), `got "wide", want one of table, json, yaml, shell`) {
		t.Errorf("got %v", err)
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &command.Page{W: &out, Colour: true}
	p.Table(2, [][]string{{"NAME", "STATE", "WHY"}, {p.Style(command.Good, "ümlaut"), "", "a long text"}, {"a", "b", ""}})
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
	rows := func(p *command.Page) [][]string {
		return [][]string{
			{"NAME", "WHY", "N"},
			{"short", p.Style(command.Bad, "it is too long for a column that is narrow"), "1"},
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
			p := &command.Page{W: &out, Width: test.width, Colour: colour}
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
	p := &command.Page{Colour: true}
	want := []string{p.Style(command.Bad, "one two"), p.Style(command.Bad, "three-"), p.Style(command.Bad, "four")}
	if diff := cmp.Diff(want, command.WrapCell(p.Style(command.Bad, "one two three-four"), 8)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	// Nothing is lost, whatever the width is.
	for width := command.MinColumn; width < 30; width++ {
		const text = "arn:aws:iam::111122223333:role/a-long-name-without-a-place-to-break"
		lines := command.WrapCell(text, width)
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

func TestStatusFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rows := []status.Row{
		{Namespace: "shop", ServiceAccount: "cart", Guard: status.Guarded, Workload: "deployment/cart", Counts: status.Counts{Pods: 2, Current: 2}},
		{Namespace: "shop", ServiceAccount: "cart", Guard: status.Guarded, Workload: "statefulset/a-name-of-more-characters-than-the-column-has", Counts: status.Counts{Pods: 10, Stale: 10}},
		{Namespace: "shop", ServiceAccount: "mail", Guard: status.Unguarded},
	}
	for width, want := range map[int]string{
		0: "NAMESPACE  SERVICEACCOUNT  GUARD      WORKLOAD                                               PODS  CURRENT  STALE  WITHOUT  OTHER\n" +
			"shop       cart            guarded    deployment/cart                                        2     2        0      0        0\n" +
			"shop       cart            guarded    statefulset/a-name-of-more-characters-than-the-column-has  10    0        10     0        0\n" +
			"shop       mail            unguarded  -                                                      0     0        0      0        0\n",
		80: "  WORKLOAD                                  PODS  CURRENT  STALE  WITHOUT  OTHER\n" +
			"shop/cart (guarded)\n" +
			"  deployment/cart                           2     2        0      0        0\n" +
			"  statefulset/a-name-of-more-characters-    10    0        10     0        0\n" +
			"  than-the-column-has\n" +
			"shop/mail (unguarded)\n" +
			"  -                                         0     0        0      0        0\n",
	} {
		var out bytes.Buffer
		p := &command.Page{W: &out, Width: width}
		status.PrintStatus(p, rows, true, true)
		spaces := regexp.MustCompile(" +")
		got := out.String()
		if width == 0 { // only the number of spaces is another matter: see TestTables
			got, want = spaces.ReplaceAllString(got, " "), spaces.ReplaceAllString(want, " ")
		}
		if diff := cmp.Diff(want, got); diff != "" || p.Err != nil {
			t.Errorf("width %d (-want +got):\n%s%v", width, diff, p.Err)
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
		p := &command.Page{W: &out, Width: test.width}
		p.Text(2, "", text)
		if out.String() != test.want {
			t.Errorf("%s: got %q, want %q", name, out.String(), test.want)
		}
	}
}

func TestWithoutATerminalThereAreNoColours(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := command.NewPage(&out)
	p.Line("%s", p.Style(command.Bad, "text"))
	if out.String() != "text\n" {
		t.Errorf("got %q", out.String())
	}
}
