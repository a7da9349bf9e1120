// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/settings"
)

// LoadConfig sets the flags that are in --config and not on the command line. fs
// must have all flags, parsed. readFile returns the content of a file.
func (o *Options) LoadConfig(fs *pflag.FlagSet, readFile func(name string) ([]byte, error)) error {
	if o.ConfigFile == "" {
		return nil
	}
	text, err := readFile(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	o.commandLine = keep(o, fs)
	return o.readFile(text, fs)
}

func (o *Options) readFile(text []byte, fs *pflag.FlagSet) error {
	if err := o.ReadConfig(text, fs); err != nil {
		return fmt.Errorf("--config %s: %w", o.ConfigFile, err)
	}
	return nil
}

// keep returns a function that returns the options and flags as they are now.
func keep(o *Options, fs *pflag.FlagSet) func() (*Options, *pflag.FlagSet) {
	now, parameters := *o, maps.Clone(o.Defaults.Parameters)
	var changed []string
	fs.Visit(func(flag *pflag.Flag) { changed = append(changed, flag.Name) })
	return func() (*Options, *pflag.FlagSet) {
		then := now
		then.Defaults.Parameters = maps.Clone(parameters)
		flags := then.FlagSet()
		for _, name := range changed {
			if flag := flags.Lookup(name); flag != nil {
				flag.Changed = true
			}
		}
		return &then, flags
	}
}

// ReadConfig is LoadConfig for the content of a file.
func (o *Options) ReadConfig(text []byte, fs *pflag.FlagSet) (err error) {
	if o.File, err = settings.Parse(text); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.File.Settings)) {
		flag, setting := fs.Lookup(name), o.File.Settings[name]
		switch {
		case flag == nil || name == "config" || name == "help" || name == "version":
			return fmt.Errorf("%s: unknown setting; settings have the names of the flags in --help", name)
		case flag.Changed: // on the command line
			continue
		}
		text, err := setting.TextFor(flag.Value.Type())
		if err == nil {
			err = fs.Set(name, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Reload returns the settings with the custom providers and identity mappings of
// text, which is the content of ConfigFile now. The other settings stay: restart
// names those that have changed in the file, and need a restart. reserved is as in
// Settings. A file that a start would deny is an error: otherwise the mistake would show
// when the next replica starts.
func (o *Options) Reload(text []byte, reserved []string) (reloaded *settings.Settings, restart []string, err error) {
	next, flags := o.commandLine()
	if err := next.readFile(text, flags); err != nil {
		return nil, nil, err
	}
	if _, err := next.Complete(); err != nil {
		return nil, nil, err
	}
	changed := *o
	changed.File = next.File
	if reloaded, err = changed.Settings(reserved); err != nil {
		return nil, nil, err
	}
	before, after := o.File.Settings, next.File.Settings
	names := slices.AppendSeq(slices.Collect(maps.Keys(after)), maps.Keys(before))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if after[name] != before[name] {
			restart = append(restart, name)
		}
	}
	return reloaded, restart, nil
}
