// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Edit changes annotations of an object.
type Edit struct {
	Object *Object
	// Path is where the metadata with the annotations is: empty for the object's own,
	// spec, template for that of a Deployment's pods.
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
	// Skipped are the edits that cannot be made without changing the format, by their
	// index, with the reason.
	Skipped map[int]error
}

// errFormat is why an edit is skipped.
var errFormat = errors.New("its format cannot be kept")

// Edit changes the annotations. name is that of the file in the diff.
func (f *File) Edit(name string, edits []Edit) *Result {
	result := &Result{Text: f.text, Skipped: map[int]error{}}
	planned := map[int][]splice{}
	var all []int
	for i := range edits {
		found, err := f.edit(&edits[i])
		if err != nil {
			result.Skipped[i] = err
			continue
		}
		planned[i], all = found, append(all, i)
	}
	accepted := f.accept(edits, planned, all)
	for _, i := range all {
		if !slices.Contains(accepted, i) {
			result.Skipped[i] = errFormat
		}
	}
	if splices := join(planned, accepted); len(splices) > 0 {
		sorted(splices)
		result.Text, result.Diff = apply(f.text, 0, len(f.text), splices), f.diff(name, splices)
	}
	return result
}

// accept returns the edits that can be made together. It looks for those that cannot by
// halves, so that a long file is not read again for each of its objects.
func (f *File) accept(edits []Edit, planned map[int][]splice, some []int) []int {
	if len(some) == 0 || f.correct(edits, some, join(planned, some)) {
		return some
	}
	if len(some) == 1 {
		return nil
	}
	half := len(some) / 2
	both := slices.Concat(f.accept(edits, planned, some[:half]), f.accept(edits, planned, some[half:]))
	if len(both) == len(some) { // each half can be made, but not both
		return both[:half]
	}
	return both
}

// join returns the splices of some edits.
func join(planned map[int][]splice, some []int) []splice {
	var splices []splice
	for _, i := range some {
		splices = append(splices, planned[i]...)
	}
	return splices
}

// correct reports whether the splices make some of the edits and nothing else.
func (f *File) correct(edits []Edit, some []int, splices []splice) bool {
	if sorted(splices) {
		return false
	}
	after, err := Parse(apply(f.text, 0, len(f.text), splices))
	if err != nil || len(after.Objects) != len(f.Objects) {
		return false
	}
	for i, object := range f.Objects {
		got, err := json.Marshal(after.Objects[i].Fields)
		if err != nil {
			return false
		}
		want, err := json.Marshal(object.Fields)
		if err != nil {
			return false
		}
		for _, j := range some {
			if edits[j].Object == object {
				if want, err = edits[j].expected(want); err != nil {
					return false
				}
			}
		}
		if !equalJSON(got, want) {
			return false
		}
	}
	return true
}

func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// expected returns the object of JSON after the edit. Annotations that become empty may
// be there or not: they are removed.
func (e *Edit) expected(object []byte) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	parent := fields
	for _, name := range append(slices.Clone(e.Path), "metadata") {
		next, ok := parent[name].(map[string]any)
		if !ok {
			return nil, errFormat
		}
		parent = next
	}
	values, _ := parent["annotations"].(map[string]any)
	if values == nil {
		values = map[string]any{}
	}
	for _, key := range e.Remove {
		delete(values, key)
	}
	for key, value := range e.Set {
		values[key] = value
	}
	if parent["annotations"] = values; len(values) == 0 {
		delete(parent, "annotations")
	}
	return json.Marshal(fields)
}

