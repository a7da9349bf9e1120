// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Values of --output in addition to the formats of kubectl's printers, for commands that
// have them.
const (
	// OutputTable is the default: text for people.
	OutputTable = ""
	// OutputName lists the names of the objects, as Names returns them.
	OutputName = "name"

	OutputJSON = "json"
	OutputYAML = "yaml"
)

// APIVersion is the version of the results that are printed as objects.
const APIVersion = "cli.lanyard.dev/v1"

// Result is the result of a command. It is encoded by its JSON tags, with an apiVersion and a
// kind, or printed for people.
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
// formats of the command in addition to kubectl's: OutputName, or a format that
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

// check returns an error for an invalid value of the flag.
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

// encode returns the result as printed by one of kubectl's printers.
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
	// The text of a template may contain line breaks and tabs. printers.WriteEscaped would
	// only escape ESC and CR.
	return escapable.ReplaceAllFunc(encoded.Bytes(), func(part []byte) []byte { return []byte(texts.Escape(string(part))) }), nil
}

// object returns the result as an object for the printers, which keep the order of its
// fields.
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

// Note writes to the error stream, and ignores errors. It indents the lines after the first.
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

// Page writes text for people, until the first error. It escapes all characters that control
// a terminal except its own styles, because text may come from anyone who can write objects.
type Page struct {
	W      io.Writer
	Colour bool
	// Width is the width of the terminal; 0 if the page is not on a terminal, and lines are
	// not wrapped.
	Width int
	Err   error
	// Columns are the column widths of the last table. Tables with the same
	// number of columns line up, so that a long one can be written in parts.
	Columns []int
}

