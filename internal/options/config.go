// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/settings"
)

// LoadConfig sets the flags that are in --config and not on the command line. fs
// must have all flags, parsed.
func (o *Options) LoadConfig(fs *pflag.FlagSet) error { return o.loadConfig(fs, os.ReadFile) }

func (o *Options) loadConfig(fs *pflag.FlagSet, readFile func(name string) ([]byte, error)) error {
	if o.ConfigFile == "" {
		return nil
	}
	text, err := readFile(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if err := o.ReadConfig(text, fs); err != nil {
		return fmt.Errorf("--config %s: %w", o.ConfigFile, err)
	}
	return nil
}

// ReadConfig is LoadConfig for the content of a file.
func (o *Options) ReadConfig(text []byte, fs *pflag.FlagSet) (err error) {
	if o.File, err = settings.Parse(text); err != nil {
		return err
	}
	return applyConfig(fs, o.File.Settings)
}

// Reload returns the settings with the custom providers and identity mappings of
// text, which is the content of ConfigFile now. The other settings stay: restart
// names those that have changed in the file, and need a restart. reserved is as in
// Settings.
func (o *Options) Reload(text []byte, reserved []string) (reloaded *settings.Settings, restart []string, err error) {
	changed := *o
	if changed.File, err = settings.Parse(text); err != nil {
		return nil, nil, err
	}
	if reloaded, err = changed.Settings(reserved); err != nil {
		return nil, nil, err
	}
	before, after := o.File.Settings, changed.File.Settings
	names := slices.AppendSeq(slices.Collect(maps.Keys(after)), maps.Keys(before))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if after[name] != before[name] {
			restart = append(restart, name)
		}
	}
	return reloaded, restart, nil
}

// applyConfig sets the flags that are in values, except those that the command
// line sets.
func applyConfig(fs *pflag.FlagSet, values map[string]settings.Setting) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		flag := fs.Lookup(name)
		if flag == nil || name == "config" || name == "help" || name == "version" {
			return fmt.Errorf("%s: unknown setting; settings have the names of the flags in --help", name)
		}
		setting := values[name]
		if setting.List && flag.Value.Type() != "stringSlice" {
			return fmt.Errorf("%s: got a list, want a text", name)
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