// edit returns the splices of one edit.
func (f *File) edit(e *Edit) ([]splice, error) {
	metadata := e.Object.node
	for _, name := range append(slices.Clone(e.Path), "metadata") {
		if metadata = child(metadata, name); metadata == nil {
			return nil, errFormat
		}
	}
	if metadata.Kind != yaml.MappingNode || len(metadata.Content) == 0 {
		return nil, errFormat
	}
	key, values := member(metadata, "annotations")
	switch {
	case values == nil:
		return f.addMember(metadata, e.Set)
	case values.Kind == yaml.ScalarNode && values.ShortTag() == "!!null" && values.Value == "":
		return []splice{f.insertAfter(key.Line, f.block(key.Column-1+indent, e.Set))}, nil
	case values.Kind != yaml.MappingNode:
		return nil, errFormat
	case len(values.Content) == 0:
		return f.fillEmpty(key, values, e.Set)
	case values.Style&yaml.FlowStyle != 0:
		return f.editFlow(values, e)
	}
	return f.editBlock(metadata, key, values, e)
}

// indent is how far the members of new annotations are indented.
const indent = 2

// newline is the end of the lines of the file.
func (f *File) newline() string {
	if bytes.Contains(f.text, []byte("\r\n")) {
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
	text, err := yaml.Marshal(value)
	if line := strings.TrimSuffix(string(text), "\n"); err == nil && !strings.Contains(line, "\n") {
		return line
	}
	return quoted(value)
}

// quoted returns a string as JSON writes it, which YAML reads, too.
func quoted(value string) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // a string can always be encoded
	return strings.TrimSuffix(text.String(), "\n")
}

// offset returns where a node starts.
func (f *File) offset(node *yaml.Node) int {
	at := f.lineStart(node.Line - 1)
	for range node.Column - 1 {
		_, size := utf8.DecodeRune(f.text[at:])
		at += size
	}
	return at
}

// insertAfter inserts whole lines after a line, counted from 1.
func (f *File) insertAfter(line int, lines string) splice {
	at := f.lineStart(line)
	if at == len(f.text) && !bytes.HasSuffix(f.text, []byte("\n")) {
		return splice{at, at, f.newline() + strings.TrimSuffix(lines, f.newline())}
	}
	return splice{at, at, lines}
}

// isLine reports whether a member of a block is one line of its own.
func (f *File) isLine(key, value *yaml.Node) bool {
	if key.Line != value.Line || value.Kind != yaml.ScalarNode {
		return false
	}
	line := f.text[f.offset(key):f.lineStart(key.Line)]
	var read map[string]yaml.Node
	if yaml.Unmarshal(line, &read) != nil || len(read) != 1 {
		return false
	}
	got, found := read[key.Value]
	return found && got.Value == value.Value
}

// addMember adds the annotations to metadata without any.
func (f *File) addMember(metadata *yaml.Node, set map[string]string) ([]splice, error) {
	if len(set) == 0 {
		return nil, errFormat
	}
	first := metadata.Content[0]
	if metadata.Style&yaml.FlowStyle != 0 {
		var members []string
		for _, key := range slices.Sorted(maps.Keys(set)) {
			members = append(members, quoted(key)+": "+quoted(set[key]))
		}
		name := "annotations"
		if first.Style&yaml.DoubleQuotedStyle != 0 {
			name = quoted(name)
		}
		if first.Line == metadata.Line {
			at := f.offset(first)
			return []splice{{at, at, name + ": {" + strings.Join(members, ", ") + "}, "}}, nil
		}
		outer := strings.Repeat(" ", first.Column-1)
		inner := f.newline() + outer + strings.Repeat(" ", indent)
		at := f.lineStart(first.Line - 1)
		return []splice{{at, at, outer + name + ": {" + inner + strings.Join(members, ","+inner) + f.newline() + outer + "}," + f.newline()}}, nil
	}
	lines := strings.Repeat(" ", first.Column-1) + "annotations:" + f.newline() + f.block(first.Column-1+indent, set)
	for i := 0; i+1 < len(metadata.Content); i += 2 {
		if f.isLine(metadata.Content[i], metadata.Content[i+1]) {
			return []splice{f.insertAfter(metadata.Content[i].Line, lines)}, nil
		}
	}
	at := f.lineStart(first.Line - 1)
	return []splice{{at, at, lines}}, nil
}

