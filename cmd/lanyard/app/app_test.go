// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
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
	root := newCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()).newRootCommand()
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
			fresh := newCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()).newRootCommand()
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
	root := newCLI("kubectl-lanyard", genericiooptions.NewTestIOStreamsDiscard()).newRootCommand()
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
		c := &cli{IOStreams: streams}
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
