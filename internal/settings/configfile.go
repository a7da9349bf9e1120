// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// The keys of the file that this package reads.
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
	// Parameters are the defaults of their parameters, by the annotation key without
	// the prefix, as in annotations.Settings.
	Parameters map[string]string
	// Identities are the mappings, in the order of the file.
	Identities []Identity
	// Settings are the values of flags, by the names of the flags.
	Settings map[string]Setting

	text []byte // to find the line of a mistake
}

// Setting is the value of a flag, in the form that the flag has on the command line:
// the texts of a list are separated by commas.
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
}

// document is the form of the file.
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
	file := File{
		Parameters: map[string]string{}, Identities: d.Identities, Settings: map[string]Setting{}, text: text,
	}
	for name, node := range d.Settings {
		var err error
		if file.Settings[name], err = newSetting(&node); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", node.Line, name, err)
		}
	}
	p, path := parser{File: &file}, field.NewPath(ProvidersKey)
	p.limit(len(d.Providers), maxProviders, path)
	for i := range d.Providers[:min(len(d.Providers), maxProviders)] {
		p.provider(&d.Providers[i], path.Index(i))
	}
	p.unique(path)
	p.identities(field.NewPath(IdentitiesKey))
	if len(p.errs) > 0 {
		return nil, file.WithLines(p.errs)
	}
	return &file, nil
}

// newSetting returns the setting that a node has. In and of a list there are no
// aliases, because they could multiply a long text.
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

// plain returns a mistake of the YAML library without the names of Go types.
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

// WithLines returns the mistakes of the file, each with its line.
func (f *File) WithLines(list field.ErrorList) error {
	var root yaml.Node
	errs := []error{yaml.Unmarshal(f.text, &root)}
	for _, err := range list {
		errs = append(errs, fmt.Errorf("line %d: %w", line(&root, err.Field), err))
	}
	return errors.Join(errs...)
}

// step is one element of a path such as providers[0].parameters[1].name.
var step = regexp.MustCompile(`[A-Za-z]+|\[[^\]]*\]`)

// line returns the line of the value at the path. If there is none, it is that of
// the value around it.
func line(node *yaml.Node, path string) int {
	if len(node.Content) > 0 {
		node = node.Content[0]
	}
	for _, name := range step.FindAllString(path, -1) {
		next := child(node, strings.Trim(name, "[]"))
		if next == nil {
			break
		}
		node = next
	}
	return node.Line
}

// child returns the element of a list or the value of a mapping, nil for none.
func child(node *yaml.Node, name string) *yaml.Node {
	switch node.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i < len(node.Content) {
			return node.Content[i]
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i+1]
			}
		}
	}
	return nil
}
