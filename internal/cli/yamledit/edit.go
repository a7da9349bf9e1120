// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"go.yaml.in/yaml/v3"
)

// Edit changes annotations of an object.
type Edit struct {
	Object *Object
	// Path is where the metadata with the annotations is: empty for the object's own,
	// spec, template for the metadata of a Deployment's pods.
	Path []string
	// Set has annotations to add, or to give another value.
	Set map[string]string
	// Remove lists annotations to remove.
	Remove []string
}

// Result is a changed text.
type Result struct {
	// Text is the new text.
	Text []byte
	// Diff is a unified diff, empty if nothing changes.
	Diff string
	// Skipped are the edits that the user must make, by their index, with the reason.
	Skipped map[int]error
}

// Edit changes the annotations. name is the name of the file in the diff.
func (f *File) Edit(name string, edits []Edit) *Result {
	result := &Result{Text: []byte(f.text), Skipped: map[int]error{}}
	var all []udiff.Edit
	for i := range edits {
		found, err := f.edit(&edits[i])
		if err != nil {
			result.Skipped[i] = err
			continue
		}
		all = append(all, found...)
	}
	name = strings.TrimPrefix(name, "/")
	text, err := udiff.Apply(f.text, all)
	if err == nil {
		err = f.check(text, edits, result.Skipped)
	}
	if err == nil {
		result.Diff, err = udiff.ToUnified("a/"+name, "b/"+name, f.text, all, udiff.DefaultContextLines)
	}
	if err != nil {
		for i := range edits {
			result.Skipped[i] = fmt.Errorf("the file cannot be changed line by line: %w", err)
		}
		return result
	}
	result.Diff = renumber(result.Diff)
	result.Text = []byte(text)
	return result
}

// hunkHeader matches the header of a hunk: its first line and number of lines, before and
// after.
var hunkHeader = regexp.MustCompile(`(?m)^@@ -(\d+)((?:,\d+)?) \+\d+((?:,\d+)?) @@`)

// renumber mends the second line numbers of a diff. The library forgets the equal lines
// between two edits of one hunk.
func renumber(diff string) string {
	count := func(text string) int {
		if n, err := strconv.Atoi(strings.TrimPrefix(text, ",")); err == nil {
			return n
		}
		return 1
	}
	shift := 0
	return hunkHeader.ReplaceAllStringFunc(diff, func(header string) string {
		m := hunkHeader.FindStringSubmatch(header)
		start := count(m[1]) + shift
		shift += count(m[3]) - count(m[2])
		return fmt.Sprintf("@@ -%s%s +%d%s @@", m[1], m[2], start, m[3])
	})
}

// check returns an error if the new text has anything but the edits that are not skipped.
func (f *File) check(text string, edits []Edit, skipped map[int]error) error {
	after, err := Parse([]byte(text))
	if err != nil {
		return err
	}
	want, err := Parse([]byte(f.text))
	if err != nil {
		return err
	}
	for i := range edits {
		if skipped[i] == nil {
			edits[i].apply(want.Objects[slices.Index(f.Objects, edits[i].Object)].Fields)
		}
	}
	same := func(a, b *Object) bool { return reflect.DeepEqual(a.Fields, b.Fields) }
	if !slices.EqualFunc(want.Objects, after.Objects, same) {
		return fmt.Errorf("got %d objects that differ in more than their annotations", len(after.Objects))
	}
	return nil
}

// apply makes the edit in the fields of its object.
func (e *Edit) apply(fields map[string]any) {
	for _, name := range append(slices.Clone(e.Path), "metadata") {
		fields, _ = fields[name].(map[string]any)
	}
	values, _ := fields["annotations"].(map[string]any)
	if values == nil {
		values = map[string]any{}
	}
	for _, key := range e.Remove {
		delete(values, key)
	}
	for key, value := range e.Set {
		values[key] = value
	}
	if fields["annotations"] = values; len(values) == 0 {
		delete(fields, "annotations")
	}
}

// byHand is the error for a node that is not in block style.
func byHand(node *yaml.Node, why string) error {
	return fmt.Errorf("line %d: %s", node.Line, why)
}

// edit returns the changed lines of one edit.
func (f *File) edit(e *Edit) ([]udiff.Edit, error) {
	metadata := e.Object.node
	for _, name := range append(slices.Clone(e.Path), "metadata") {
		key, value := member(metadata, name)
		if value == nil {
			return nil, byHand(metadata, "got no "+name)
		}
		if !isBlock(value) || key.Line == value.Line {
			return nil, byHand(value, name+" is not in block style")
		}
		metadata = value
	}
	key, values := member(metadata, "annotations")
	if key == nil {
		first := metadata.Content[0]
		lines := strings.Repeat(" ", first.Column-1) + "annotations:" + f.newline() + f.block(first.Column-1+indent, e.Set)
		for i := 0; i+1 < len(metadata.Content); i += 2 {
			if f.isLine(metadata.Content[i], metadata.Content[i+1]) {
				return []udiff.Edit{f.insert(metadata.Content[i].Line, lines)}, nil
			}
		}
		return []udiff.Edit{f.insert(first.Line-1, lines)}, nil
	}
	switch line := strings.TrimSpace(f.line(key.Line)); {
	case line == "annotations:" && len(values.Content) == 0:
		return []udiff.Edit{f.insert(key.Line, f.block(key.Column-1+indent, e.Set))}, nil
	case line != "annotations:" && !strings.HasPrefix(line, "annotations: #") || !isBlock(values):
		return nil, byHand(key, "annotations are not in block style")
	}
	return f.editBlock(metadata, key, values, e)
}

