// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// applyConfig sets the flags that are in text, a YAML mapping, except those that
// the command line sets.
func applyConfig(fs *pflag.FlagSet, text []byte) error {
	settings, err := parseConfig(text)
	if err != nil {
		return fmt.Errorf("want a mapping of settings by the names of the flags: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		flag := fs.Lookup(name)
		if flag == nil || name == "config" || name == "help" || name == "version" {
			return fmt.Errorf("%s: unknown setting; settings have the names of the flags in --help", name)
		}
		value, err := argument(flag.Value.Type(), settings[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if flag.Changed {
			continue
		}
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// parseConfig reads text, which must be one document.
func parseConfig(text []byte) (map[string]any, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	first, err := documents.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err := documents.Read(); !errors.Is(err, io.EOF) {
		return nil, errors.New("got more than one document")
	}
	var settings map[string]any
	return settings, yaml.UnmarshalStrict(first, &settings)
}

// argument returns a value in the form that a flag of flagType has on the command
// line.
func argument(flagType string, value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case float64:
		if flagType == "int" || flagType == "int64" {
			return strconv.FormatFloat(v, 'f', -1, 64), nil
		}
	case []any:
		if flagType == "stringSlice" {
			return list(v)
		}
	}
	return "", fmt.Errorf("got %s, want %s", kindOf(value), wanted(flagType))
}

// kindOf names the kind of a value in the words of users.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case string:
		return "a string"
	case float64:
		return "a number"
	case []any:
		return "a list"
	}
	return "a mapping"
}

// wanted describes the values of a flag of flagType.
func wanted(flagType string) string {
	switch flagType {
	case "int", "int64":
		return "a number"
	case "duration":
		return "a duration such as 10s"
	case "stringSlice":
		return "a list of strings"
	}
	return "a string"
}

func list(values []any) (string, error) {
	elements := make([]string, len(values))
	for i, value := range values {
		text, ok := value.(string)
		if !ok {
			return "", fmt.Errorf("element %d: got %s, want a string", i, kindOf(value))
		}
		elements[i] = text
	}
	return strings.Join(elements, ","), nil
}
