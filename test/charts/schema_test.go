// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// schemaFile is the file of the chart that generateSchema returns.
const schemaFile = "values.schema.json"

// generateSchema returns values.schema.json with the description of each value from its comment in
// values.yaml. The rest of the schema is written by hand.
func generateSchema() (string, error) {
	values, err := readNode(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		return "", err
	}
	// JSON is YAML, and the nodes of YAML keep the order of keys.
	schema, err := readNode(filepath.Join(chartDir, schemaFile))
	if err != nil {
		return "", err
	}
	if err := describe(values, schema); err != nil {
		return "", fmt.Errorf("%s: %w", schemaFile, err)
	}
	var compact, indented bytes.Buffer
	if err := writeJSON(&compact, schema); err != nil {
		return "", fmt.Errorf("%s: %w", schemaFile, err)
	}
	if err := json.Indent(&indented, compact.Bytes(), "", "  "); err != nil {
		return "", fmt.Errorf("%s: %w", schemaFile, err)
	}
	return indented.String() + "\n", nil
}

func readNode(name string) (*yaml.Node, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || len(document.Content) != 1 {
		return nil, fmt.Errorf("%s: got %d documents, want 1: %w", name, len(document.Content), err)
	}
	return document.Content[0], nil
}

// describe writes the comments of values into the properties of schema. Keys without a comment
// of helm-docs are mappings whose keys have one.
func describe(values, schema *yaml.Node) error {
	properties := field(schema, "properties")
	if properties == nil || len(values.Content) == 0 {
		return errors.New("got no comment, want one that begins with \"# -- \"")
	}
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		property := field(properties, key.Value)
		if property == nil {
			return fmt.Errorf("got no property %q: add its type", key.Value)
		}
		if text := description(key.HeadComment); text != "" {
			setDescription(property, text)
		} else if err := describe(value, property); err != nil {
			return fmt.Errorf("%s: %w", key.Value, err)
		}
	}
	return nil
}

// field returns the value of a key of a mapping, or nil.
func field(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// setDescription makes the description the first key of a property.
func setDescription(property *yaml.Node, text string) {
	if old := field(property, "description"); old != nil {
		old.Value = text
		return
	}
	property.Content = append([]*yaml.Node{yaml.NewStringRNode("description").YNode(), yaml.NewStringRNode(text).YNode()}, property.Content...)
}

// markdownLink is a link, whose text and URL editors show as they are.
var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)

// description returns the text of a comment of helm-docs, which begins with "# -- ". If
// there are several, the last one counts, as in helm-docs.
func description(comment string) string {
	var text []string
	var fallback string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		if first, found := strings.CutPrefix(line, "-- "); found {
			text, fallback = []string{first}, ""
		} else if value, found := strings.CutPrefix(line, "@default -- "); found {
			fallback = " Default: " + value + "."
		} else if len(text) > 0 && !strings.HasPrefix(line, "@") {
			text = append(text, line)
		}
	}
	return markdownLink.ReplaceAllString(strings.Join(text, " "), "$1 ($2)") + fallback
}

// writeJSON writes a node in the order of its keys.
func writeJSON(out *bytes.Buffer, node *yaml.Node) error {
	switch node.Kind {
	case yaml.MappingNode:
		return writeList(out, node, "{}", func(i int) string { return map[bool]string{true: ",", false: ":"}[i%2 == 0] })
	case yaml.SequenceNode:
		return writeList(out, node, "[]", func(int) string { return "," })
	}
	if node.Tag != "!!str" {
		out.WriteString(node.Value)
		return nil
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(node.Value)
}

// writeList writes the nodes below a node between two brackets. separator returns the text
// before the node of an index, except for the first.
func writeList(out *bytes.Buffer, node *yaml.Node, brackets string, separator func(i int) string) error {
	out.WriteByte(brackets[0])
	for i, below := range node.Content {
		if i > 0 {
			out.WriteString(separator(i))
		}
		if err := writeJSON(out, below); err != nil {
			return err
		}
	}
	out.WriteByte(brackets[1])
	return nil
}
