// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/status"
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
			if code != ExitUsage || errOut != test.want {
				t.Errorf("got %d and %q, want %d and %q", code, errOut, ExitUsage, test.want)
			}
		})
	}
}

// Every command has examples, and they can be pasted: their commands and flags
// exist.
func TestExamples(t *testing.T) {
	t.Parallel()
	root := newRootCommand(newCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
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
			fresh := newRootCommand(newCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
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
	root := newRootCommand(newCLI("kubectl-lanyard", genericiooptions.NewTestIOStreamsDiscard()))
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

func (s sample) print(p *page) { p.line("name %s", s.Name) }

func TestOutputFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"table": "name x\n",
		"json":  "{\n  \"name\": \"x\"\n}\n",
		"yaml":  "name: x\n",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		c := &CLI{IOStreams: streams}
		o := output{format}
		if err := o.write(c, sample{"x"}); err != nil || out.String() != want {
			t.Errorf("%s: got %q and %v, want %q", format, out, err, want)
		}
	}
}

func TestAnUnknownOutputFormatIsAMistake(t *testing.T) {
	t.Parallel()
	var o output
	cmd := &cobra.Command{Use: "x"}
	o.addFlag(cmd, "shell")
	if err := cmd.ParseFlags([]string{"-o", "shell"}); err != nil || o.format != "shell" {
		t.Errorf("got %q and %v", o.format, err)
	}
	err := cmd.ParseFlags([]string{"-o", "wide"})
	if err == nil || !strings.Contains(err.Error(), `got "wide", want one of table, json, yaml, shell`) {
		t.Errorf("got %v", err)
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &page{w: &out, colour: true}
	p.table(2, [][]string{{"NAME", "STATE", "WHY"}, {p.style(good, "ümlaut"), "", "a long text"}, {"a", "b", ""}})
	// A second part keeps the columns, and may widen them.
	p.table(2, [][]string{{"b", "longer state", "x"}})
	p.table(0, [][]string{{"other", "table"}})
	want := "  NAME    STATE  WHY\n  \x1b[32mümlaut\x1b[0m         a long text\n  a       b\n  b       longer state  x\nother  table\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || p.err != nil {
		t.Errorf("table (-want +got):\n%s%v", diff, p.err)
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	rows := func(p *page) [][]string {
		return [][]string{
			{"NAME", "WHY", "N"},
			{"short", p.style(bad, "it is too long for a column that is narrow"), "1"},
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
			p := &page{w: &out, width: test.width, colour: colour}
			p.table(2, rows(p))
			got := escapes.ReplaceAllString(out.String(), "")
			if diff := cmp.Diff(test.want, got); diff != "" || p.err != nil {
				t.Errorf("%s, colours %t (-want +got):\n%s%v", name, colour, diff, p.err)
			}
		}
	}
}

// Each line of a broken cell has the style of its text.
func TestBrokenCellsKeepTheirStyle(t *testing.T) {
	t.Parallel()
	p := &page{colour: true}
	want := []string{p.style(bad, "one two"), p.style(bad, "three-"), p.style(bad, "four")}
	if diff := cmp.Diff(want, wrapCell(p.style(bad, "one two three-four"), 8)); diff != "" {
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
		p := &page{w: &out, width: width}
		printStatus(p, rows, true, true)
		spaces := regexp.MustCompile(" +")
		got := out.String()
		if width == 0 { // only the number of spaces is another matter: see TestTables
			got, want = spaces.ReplaceAllString(got, " "), spaces.ReplaceAllString(want, " ")
		}
		if diff := cmp.Diff(want, got); diff != "" || p.err != nil {
			t.Errorf("width %d (-want +got):\n%s%v", width, diff, p.err)
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
		p := &page{w: &out, width: test.width}
		p.text(2, "", text)
		if out.String() != test.want {
			t.Errorf("%s: got %q, want %q", name, out.String(), test.want)
		}
	}
}

func TestWithoutATerminalThereAreNoColours(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newPage(&out)
	p.line("%s", p.style(bad, "text"))
	if out.String() != "text\n" {
		t.Errorf("got %q", out.String())
	}
}