// NewPage returns a page. It has colours only on a terminal, and not if NO_COLOR
// is set (https://no-color.org).
func NewPage(w io.Writer) *Page {
	p := &Page{W: w}
	if width, isTerminal := terminalWidth(w); isTerminal {
		p.Width = width
		p.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return p
}

// Styles of a text, as the parameters of a terminal's SGR sequence.
const (
	Good  = "32"
	Bad   = "31"
	Warn  = "33"
	Title = "1"
	Faint = "2"
	// Unknown is the style of parts that could not be checked.
	Unknown = "36"
)

// Style returns the text in a style, if the page has colours.
func (p *Page) Style(style, text string) string {
	if !p.Colour || text == "" || style == "" {
		return text
	}
	return styleKey + style + "m" + text + styleKey + "0m"
}

// styleKey marks the parameters of a style until the style is written. It is random, so that
// no other text contains it.
var styleKey = rand.Text()

// styles matches the styles in a text.
var styles = regexp.MustCompile(styleKey + "([0-9]+m)")

// escape escapes a text, but not its styles.
func escape(text string) string {
	var escaped strings.Builder
	end := 0
	for _, style := range styles.FindAllStringIndex(text, -1) {
		escaped.WriteString(texts.Escape(text[end:style[0]]) + text[style[0]:style[1]])
		end = style[1]
	}
	return escaped.String() + texts.Escape(text[end:])
}

// Line writes one line.
func (p *Page) Line(format string, args ...any) {
	if p.Err == nil {
		line := escape(fmt.Sprintf(strings.TrimRight(format, " "), args...))
		_, p.Err = fmt.Fprintln(p.W, styles.ReplaceAllString(line, "\x1b[$1"))
	}
}

// Lines writes a text of several lines.
func (p *Page) Lines(text string) {
	for line := range strings.Lines(text) {
		p.Line("%s", strings.TrimSuffix(line, "\n"))
	}
}

// Text writes a text in lines that start with indent spaces and are at most as wide as
// the terminal.
func (p *Page) Text(indent int, style, text string) {
	for _, line := range fold(escape(text), p.Width-indent) {
		p.Line("%s%s", strings.Repeat(" ", indent), p.Style(style, line))
	}
}

// marks are the marks in front of texts, by their styles.
var marks = map[string]string{Good: "√", Warn: "‼", Bad: "×", Faint: "-", Unknown: "?"}

// Marked writes a text after the mark of a style, indented by 2 spaces.
func (p *Page) Marked(style, text string) {
	mark := marks[style]
	for _, line := range fold(escape(text), p.Width-4) {
		p.Line("  %s %s", p.Style(style, mark), line)
		mark = " "
	}
}

// minText is the minimum width to wrap a text to.
const minText = 20

// fold is wrap for a text on the terminal. A width that is too small means no limit.
func fold(text string, width int) []string {
	if width < minText {
		return []string{text}
	}
	return wrap(text, width)
}

// wrap breaks a text between words.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case cells(line)+1+cells(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// cells returns the width of a text on the terminal.
func cells(text string) int {
	return utf8.RuneCountInString(styles.ReplaceAllString(escape(text), ""))
}

// Table writes rows in aligned columns. The first row may be a header. On a narrow terminal,
// the widest columns are wrapped, not truncated.
func (p *Page) Table(indent int, rows [][]string) {
	if len(rows) > 0 && len(p.Columns) != len(rows[0]) {
		p.Columns = make([]int, len(rows[0]))
	}
	for _, row := range rows {
		for i, text := range row {
			p.Columns[i] = max(p.Columns[i], cells(text))
		}
	}
	widths := p.Columns
	if p.Width > 0 {
		widths = fit(p.Columns, p.Width-indent)
	}
	for _, row := range rows {
		p.row(indent, widths, row)
	}
}

// row writes one row of a table.
func (p *Page) row(indent int, widths []int, row []string) {
	columns := make([][]string, len(row))
	height := 1
	for i, text := range row {
		columns[i] = wrapCell(escape(text), widths[i])
		height = max(height, len(columns[i]))
	}
	for n := range height {
		var line strings.Builder
		line.WriteString(strings.Repeat(" ", indent))
		for i, lines := range columns {
			text := ""
			if n < len(lines) {
				text = lines[n]
			}
			line.WriteString(text + strings.Repeat(" ", widths[i]-cells(text)+ColumnGap))
		}
		p.Line("%s", strings.TrimRight(line.String(), " "))
	}
}

const (
	// ColumnGap is the space between two columns.
	ColumnGap = 2
	// minColumn is the minimum width of a column.
	minColumn = 8
)

// fit narrows the widest columns until the table is at most as wide as available.
func fit(columns []int, available int) []int {
	columns = slices.Clone(columns)
	total := -ColumnGap
	for _, width := range columns {
		total += width + ColumnGap
	}
	for ; total > available; total-- {
		widest := slices.Index(columns, slices.Max(columns))
		if columns[widest] <= minColumn {
			break
		}
		columns[widest]--
	}
	return columns
}

// styled matches a text in a style.
var styled = regexp.MustCompile("^(" + styleKey + "[0-9]+m)(.*)(" + styleKey + "0m)$")

// wrapCell breaks a text, which may be styled, into lines of at most width cells: between
// words, and in long words after punctuation, such as the slashes of a path.
func wrapCell(text string, width int) (lines []string) {
	if cells(text) <= width {
		return []string{text}
	}
	start, end := "", ""
	if match := styled.FindStringSubmatch(text); match != nil {
		start, text, end = match[1], match[2], match[3]
	}
	text = styles.ReplaceAllString(text, "") // a style of a part would be broken
	for _, line := range wrap(text, width) {
		rest := []rune(line)
		for len(rest) > width {
			n := breakAt(rest, width)
			lines = append(lines, start+string(rest[:n])+end)
			rest = rest[n:]
		}
		lines = append(lines, start+string(rest)+end)
	}
	return lines
}

// breakAt returns how many runes of a word fit on a line. The word has more than width runes.
func breakAt(word []rune, width int) int {
	for n := width; n > width/3; n-- {
		if strings.ContainsRune("/-.:,_", word[n-1]) {
			return n
		}
	}
	return width
}
