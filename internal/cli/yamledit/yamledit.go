// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package yamledit changes annotations in manifests and leaves every other byte as it
// is: comments, order, quotes and indentation. It inserts, replaces and removes whole
// lines of YAML in block style. Another style, such as JSON, is left to the user.
//
//	yamledit.go  reads the objects of a text
//	edit.go      changes their annotations
//
// An edit is checked: the new text is read again, and must differ from the old one in
// the annotations only.
package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is a text with its Kubernetes objects.
type File struct {
	// Objects are the objects of all documents and lists, in their order.
	Objects []*Object

	text string
	// lines are the offsets at which the lines start.
	lines []int
}

// Object is an object of a file.
type Object struct {
	// Fields is the object as JSON has it. Callers must not change it.
	Fields map[string]any

	node *yaml.Node
}

// Parse reads a text. Documents that are not objects of Kubernetes are left out.
func Parse(text []byte) (*File, error) {
	f := &File{text: string(text), lines: []int{0}}
	for i, b := range text {
		if b == '\n' {
			f.lines = append(f.lines, i+1)
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return f, nil
		} else if err != nil {
			return nil, err
		}
		var value any
		if err := document.Decode(&value); err != nil {
			return nil, err
		}
		if len(document.Content) > 0 {
			f.add(document.Content[0], ofJSON(value))
		}
	}
}

// add adds an object, or the objects of a list.
func (f *File) add(node *yaml.Node, value any) {
	fields, _ := value.(map[string]any)
	kind, _ := fields["kind"].(string)
	version, _ := fields["apiVersion"].(string)
	if kind == "" || version == "" {
		return
	}
	items, isList := fields["items"].([]any)
	_, nodes := member(node, "items")
	if !strings.HasSuffix(kind, "List") || !isList || nodes == nil || nodes.Kind != yaml.SequenceNode {
		f.Objects = append(f.Objects, &Object{Fields: fields, node: node})
		return
	}
	for i := range items {
		f.add(nodes.Content[i], items[i])
	}
}

// ofJSON returns a value with the types that JSON has.
func ofJSON(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = ofJSON(v[key])
		}
	case map[any]any:
		members := map[string]any{}
		for key := range v {
			members[fmt.Sprint(key)] = ofJSON(v[key])
		}
		return members
	case []any:
		for i := range v {
			v[i] = ofJSON(v[i])
		}
	case int:
		return int64(v)
	case uint64:
		return float64(v)
	case fmt.Stringer: // a time
		return v.String()
	}
	return value
}

// member returns the key and the value of a member, nil for none.
func member(node *yaml.Node, name string) (key, value *yaml.Node) {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}
