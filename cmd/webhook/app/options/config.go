// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// applyConfig sets the flags that text, a YAML mapping, has values for, except
// those that were set before.
func applyConfig(fs *pflag.FlagSet, text []byte) error {
	var settings map[string]any
	if err := yaml.UnmarshalStrict(text, &settings); err != nil {
		return fmt.Errorf("want a mapping of settings by the flags' names: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		flag := fs.Lookup(name)
		if flag == nil || name == "config" || name == "help" {
			return fmt.Errorf("%s: no such setting; --help lists the flags whose names are the settings", name)
		}
		value, err := scalar(settings[name])
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

// scalar writes a value as it would stand on the command line.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string, bool, float64:
		return fmt.Sprint(v), nil
	case []any:
		elements := make([]string, len(v))
		for i, element := range v {
			text, ok := element.(string)
			if !ok {
				return "", fmt.Errorf("element %d: got %T, want a string", i, element)
			}
			elements[i] = text
		}
		return strings.Join(elements, ","), nil
	}
	return "", fmt.Errorf("got %T, want a string, a number or a list of strings", value)
}
