// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// ownStyles matches the styles of a page.
var ownStyles = regexp.MustCompile("\x1b\\[(0|1|2|31|32|33)m")

// hostile is a text that clears the screen and prints the output of a successful command.
const hostile = "\x1b[2J\x1b[1;1Hevery pod has the credentials\n\u009b31m\x9b\r\x1b]52;c;aWQ=\a\u202e\x1b[32m"

// write writes a text with every method of a page.
func write(p *Page, text string) {
	p.Line("%s", text)
	p.Line("a %v: %s", p.Style(Title, text), p.Style(Good, text)+text)
	p.Text(2, "", text)
	p.Text(0, Faint, text+" "+text)
	p.Marked(Bad, text)
	p.Table(2, [][]string{{"A", text, "B"}, {p.Style(Warn, text), "x", text + p.Style(Title, text)}})
	p.Lines(text)
}

// checkShown fails if a text, without the styles of pages, controls a terminal.
func checkShown(t *testing.T, shown string, colour bool) {
	t.Helper()
	if colour {
		shown = ownStyles.ReplaceAllString(shown, "")
	}
	if at := strings.IndexFunc(shown, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 || !utf8.ValidString(shown) {
		t.Errorf("got %q at %d of %q", shown[max(at, 0):], at, shown)
	}
}

func FuzzPage(f *testing.F) {
	f.Add(hostile, 0)
	f.Add(hostile, 24)
	f.Add("plain ümlaut", 80)
	f.Add("\x1b[31mred\x1b[0m", 40)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = max(0, width%200)
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			write(&Page{W: &out, Width: width, Colour: colour}, text)
			checkShown(t, out.String(), colour)
			// The styles are balanced, so none comes from the text.
			if got := len(ownStyles.FindAllString(out.String(), -1)); colour && got != 2*len(ownStyles.FindAllString(strings.ReplaceAll(out.String(), "\x1b[0m", ""), -1)) {
				t.Errorf("got %d styles in %q", got, &out)
			}
			out.Reset()
			p := &Page{W: &out, Colour: colour}
			p.Line("%s", text)
			p.Text(0, "", text)
			p.Marked(Good, text)
			p.Table(0, [][]string{{text}})
			if got := strings.Count(out.String(), "\n"); got != 4 {
				t.Errorf("got %d lines, want 4: %q", got, &out)
			}
		}
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		c := &CLI{IOStreams: streams}
		c.Note("%s", text)
		_, _ = notes{c}.Write([]byte(text))
		checkShown(t, errOut.String(), false)
		want := string([]rune(text)) // JSON replaces invalid UTF-8
		for _, format := range []string{OutputJSON, OutputYAML} {
			out.Reset()
			if err := output(t, format).Write(c, shownText{text}); err != nil {
				t.Fatalf("%s of %q: %v", format, text, err)
			}
			if at := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); at >= 0 {
				t.Errorf("%s: got %q", format, out)
			}
			var got shownText
			if err := yaml.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%s: %q: %v", format, out, err)
			}
			if got.Text != want {
				t.Errorf("%s: got %q, want %q", format, got.Text, want)
			}
		}
	})
}

// shownText is a result with a text.
type shownText struct {
	Text string `json:"text"`
}

func (s shownText) Print(p *Page) { p.Text(0, "", s.Text) }

func TestTheTextOfAStyleIsEscaped(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Page{W: &out, Colour: true}
	p.Line("%s", p.Style(Bad, "a\x1b[0mb")+"\x1b[32m")
	if got, want := out.String(), "\x1b[31ma\\x1b[0mb\x1b[0m\\x1b[32m\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
