// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/component-base/term"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Values of --output in addition to the formats of kubectl's printers, for commands that
// have them.
const (
	// OutputTable is the default: text for people.
	OutputTable = ""
	// OutputWide is a table with more columns.
	OutputWide = "wide"
	// OutputName lists the names of the objects, as Names returns them.
	OutputName = "name"

	OutputJSON = "json"
	OutputYAML = "yaml"
)

// APIVersion is the version of the results that are printed as objects.
const APIVersion = "cli.lanyard.dev/v1"

// Result holds the findings of a command. It is encoded by its JSON tags, with an apiVersion
// and a kind, or writes itself for people.
type Result interface {
	// Print writes the result for people.
	Print(p *Page)
}

// Named is a Result that is a list of objects of the cluster.
type Named interface {
	// Names returns the objects for --output name, such as serviceaccount/cart.
	Names() []string
}

// Output is the flag --output of a command.
type Output struct {
	// Format is the value of the flag.
	Format string
	kind   string
	// own are the formats of the command in addition to the formats of the printers.
	own   []string
	flags *genericclioptions.PrintFlags
}

// AddFlag adds the flag. kind is the kind of the result as an object, and own are the
// formats of the command in addition to kubectl's: OutputName, OutputWide, or a format that
// Print knows.
func (o *Output) AddFlag(cmd *cobra.Command, kind string, own ...string) {
	o.kind, o.own = kind, own
	o.flags = &genericclioptions.PrintFlags{
		OutputFormat:         &o.Format,
		JSONYamlPrintFlags:   genericclioptions.NewJSONYamlPrintFlags(),
		TemplatePrinterFlags: genericclioptions.NewKubeTemplatePrintFlags(),
	}
	usage := strings.Join(slices.Concat(own, []string{OutputJSON, OutputYAML, "jsonpath=...", "go-template=..."}), ", ")
	completions := slices.Concat(own, []string{OutputJSON, OutputYAML, "jsonpath=", "go-template="})
	addChecked(cmd, &checked{&o.Format, o.check}, "output", "o", "Output format: "+usage+".", completions)
}

// check returns an error for a value of the flag that is wrong.
func (o *Output) check(value string) error {
	if value == OutputTable || slices.Contains(o.own, value) {
		return nil
	}
	o.Format = value // which ToPrinter reads
	_, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return fmt.Errorf("allowed formats are: %s", strings.Join(slices.Concat(o.own, o.flags.AllowedFormats()), ", "))
	}
	return err
}

// ForPeople reports whether the output is for people: a table, or a format of the command.
func (o *Output) ForPeople() bool {
	return o.Format == OutputTable || o.Format != OutputName && slices.Contains(o.own, o.Format)
}

// Write writes a result in the format of the flag.
func (o *Output) Write(c *CLI, r Result) error {
	p := NewPage(c.Out)
	named, isNamed := r.(Named)
	switch {
	case o.ForPeople():
		r.Print(p)
		return p.Err
	case o.Format == OutputName && isNamed:
		for _, name := range named.Names() {
			p.Line("%s", name)
		}
		return p.Err
	}
	text, err := o.encode(r)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = c.Out.Write(text)
	return err
}

// encode returns the result as one of kubectl's printers prints it.
func (o *Output) encode(r Result) ([]byte, error) {
	object, err := o.object(r)
	if err != nil {
		return nil, err
	}
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return nil, err
	}
	var encoded bytes.Buffer
	if err := printer.PrintObj(object, &encoded); err != nil {
		return nil, err
	}
	if slices.Contains(o.flags.JSONYamlPrintFlags.AllowedFormats(), strings.ToLower(o.Format)) {
		return encoded.Bytes(), nil // escaped already
	}
	// The text of a template may have lines and tabs. Not printers.WriteEscaped, which only
	// escapes ESC and CR.
	return escapable.ReplaceAllFunc(encoded.Bytes(), func(part []byte) []byte { return []byte(texts.Escape(string(part))) }), nil
}

// object returns the result as an object for the printers. They write its JSON as it is: its
// fields keep their order.
func (o *Output) object(r Result) (runtime.Object, error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, err
	}
	object := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q`, APIVersion, o.kind)
	fields := bytes.TrimPrefix(bytes.TrimSpace(encoded.Bytes()), []byte("{"))
	if len(fields) > 1 {
		object = append(object, ',')
	}
	return &runtime.Unknown{Raw: texts.EscapeJSON(append(object, fields...))}, nil
}

// escapable matches text between the lines and tabs of a template.
var escapable = regexp.MustCompile(`[^\n\t]+`)

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
