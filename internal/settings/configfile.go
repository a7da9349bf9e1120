// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Keys of the file.
const (
	ProvidersKey  = "providers"
	IdentitiesKey = "identities"
)

// Bounds of one file. A ConfigMap has at most 1 MiB.
const (
	maxBytes      = 1 << 20
	maxProviders  = 16
	maxIdentities = 256
)

// File is the content of a file.
type File struct {
	// Providers are the custom providers, in the order of the file.
	Providers []*annotations.Provider
	// Parameters are the defaults of their parameters, keyed as in annotations.Settings.
	Parameters map[string]string
	// Identities are the mappings, in the order of the file.
	Identities []Identity
	// Settings are the values of flags, by the names of the flags.
	Settings map[string]Setting
}

// Setting is the value of a flag as on the command line: lists are comma-separated.
type Setting struct {
	Value string
	List  bool
}

// Identity gives annotations to the ServiceAccounts that match.
type Identity struct {
	// Namespace and ServiceAccount are globs: "*" stands for any characters.
	Namespace      string `yaml:"namespace"`
	ServiceAccount string `yaml:"serviceAccount"`
	// Annotations have keys without the prefix.
	Annotations map[string]string `yaml:"annotations"`

	place place // of the annotations
}

// document is the schema of the file.
type document struct {
	Providers  []providerEntry      `yaml:"providers"`
	Identities []Identity           `yaml:"identities"`
	Settings   map[string]yaml.Node `yaml:",inline"`
}

// Parse reads a file. It reports all mistakes at once, each with its line.
func Parse(text []byte) (*File, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("got %d bytes, want at most %d", len(text), maxBytes)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var d document
	if err := decoder.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, plain(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errors.New("got more than one document"), err)
	}
	file := File{Parameters: map[string]string{}, Identities: d.Identities, Settings: map[string]Setting{}}
	for name, node := range d.Settings {
		var err error
		if file.Settings[name], err = newSetting(&node); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", node.Line, name, err)
		}
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	p, at := parser{File: &file}, placeOf(&root, ProvidersKey)
	p.limit(len(d.Providers), maxProviders, at)
	for i := range d.Providers[:min(len(d.Providers), maxProviders)] {
		p.provider(&d.Providers[i], at.index(i))
	}
	p.unique(at)
	p.identities(placeOf(&root, IdentitiesKey))
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return &file, nil
}

// newSetting returns the setting of a node. Lists may neither be nor contain aliases, because
// these could multiply a long text.
func newSetting(node *yaml.Node) (Setting, error) {
	if node.Alias != nil && len(node.Alias.Content) == 0 {
		node = node.Alias
	}
	var list []string
	for _, item := range node.Content {
		if item.Kind == yaml.ScalarNode && item.ShortTag() != "!!null" && item.Value != "" {
			list = append(list, item.Value)
		}
	}
	form := strings.TrimPrefix(node.ShortTag(), "!!")
	switch {
	case node.Kind == yaml.ScalarNode && form != "null":
		return Setting{Value: node.Value}, nil
	case node.Kind == yaml.SequenceNode && len(list) == len(node.Content):
		return Setting{Value: strings.Join(list, ","), List: true}, nil
	}
	return Setting{}, fmt.Errorf("got %s, want a text or a list of texts", form)
}

// plain removes names of Go types from an error of the YAML library.
func plain(err error) error {
	wrong, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return err
	}
	var errs []error
	for _, text := range wrong.Errors {
		text, in := strings.CutSuffix(text, " into settings.document")
		if in {
			text += ", want a mapping of settings by the names of the flags"
		}
		text, _, _ = strings.Cut(text, " in type settings.")
		text, _, _ = strings.Cut(text, " into settings.")
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// place is the position of a value in the file. node is the value, or its parent if the file does
// not contain it.
type place struct {
	path *field.Path
	node *yaml.Node
}

// placeOf returns the place of a key of the file.
func placeOf(root *yaml.Node, key string) place {
	if len(root.Content) > 0 {
		root = root.Content[0] // an empty file has no value
	}
	return place{field.NewPath(key), valueOf(root, key)}
}

func (p place) child(name string) place {
	return place{p.path.Child(name), valueOf(p.node, name)}
}

func (p place) index(i int) place {
	node := p.node
	if node.Kind == yaml.SequenceNode && 0 <= i && i < len(node.Content) {
		node = node.Content[i]
	}
	return place{p.path.Index(i), node}
}

// error adds the line number to a mistake.
func (p place) error(err *field.Error) error {
	return fmt.Errorf("line %d: %w", p.node.Line, err)
}

// valueOf returns the value of a key, or the node itself if the key is missing.
func valueOf(node *yaml.Node, key string) *yaml.Node {
	if node.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1]
			}
		}
	}
	return node
}
