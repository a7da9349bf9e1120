// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/lanyard-dev/lanyard/internal/peer"
)

// Manifest is a file with objects in YAML or JSON.
type Manifest struct {
	Name string
	// Objects are the objects that matter.
	Objects []*Object

	text string
	// lines are the lines of the text, each with the newline of the file, also the last.
	lines   []string
	newline string
	// documents are the contents of all documents with objects.
	documents []any
}

// ReadManifest reads a file. Documents that are not objects of Kubernetes are left out.
func ReadManifest(name string, text []byte) (*Manifest, error) {
	m := &Manifest{Name: name, text: string(text), newline: "\n"}
	if strings.Contains(m.text, "\r\n") {
		m.newline = "\r\n"
	}
	m.lines = slices.Collect(strings.Lines(m.text))
	if last := len(m.lines) - 1; last >= 0 && !strings.HasSuffix(m.text, "\n") {
		m.lines[last] += m.newline
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err == nil {
			err = m.addDocument(&document)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
}

// addDocument adds the objects of a document.
func (m *Manifest) addDocument(document *yaml.Node) error {
	var value any
	if err := document.Decode(&value); err != nil {
		return err
	}
	if fields, ok := value.(map[string]any); !ok || fields["kind"] == nil {
		return nil
	}
	text, err := json.Marshal(value) // so that all numbers have the types that JSON has
	if err = cmp.Or(err, utiljson.Unmarshal(text, &value)); err != nil {
		return err
	}
	m.documents = append(m.documents, value)
	return m.add(document.Content[0], value)
}

// add adds an object, or the objects of a list.
func (m *Manifest) add(node *yaml.Node, value any) error {
	fields, _ := value.(map[string]any)
	u := &unstructured.Unstructured{Object: fields}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return nil
	}
	items, isList := fields["items"].([]any)
	if _, nodes := member(node, "items"); isList && strings.HasSuffix(u.GetKind(), "List") && nodes != nil && nodes.Kind == yaml.SequenceNode {
		for i, item := range items {
			if err := m.add(nodes.Content[i], item); err != nil {
				return err
			}
		}
		return nil
	}
	o, err := Read(u)
	if o != nil {
		o.Source, o.node, o.fields = m.Name, node, fields
		m.Objects = append(m.Objects, o)
	}
	return err
}

// member returns the key and the value of a member, nil for none.
func member(node *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; node.Kind == yaml.MappingNode && i < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}

// Rewrite makes the changes of the plan in a manifest, once. It returns the new text and a
// unified diff, which is empty if nothing changes. It inserts, replaces and removes whole
// lines of YAML in block style, so that every other byte stays. Any other change becomes
// an item to do by hand. The new text is read again, and must differ from the previous
// text in the annotations only.
func (p *Plan) Rewrite(m *Manifest) (text, diff string) {
	lines := slices.Clone(m.lines)
	var done []*Change
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Object.Source != m.Name {
			continue
		}
		changed, err := m.edit(c)
		if err != nil {
			p.skipped(c, err)
			continue
		}
		for line, text := range changed {
			if line <= len(lines) {
				lines[line-1] = text
			}
		}
		done = append(done, c)
	}
	text = strings.Join(lines, "")
	if !strings.HasSuffix(m.text, "\n") {
		text = strings.TrimSuffix(text, m.newline)
	}
	err := m.check(text, done)
	if err == nil {
		name := strings.TrimPrefix(m.Name, "/")
		diff, err = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: diffLines(m.text), B: diffLines(text), FromFile: "a/" + name, ToFile: "b/" + name, Context: 3,
		})
	}
	if err == nil {
		return text, diff
	}
	for _, c := range done {
		p.skipped(c, fmt.Errorf("the file cannot be changed line by line: %w", err))
	}
	return m.text, ""
}

// diffLines returns the lines of a text as a diff has them.
func diffLines(text string) []string {
	lines := slices.Collect(strings.Lines(text))
	if last := len(lines) - 1; last >= 0 && !strings.HasSuffix(text, "\n") {
		lines[last] += "\n\\ No newline at end of file\n"
	}
	return lines
}

// check returns an error if the new text has anything but the changes.
func (m *Manifest) check(text string, changes []*Change) error {
	after, err := ReadManifest(m.Name, []byte(text))
	if err != nil {
		return err
	}
	for _, c := range changes {
		metadata := c.Object.fields
		for _, name := range c.Path {
			metadata, _ = metadata[name].(map[string]any)
		}
		u := unstructured.Unstructured{Object: metadata}
		values := map[string]string{}
		maps.Copy(values, u.GetAnnotations())
		maps.Copy(values, c.Set)
		maps.DeleteFunc(values, func(key, _ string) bool { return slices.Contains(c.Remove, key) })
		if unstructured.RemoveNestedField(metadata, "metadata", "annotations"); len(values) > 0 {
			u.SetAnnotations(values)
		}
	}
	if !reflect.DeepEqual(m.documents, after.documents) {
		return fmt.Errorf("got %d objects that differ in more than their annotations", len(after.Objects))
	}
	return nil
}

