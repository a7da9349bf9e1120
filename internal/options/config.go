// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/settings"
)

// applyConfig sets the flags that are in values, except those that the command
// line sets.
func applyConfig(fs *pflag.FlagSet, values map[string]settings.Setting) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		flag := fs.Lookup(name)
		if flag == nil || name == "config" || name == "help" || name == "version" {
			return fmt.Errorf("%s: unknown setting; settings have the names of the flags in --help", name)
		}
		forms := []string{settings.Text}
		if flag.Value.Type() == "stringSlice" {
			forms = append(forms, settings.List)
		}
		setting := values[name]
		if !slices.Contains(forms, setting.Form) {
			return fmt.Errorf("%s: got %s, want a %s", name, setting.Form, strings.Join(forms, " or a "))
		}
		if flag.Changed {
			continue
		}
		if err := fs.Set(name, setting.Value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
