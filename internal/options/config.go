// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/configfile"
)

// readConfig reads the content of a configuration file: the settings by the names of
// the flags, and the rest.
func readConfig(text []byte) (map[string]json.RawMessage, *configfile.File, error) {
	settings, err := parseConfig(text)
	if err != nil {
		return nil, nil, fmt.Errorf("want a mapping of settings by the names of the flags: %w", err)
	}
	delete(settings, configfile.ProvidersKey)
	delete(settings, configfile.IdentitiesKey)
	file, err := configfile.Parse(text)
	return settings, file, err
}

// applyConfig sets the flags that are in settings, except those that the command
// line sets.
func applyConfig(fs *pflag.FlagSet, settings map[string]json.RawMessage) error {
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

// parseConfig reads text, which must be one document. The values are JSON.
func parseConfig(text []byte) (map[string]json.RawMessage, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	first, err := documents.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err := documents.Read(); !errors.Is(err, io.EOF) {
		return nil, errors.New("got more than one document")
	}
	var settings map[string]json.RawMessage
	err = yaml.UnmarshalStrict(first, &settings)
	return settings, err
}

// argument returns a JSON value in the form that a flag of flagType has on the
// command line. Each flag also takes a string.
func argument(flagType string, value json.RawMessage) (string, error) {
	var text string
	if value[0] == '"' {
		err := json.Unmarshal(value, &text)
		return text, err
	}
	wanted := "a string"
	switch flagType {
	case "int", "int64":
		wanted = "a number"
		var number json.Number
		if value[0] != 'n' && json.Unmarshal(value, &number) == nil {
			return number.String(), nil
		}
	case "bool":
		wanted = "true or false"
		if text := string(value); text == "true" || text == "false" {
			return text, nil
		}
	case "duration":
		wanted = "a duration such as 10s"
	case "stringSlice":
		wanted = "a list of strings"
		var list []string
		if value[0] == '[' && json.Unmarshal(value, &list) == nil && !slices.Contains(list, "") {
			return strings.Join(list, ","), nil
		}
	}
	return "", fmt.Errorf("got %s, want %s", value, wanted)
}