// byHand is the error for a node that is not in block style.
func byHand(node *yaml.Node, why string) error {
	return fmt.Errorf("line %d: %s", node.Line, why)
}

// edit returns the new texts of the lines that a change changes.
func (m *Manifest) edit(c *Change) (map[int]string, error) {
	metadata := c.Object.node
	for _, name := range append(slices.Clone(c.Path), "metadata") {
		_, value := member(metadata, name)
		if value == nil {
			return nil, byHand(metadata, "got no "+name)
		}
		if !isBlock(value) {
			return nil, byHand(value, name+" is not in block style")
		}
		metadata = value
	}
	key, values := member(metadata, "annotations")
	switch {
	case key == nil:
		columns, after := metadata.Content[0].Column-1, 0
		for i := 0; i < len(metadata.Content) && after == 0; i += 2 {
			after = m.lineOf(metadata.Content[i], metadata.Content[i+1])
		}
		after = cmp.Or(after, metadata.Content[0].Line-1)
		lines := strings.Repeat(" ", columns) + "annotations:" + m.newline + m.block(columns+indent, c.Set)
		return map[int]string{after: m.line(after) + lines}, nil
	case values.Tag == "!!null" && values.Value == "":
		return map[int]string{key.Line: m.line(key.Line) + m.block(key.Column-1+indent, c.Set)}, nil
	case !isBlock(values):
		return nil, byHand(key, "annotations are not in block style")
	}
	return m.editBlock(metadata, key, values, c)
}

// editBlock changes annotations of which each has lines of its own.
func (m *Manifest) editBlock(metadata, key, values *yaml.Node, c *Change) (map[int]string, error) {
	changed, add := map[int]string{}, maps.Clone(c.Set)
	left, last, columns := len(values.Content)/2, values.Content[0].Line-1, values.Content[0].Column-1
	for i := 0; i < len(values.Content); i += 2 {
		name := values.Content[i]
		line := m.lineOf(name, values.Content[i+1])
		last = max(last, line)
		value, set := c.Set[name.Value]
		switch {
		case !set && !slices.Contains(c.Remove, name.Value):
			continue
		case line == 0:
			return nil, byHand(name, name.Value+" has more than one line")
		case set && strings.Contains(m.line(line), " #"):
			return nil, byHand(name, "the line of "+name.Value+" has a comment")
		case set:
			changed[line] = m.block(columns, map[string]string{name.Value: value})
			delete(add, name.Value)
		default:
			changed[line] = ""
			left--
		}
	}
	switch {
	case len(add) > 0:
		if _, found := changed[last]; !found {
			changed[last] = m.line(last)
		}
		changed[last] += m.block(columns, add)
	case left == 0 && len(metadata.Content) == 2:
		return nil, byHand(key, "metadata would be empty")
	case left == 0:
		for line := key.Line; line <= last; line++ {
			changed[line] = ""
		}
	}
	return changed, nil
}

// indent is how far the members of new annotations are indented.
const indent = 2

// isBlock reports whether a node has members in block style, and does not stand for
// others.
func isBlock(node *yaml.Node) bool {
	return node.Kind == yaml.MappingNode && node.Style&yaml.FlowStyle == 0 && node.Anchor == ""
}

// line returns a line. YAML counts more characters as ends of lines: then it is another
// line, and the check of the new text fails.
func (m *Manifest) line(line int) string { return m.lines[min(line, len(m.lines))-1] }

// lineOf returns the line of a member of a block that has one line of its own, else 0.
func (m *Manifest) lineOf(key, value *yaml.Node) int {
	var read map[string]string
	err := yaml.Unmarshal([]byte(m.line(key.Line)), &read)
	if err == nil && value.Kind == yaml.ScalarNode && maps.Equal(read, map[string]string{key.Value: value.Value}) {
		return key.Line
	}
	return 0
}

// block returns the lines of annotations, sorted.
func (m *Manifest) block(columns int, set map[string]string) string {
	text, err := yaml.Marshal(set)
	if err != nil {
		panic(err) // a map of texts can be encoded
	}
	start := strings.Repeat(" ", columns)
	return start + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", m.newline+start) + m.newline
}

// skipped turns the translated items of an object into something to do by hand.
func (p *Plan) skipped(c *Change, err error) {
	o := c.Object
	todo := Item{Object: o.Reference(), Namespace: o.Namespace, Source: o.Source, Found: "its manifest", Result: peer.Manual}
	for i := range p.Items {
		item := &p.Items[i]
		isIts := item.Object == todo.Object && item.Namespace == todo.Namespace && item.Source == todo.Source
		if isIts && item.Result == peer.Translated {
			item.Result, item.Why = peer.Manual, strings.TrimSpace("Its manifest must be edited by hand. "+item.Why)
		}
	}
	todo.Why = fmt.Sprintf("Edit %s by hand: %v.", o.Source, err)
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		todo.Why += fmt.Sprintf(" Set %s: %q.", key, c.Set[key])
	}
	if len(c.Remove) > 0 {
		todo.Why += " Remove " + strings.Join(c.Remove, ", ") + "."
	}
	p.Items = append(p.Items, todo)
}
