// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package yamledit changes annotations in manifests and leaves every other byte as it
// is: comments, order, quotes and indentation. It reads YAML and JSON.
//
//	yamledit.go  reads the objects of a text
//	edit.go      changes their annotations
//	splice.go    the changes of the text, for an edit and a diff
//
// An edit is checked: the new text is read again, and must differ from the old one in
// the annotations only. A text that cannot be changed in that way is skipped.
package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes limits the values of a text, with those that aliases stand for.
const maxNodes = 1_000_000

// File is a text with the objects of Kubernetes that it has.
type File struct {
	// Objects are those of all documents and lists, in their order.
	Objects []*Object

	text []byte
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
	f := &File{text: text, lines: []int{0}}
	for i, b := range text {
		if b == '\n' {
			f.lines = append(f.lines, i+1)
		}
	}
	r := reader{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return f, nil
		} else if err != nil {
			return nil, err
		}
		if len(document.Content) == 0 {
			continue
		}
		value, err := r.value(document.Content[0])
		if err != nil {
			return nil, err
		}
		f.add(document.Content[0], value)
	}
}

// add adds an object, or those of a list.
func (f *File) add(node *yaml.Node, value any) {
	fields, _ := value.(map[string]any)
	kind, _ := fields["kind"].(string)
	version, _ := fields["apiVersion"].(string)
	if kind == "" || version == "" {
		return
	}
	items, isList := fields["items"].([]any)
	nodes := child(node, "items")
	if !strings.HasSuffix(kind, "List") || !isList || nodes == nil || nodes.Kind != yaml.SequenceNode {
		f.Objects = append(f.Objects, &Object{Fields: fields, node: node})
		return
	}
	for i := range items {
		f.add(nodes.Content[i], items[i])
	}
}

// reader turns nodes into values. It counts them: aliases can stand for very many.
type reader struct{ nodes int }

func (r *reader) value(node *yaml.Node) (any, error) {
	if r.nodes++; r.nodes > maxNodes {
		return nil, fmt.Errorf("line %d: got more than %d values", node.Line, maxNodes)
	}
	switch node.Kind {
	case yaml.AliasNode:
		return r.value(node.Alias)
	case yaml.SequenceNode:
		list := make([]any, 0, len(node.Content))
		for _, element := range node.Content {
			value, err := r.value(element)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	case yaml.MappingNode:
		return r.mapping(node)
	}
	return scalar(node), nil
}

func (r *reader) mapping(node *yaml.Node) (any, error) {
	result, merged := map[string]any{}, map[string]any{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		value, err := r.value(node.Content[i+1])
		if err != nil {
			return nil, err
		}
		if _, found := result[key.Value]; found {
			return nil, fmt.Errorf("line %d: got the key %.100q twice", key.Line, key.Value)
		}
		if key.ShortTag() != "!!merge" {
			result[key.Value] = value
			continue
		}
		if list, isList := value.([]any); isList {
			for _, element := range list {
				merge(merged, element)
			}
		} else {
			merge(merged, value)
		}
	}
	merge(result, merged)
	return result, nil
}

// merge adds the members of a value that are not there.
func merge(into map[string]any, value any) {
	members, _ := value.(map[string]any)
	for key, member := range members {
		if _, found := into[key]; !found {
			into[key] = member
		}
	}
}

// scalar returns the value of a node. What is no type of JSON is a string.
func scalar(node *yaml.Node) any {
	switch node.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		if value, err := strconv.ParseBool(strings.ToLower(node.Value)); err == nil {
			return value
		}
	case "!!int":
		if value, err := strconv.ParseInt(node.Value, 0, 64); err == nil {
			return value
		}
	case "!!float":
		if value, err := strconv.ParseFloat(node.Value, 64); err == nil {
			return value
		}
	}
	return node.Value
}

// child returns the value of a member, nil for none.
func child(node *yaml.Node, name string) *yaml.Node {
	_, value := member(node, name)
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