// isBlock reports whether a node has members in block style, and does not stand for
// others.
func isBlock(node *yaml.Node) bool {
	return node.Kind == yaml.MappingNode && node.Style&yaml.FlowStyle == 0 && node.Anchor == "" && len(node.Content) > 0
}

// editBlock changes annotations of which each has lines of its own.
func (f *File) editBlock(metadata, key, values *yaml.Node, e *Edit) ([]udiff.Edit, error) {
	var edits []udiff.Edit
	left, last := len(values.Content)/2, values.Content[0].Line-1
	columns := values.Content[0].Column - 1
	add := maps.Clone(e.Set)
	for i := 0; i+1 < len(values.Content); i += 2 {
		name, value := values.Content[i], values.Content[i+1]
		isLine := f.isLine(name, value)
		if isLine {
			last = name.Line
		}
		text, changed := e.Set[name.Value]
		removed := slices.Contains(e.Remove, name.Value)
		switch {
		case !changed && !removed:
			continue
		case !isLine:
			return nil, byHand(name, name.Value+" has more than one line")
		case changed && strings.Contains(f.line(name.Line), " #"):
			return nil, byHand(name, "the line of "+name.Value+" has a comment")
		case changed:
			delete(add, name.Value)
			text = f.block(columns, map[string]string{name.Value: text})
		default:
			left--
		}
		edits = append(edits, f.replace(name.Line, text))
	}
	if len(add) > 0 {
		return append(edits, f.insert(last, f.block(columns, add))), nil
	}
	if left == 0 && len(metadata.Content) == 2 {
		return nil, byHand(key, "metadata would be empty")
	}
	if left == 0 {
		return []udiff.Edit{{Start: f.offset(key.Line), End: f.offset(last + 1)}}, nil
	}
	return edits, nil
}

// indent is how far the members of new annotations are indented.
const indent = 2

// offset returns where a line starts, counted from 1; the end of the text for the one
// after the last.
func (f *File) offset(line int) int {
	if line > len(f.lines) {
		return len(f.text)
	}
	return f.lines[line-1]
}

func (f *File) line(line int) string { return f.text[f.offset(line):f.offset(line+1)] }

// replace replaces a line by another line, or by nothing.
func (f *File) replace(line int, text string) udiff.Edit {
	if !strings.HasSuffix(f.line(line), "\n") {
		text = strings.TrimSuffix(text, f.newline())
	}
	return udiff.Edit{Start: f.offset(line), End: f.offset(line + 1), New: text}
}

// insert inserts whole lines after a line.
func (f *File) insert(line int, lines string) udiff.Edit {
	at := f.offset(line + 1)
	if at == len(f.text) && !strings.HasSuffix(f.text, "\n") {
		lines = f.newline() + strings.TrimSuffix(lines, f.newline())
	}
	return udiff.Edit{Start: at, End: at, New: lines}
}

// newline is the end of the lines of the file.
func (f *File) newline() string {
	if strings.Contains(f.text, "\r\n") {
		return "\r\n"
	}
	return "\n"
}

// block returns the lines of annotations, sorted.
func (f *File) block(columns int, set map[string]string) string {
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(set)) {
		lines.WriteString(strings.Repeat(" ", columns) + plain(key) + ": " + plain(set[key]) + f.newline())
	}
	return lines.String()
}

// plain returns a string as YAML writes it in one line.
func plain(value string) string {
	node := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	if strings.ContainsAny(value, "\n\r\u2028\u2029\u0085") {
		node.Style = yaml.DoubleQuotedStyle
	}
	text, err := yaml.Marshal(&node)
	if err != nil {
		return fmt.Sprintf("%q", value)
	}
	return strings.TrimSuffix(string(text), "\n")
}

// isLine reports whether a member of a block is one line of its own.
func (f *File) isLine(key, value *yaml.Node) bool {
	if key.Line != value.Line || value.Kind != yaml.ScalarNode {
		return false
	}
	var read map[string]yaml.Node
	if yaml.Unmarshal([]byte(f.line(key.Line)), &read) != nil || len(read) != 1 {
		return false
	}
	got, found := read[key.Value]
	return found && got.Value == value.Value
}
