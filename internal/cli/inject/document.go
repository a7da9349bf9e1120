// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Document is a part of a manifest: an object, a list of objects, or only comments.
type Document struct {
	source string // the file, for errors
	text   []byte // as it was read
	isJSON bool
	// json is the object; nil if the document has none.
	json    []byte
	changed bool
}

// Not resource.Builder: it decodes objects, and an object that does not change must be written
// as it was read, with its comments, its order and its list.

// Read reads the documents of a file, in YAML or JSON. source names the file in
// errors.
func Read(source string, r io.Reader) ([]*Document, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	if documents, ok := readJSON(source, text); ok {
		return documents, nil
	}
	var documents []*Document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		d := &Document{source: source, text: part}
		if err == nil {
			d.json, err = yaml.YAMLToJSONStrict(part)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", source, len(documents)+1, err)
		}
		if string(d.json) == "null" {
			d.json = nil
		}
		documents = append(documents, d)
	}
}

// readJSON reads one or more objects of JSON. It reports whether the text is that.
func readJSON(source string, text []byte) ([]*Document, bool) {
	var documents []*Document
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return documents, len(documents) > 0
		}
		if err != nil || raw[0] != '{' {
			return nil, false
		}
		documents = append(documents, &Document{source: source, text: raw, json: raw, isJSON: true})
	}
}

// Write writes the documents. Those that did not change are written as they were
// read. The others keep their format, but YAML loses its comments and its order.
func Write(w io.Writer, documents []*Document) error {
	separator := ""
	for _, d := range documents {
		if !d.isJSON {
			separator = "---\n"
		}
	}
	for i, d := range documents {
		text, err := d.output()
		if err != nil {
			return fmt.Errorf("%s: %w", d.source, err)
		}
		if i > 0 {
			text = append([]byte(separator), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// output returns the document with a newline at its end.
func (d *Document) output() (text []byte, err error) {
	var indented bytes.Buffer
	switch {
	case d.isJSON && d.changed:
		err = json.Indent(&indented, d.json, "", "    ")
		text = texts.EscapeJSON(indented.Bytes())
	case d.isJSON:
		text = texts.EscapeJSON(d.text)
	case d.changed:
		text, err = yaml.JSONToYAML(texts.EscapeJSON(d.json))
	default:
		text = d.text
	}
	return append(bytes.TrimRight(text, "\n"), '\n'), err
}
