// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/test/support/golden"
)

var update = flag.Bool("update", false, "write the pictures of terminals into docs")

// A picture of a terminal shows an unmodified recording of another test.
func TestThePicturesOfTerminalsShowRecordings(t *testing.T) {
	const explain = "lanyard explain pod late-0 --namespace staging"
	demo, err := golden.Read(filepath.Join(root, "test/demo/testdata/demo.txt"))
	if err != nil {
		t.Fatal(err)
	}
	explained := recorded(t)[explain]
	if len(explained) == 0 || len(demo) != 1 {
		t.Fatalf("got %d recordings of %q and %d of the demo, want each", len(explained), explain, len(demo))
	}
	for name, want := range map[string]string{
		"docs/explain.svg": terminal(explain, explained[0]),
		"docs/demo.svg":    terminal(demo[0].Heading, leftOut+"\n\n"+demo[0].Body+leftOut),
	} {
		file := filepath.Join(root, name)
		if *update {
			err = os.WriteFile(file, []byte(want), 0o644)
		}
		got, readErr := os.ReadFile(file)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("run make generate: %s (-want +got):\n%s", name, diff)
		}
	}
}

// The sizes of a picture, in pixels. Columns are slightly wider than the letters of common
// fonts.
const (
	margin, column, line, bar = 20, 7.95, 19, 34
)

// columns is the width of a picture. Longer lines are wrapped.
const columns = 90

const terminalStyle = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace;fill:#1f2328;white-space:pre}` +
	`rect{fill:#f6f8fa;stroke:#d0d7de}.bold{font-weight:600}.plus{fill:#116329}.fix{fill:#0550ae}.bad{fill:#b3141d}.dot{fill:#afb8c1}` +
	`@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#3d444d}.plus{fill:#7ee787}.fix{fill:#79c0ff}.bad{fill:#ff7b72}.dot{fill:#565f69}}`

// terminal returns a picture of a terminal with the output of a command, in SVG.
func terminal(command, output string) string {
	var lines, classes []string
	for text := range strings.SplitSeq("$ "+command+"\n"+strings.TrimSuffix(output, "\n"), "\n") {
		class := classOf(text)
		for utf8.RuneCountInString(text) > columns {
			end := strings.LastIndex(string([]rune(text)[:columns]), " ")
			if end <= 0 {
				break
			}
			lines, classes = append(lines, text[:end]), append(classes, class)
			text = "    " + text[end+1:]
		}
		lines, classes = append(lines, text), append(classes, class)
	}
	longest := slices.MaxFunc(lines, func(a, b string) int { return utf8.RuneCountInString(a) - utf8.RuneCountInString(b) })
	width := int(2*margin + column*float64(utf8.RuneCountInString(longest)))
	height := bar + line*len(lines) + margin/2

	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Copyright The Lanyard Authors.\n     SPDX-License-Identifier: Apache-2.0 -->\n")
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="Output of %[3]s">`+"\n", width, height, escape(command))
	fmt.Fprintf(&b, "<style>%s</style>\n", terminalStyle)
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	for i := range 3 {
		fmt.Fprintf(&b, `<circle class="dot" cx="%d" cy="18" r="5"/>`+"\n", margin+5+17*i)
	}
	for i, text := range lines {
		if text != "" {
			fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d" xml:space="preserve">%s</text>`+"\n", classes[i], margin, bar+line*i+14, escape(text))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// classOf returns the class of a line.
func classOf(text string) string {
	switch {
	case strings.HasPrefix(text, "$ "), strings.HasPrefix(text, "── "):
		return "bold"
	case strings.HasPrefix(text, "+ "):
		return "plus"
	case strings.HasPrefix(strings.TrimSpace(text), "-> "):
		return "fix"
	case text == "this pod: without":
		return "bad"
	}
	return "plain"
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder returns no error
	return b.String()
}