// fillEmpty replaces {} by annotations.
func (f *File) fillEmpty(key, values *yaml.Node, set map[string]string) ([]splice, error) {
	start := f.offset(values)
	end := bytes.IndexByte(f.text[start:], '}')
	if end < 0 || f.text[start] != '{' {
		return nil, errFormat
	}
	end += start + 1
	if key.Style&yaml.DoubleQuotedStyle != 0 { // of JSON
		var members []string
		for _, name := range slices.Sorted(maps.Keys(set)) {
			members = append(members, quoted(name)+": "+quoted(set[name]))
		}
		return []splice{{start, end, "{" + strings.Join(members, ", ") + "}"}}, nil
	}
	start = len(bytes.TrimRight(f.text[:start], " "))
	return []splice{{start, end, f.newline() + strings.TrimSuffix(f.block(key.Column-1+indent, set), f.newline())}}, nil
}

// editBlock changes annotations of which each has lines of its own.
func (f *File) editBlock(metadata, key, values *yaml.Node, e *Edit) ([]splice, error) {
	var splices []splice
	left, last := len(values.Content)/2, 0
	add := maps.Clone(e.Set)
	for i := 0; i+1 < len(values.Content); i += 2 {
		name, value := values.Content[i], values.Content[i+1]
		line := f.isLine(name, value)
		if line {
			last = name.Line
		}
		text, changed := e.Set[name.Value]
		removed := slices.Contains(e.Remove, name.Value)
		switch {
		case (changed || removed) && !line:
			return nil, fmt.Errorf("%w: %s has more than one line", errFormat, name.Value)
		case changed:
			delete(add, name.Value)
			rest := f.text[f.offset(name):f.lineStart(name.Line)]
			if bytes.Contains(rest, []byte(" #")) {
				return nil, fmt.Errorf("%w: the line of %s has a comment", errFormat, name.Value)
			}
			end := len(bytes.TrimRight(rest, "\r\n"))
			splices = append(splices, splice{f.offset(name), f.offset(name) + end, plain(name.Value) + ": " + plain(text)})
		case removed:
			left--
			splices = append(splices, splice{f.lineStart(name.Line - 1), f.lineStart(name.Line), ""})
		}
	}
	switch {
	case len(add) > 0 && last > 0:
		splices = append(splices, f.insertAfter(last, f.block(values.Content[0].Column-1, add)))
	case len(add) > 0:
		at := f.lineStart(values.Content[0].Line - 1)
		splices = append(splices, splice{at, at, f.block(values.Content[0].Column-1, add)})
	case left == 0:
		header := strings.TrimSpace(string(f.text[f.offset(key):f.lineStart(key.Line)]))
		if header != "annotations:" || len(metadata.Content) == 2 {
			return nil, errFormat
		}
		start := f.lineStart(key.Line - 1)
		return []splice{{start, f.lineStart(last), ""}}, nil
	}
	return splices, nil
}

// editFlow changes annotations in braces.
func (f *File) editFlow(values *yaml.Node, e *Edit) ([]splice, error) {
	first := values.Content[0]
	var splices []splice
	var members []string
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		if child(values, name) != nil {
			return nil, fmt.Errorf("%w: %s has another value", errFormat, name)
		}
		members = append(members, quoted(name)+": "+quoted(e.Set[name]))
	}
	if len(members) > 0 {
		at, between := f.offset(first), ", "
		if first.Line != values.Line {
			between = "," + f.newline() + strings.Repeat(" ", first.Column-1)
		}
		splices = append(splices, splice{at, at, strings.Join(members, between) + between})
	}
	for i := 0; i+1 < len(values.Content); i += 2 {
		if !slices.Contains(e.Remove, values.Content[i].Value) {
			continue
		}
		if i+2 == len(values.Content) {
			return nil, fmt.Errorf("%w: %s is the last one in braces", errFormat, values.Content[i].Value)
		}
		splices = append(splices, splice{f.offset(values.Content[i]), f.offset(values.Content[i+2]), ""})
	}
	return splices, nil
}
