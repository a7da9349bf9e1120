// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/term"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Values of --output.
const (
	OutputTable = "table"
	OutputJSON  = "json"
	OutputYAML  = "yaml"
)

// result holds the findings of a command. It is encoded as JSON or YAML by its tags, or
// writes itself for people.
type result interface {
	// Print writes the result for people.
	Print(p *Page)
}

// Output is the flag --output of a command.
type Output struct{ Format string }

// AddFlag adds the flag. formats are the formats of the command in addition to table,
// JSON and YAML.
func (o *Output) AddFlag(cmd *cobra.Command, formats ...string) {
	formats = append([]string{OutputTable, OutputJSON, OutputYAML}, formats...)
	o.Format = OutputTable
	AddChoice(cmd, &o.Format, "output", "o", "Output format", formats...)
}

// AddChoice adds a flag with a fixed set of values.
func AddChoice(cmd *cobra.Command, value *string, name, short, usage string, allowed ...string) {
	cmd.Flags().VarP(&choice{value, allowed}, name, short, usage+": "+strings.Join(allowed, ", ")+".")
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// choice is a flag with a fixed set of values.
type choice struct {
	value   *string
	allowed []string
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.value }

// Type implements pflag.Value.
func (*choice) Type() string { return "string" }

// Set implements pflag.Value.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		return fmt.Errorf("got %q, want one of %s", value, strings.Join(c.allowed, ", "))
	}
	*c.value = value
	return nil
}

// Write writes a result in the format of the flag.
func (o *Output) Write(c *CLI, r result) error {
	if o.Format != OutputJSON && o.Format != OutputYAML {
		p := NewPage(c.Out)
		r.Print(p)
		return p.Err
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(r)
	text := texts.EscapeJSON(encoded.Bytes())
	if err == nil && o.Format == OutputYAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = c.Out.Write(text)
	return err
}

// Note writes to the error stream. If that fails, there is nobody to tell. Lines after the
// first are indented, so that each belongs to the first.
func (c *CLI) Note(format string, args ...any) {
	p := NewPage(c.ErrOut)
	indent := 0
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		p.Text(indent, "", line)
		indent = 2
	}
}

// notes writes each text as a note.
type notes struct{ *CLI }

// Write implements io.Writer.
func (n notes) Write(text []byte) (int, error) {
	n.Note("%s", strings.TrimSuffix(string(text), "\n"))
	return len(text), nil
}

// patience is how long a step may take before the user is told about it.
const patience = 2 * time.Second

// Progress shows the current step of a command on the error stream, if it takes
// longer than patience. The caller must call the function that it returns when the
// step has ended. Where the error stream is not a terminal, it writes nothing.
func (c *CLI) Progress(what string) (done func()) {
	if _, _, err := term.TerminalSize(c.ErrOut); err != nil {
		return func() {}
	}
	timer := time.AfterFunc(patience, func() { c.Note("%s ...", what) })
	return func() { timer.Stop() }
}

// Periodically returns a function that notes how far a command is, at most every few
// seconds, and only on a terminal.
func (c *CLI) Periodically() (report func(format string, values ...any)) {
	if _, _, err := term.TerminalSize(c.ErrOut); err != nil {
		return func(string, ...any) {}
	}
	next := time.Now().Add(patience)
	return func(format string, values ...any) {
		if now := time.Now(); now.After(next) {
			next = now.Add(patience)
			c.Note(format, values...)
		}
	}
}
