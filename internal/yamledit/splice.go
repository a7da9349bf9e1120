// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// splice replaces text[start:end].
type splice struct {
	start, end int
	text       string
}

// hunk replaces the lines from..to of the old text.
type hunk struct {
	from, to int
	lines    []string
}

// apply returns text[start:end] with the splices, which are sorted and do not overlap.
func apply(text []byte, start, end int, splices []splice) []byte {
	var result bytes.Buffer
	at := start
	for _, s := range splices {
		result.Write(text[at:s.start])
		result.WriteString(s.text)
		at = s.end
	}
	result.Write(text[at:end])
	return result.Bytes()
}

// sorted sorts splices and reports whether two of them overlap.
func sorted(splices []splice) (overlap bool) {
	slices.SortStableFunc(splices, func(a, b splice) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	for i := 1; i < len(splices); i++ {
		if splices[i].start < splices[i-1].end {
			return true
		}
	}
	return false
}

// lineAt returns the number of the line with the offset, from 0.
func (f *File) lineAt(offset int) int {
	i, found := slices.BinarySearch(f.lines, offset)
	if !found {
		i--
	}
	return i
}

// lineStart returns the offset of a line; the end of the text for the one after the
// last.
func (f *File) lineStart(line int) int {
	if line >= len(f.lines) {
		return len(f.text)
	}
	return f.lines[line]
}

// hunks returns the splices as replaced lines.
func (f *File) hunks(splices []splice) []hunk {
	var result []hunk
	for i := 0; i < len(splices); {
		from, to := f.span(&splices[i])
		n := i + 1
		for ; n < len(splices); n++ {
			next, end := f.span(&splices[n])
			if next > to || next == to && from != to && next != end {
				break
			}
			to = max(to, end)
		}
		replaced := apply(f.text, f.lineStart(from), f.lineStart(to), splices[i:n])
		h := hunk{from: from, to: to}
		if len(replaced) > 0 {
			h.lines = strings.SplitAfter(strings.TrimSuffix(string(replaced), "\n"), "\n")
			if bytes.HasSuffix(replaced, []byte("\n")) {
				h.lines[len(h.lines)-1] += "\n"
			}
		}
		result = append(result, h)
		i = n
	}
	return result
}

// span returns the lines that a splice touches. An inserted or removed line touches no
// other.
func (f *File) span(s *splice) (from, to int) {
	from, to = f.lineAt(s.start), f.lineAt(s.end)
	wholeLines := s.text == "" && s.end > s.start || strings.HasSuffix(s.text, "\n")
	if !wholeLines || f.lineStart(from) != s.start || f.lineStart(to) != s.end {
		to++
	}
	return from, to
}

// context is how many lines a diff shows around a change.
const context = 3

// diff returns the splices as a unified diff, which git apply and patch -p1 accept.
func (f *File) diff(name string, splices []splice) string {
	hunks := f.hunks(splices)
	if len(hunks) == 0 {
		return ""
	}
	name = strings.TrimPrefix(name, "/")
	var out strings.Builder
	fmt.Fprintf(&out, "--- a/%s\n+++ b/%s\n", name, name)
	total := len(f.lines)
	if f.lineStart(total-1) == len(f.text) {
		total-- // there is no line behind the last newline
	}
	shift := 0 // how many lines the hunks before have added
	for i := 0; i < len(hunks); {
		n := i + 1
		for n < len(hunks) && hunks[n].from-hunks[n-1].to <= 2*context {
			n++
		}
		from, to := max(hunks[i].from-context, 0), min(hunks[n-1].to+context, total)
		var body strings.Builder
		at, added := from, 0
		for _, h := range hunks[i:n] {
			f.write(&body, " ", at, h.from)
			f.write(&body, "-", h.from, h.to)
			for _, line := range h.lines {
				body.WriteString("+" + complete(line))
			}
			added += len(h.lines) - (h.to - h.from)
			at = h.to
		}
		f.write(&body, " ", at, to)
		fmt.Fprintf(&out, "@@ -%s +%s @@\n%s", extent(from, to-from), extent(from+shift, to-from+added), body.String())
		shift += added
		i = n
	}
	return out.String()
}

// extent returns the first line and the number of lines as a diff has them.
func extent(from, count int) string {
	if count > 0 {
		from++
	}
	return fmt.Sprintf("%d,%d", from, count)
}

// write writes lines of the old text with a mark.
func (f *File) write(out *strings.Builder, mark string, from, to int) {
	for line := from; line < to; line++ {
		out.WriteString(mark + complete(string(f.text[f.lineStart(line):f.lineStart(line+1)])))
	}
}

// complete returns a line with its end, or says that it has none.
func complete(line string) string {
	if strings.HasSuffix(line, "\n") {
		return line
	}
	return line + "\n\\ No newline at end of file\n"
}
