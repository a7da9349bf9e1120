// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile reads the parts of the file of --config that are not flags:
// custom providers and identity mappings.
//
// A custom provider becomes a provider.Definition, like the built-in ones: no other
// package knows the difference. Each mistake has the line that it is in.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/pkg/provider"
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

// File holds the parts of a file that are not flags.
type File struct {
	// Providers are the custom providers, in the order of the file.
	Providers []*provider.Definition
	// Parameters are the defaults of their parameters, by the annotation key without
	// the prefix, as in annotations.Defaults.
	Parameters map[string]string
	// Patterns are the patterns of their parameters, if any, by the same keys.
	Patterns map[string]string
	// Identities are the mappings, in the order of the file.
	Identities []Identity
	// Settings are the names of the flags that the file sets, sorted.
	Settings []string

	root *yaml.Node // to find the line of a mistake
}

// Identity gives annotations to the ServiceAccounts that match.
type Identity struct {
	// Namespace and ServiceAccount are globs: "*" stands for any characters.
	Namespace      string `yaml:"namespace"`
	ServiceAccount string `yaml:"serviceAccount"`
	// Annotations have keys without the prefix.
	Annotations map[string]string `yaml:"annotations"`
}

// document is the form of the file. Settings are the flags, which are read elsewhere.
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
	file := File{
		Identities: d.Identities, Settings: slices.Sorted(maps.Keys(d.Settings)),
		Parameters: map[string]string{}, Patterns: map[string]string{}, root: new(yaml.Node),
	}
	if err := yaml.Unmarshal(text, file.root); err != nil {
		return nil, plain(err)
	}
	var errs field.ErrorList
	path := field.NewPath(ProvidersKey)
	if len(d.Providers) > maxProviders {
		errs = append(errs, field.TooMany(path, len(d.Providers), maxProviders))
		d.Providers = nil
	}
	for i := range d.Providers {
		definition, wrong := d.Providers[i].definition(path.Index(i), &file)
		errs = append(errs, wrong...)
		file.Providers = append(file.Providers, definition)
	}
	errs = append(errs, checkUnique(file.Providers, path)...)
	errs = append(errs, checkIdentities(d.Identities, field.NewPath(IdentitiesKey))...)
	if len(errs) > 0 {
		return nil, file.WithLines(errs)
	}
	return &file, nil
}

// ofType is how the YAML library names the Go type that it decodes into.
var ofType = regexp.MustCompile(` in type \S+| into configfile\.\S+| into (\[\])?(map\[string\]string|string)`)

// plain returns a mistake of the YAML library without the names of Go types.
func plain(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return err
	}
	var errs []error
	for _, text := range wrong.Errors {
		errs = append(errs, errors.New(ofType.ReplaceAllString(text, "")))
	}
	return errors.Join(errs...)
}

// WithLines returns the mistakes of the file, each with its line.
func (f *File) WithLines(list field.ErrorList) error {
	var errs []error
	for _, err := range list {
		errs = append(errs, fmt.Errorf("line %d: %w", f.line(err.Field), err))
	}
	return errors.Join(errs...)
}

// step is one element of a path such as providers[0].parameters[1].name.
var step = regexp.MustCompile(`[A-Za-z]+|\[[^\]]*\]`)

// line returns the line of the value at the path. If the path does not exist, line
// returns the line of its parent.
func (f *File) line(path string) int {
	node := f.root
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
