// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Load returns the options from a command line and the file of --config, which readFile
// reads. It ignores unknown flags, because the command line may be of another version.
func Load(args []string, readFile func(name string) ([]byte, error)) (*Options, error) {
	o := New()
	fs := o.FlagSet()
	fs.ParseErrorsAllowlist.UnknownFlags = true
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return o, o.LoadConfig(fs, readFile)
}

// LoadConfig reads the file of --config, if any, and sets the flags that are in the file and
// not on the command line. fs must contain all flags, and be parsed.
func (o *Options) LoadConfig(fs *pflag.FlagSet, readFile func(name string) ([]byte, error)) error {
	if o.ConfigFile == "" {
		return nil
	}
	text, err := readFile(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if o.File, err = settings.Parse(text); err == nil {
		err = o.File.Apply(func(name string) (string, func(string) error, error) { return find(fs, name) })
	}
	if err != nil {
		return fmt.Errorf("--config %s: %w", o.ConfigFile, err)
	}
	return nil
}

// find returns the type and the setter of the flag for a setting of the file. The setter is
// nil if the flag is on the command line.
func find(fs *pflag.FlagSet, name string) (kind string, set func(text string) error, err error) {
	flag := fs.Lookup(name)
	switch {
	case flag == nil || name == "config" || name == "help" || name == "version":
		return "", nil, errors.New("unknown setting; settings have the names of the flags in --help")
	case flag.Changed:
		return "", nil, nil
	}
	return flag.Value.Type(), func(text string) error { return fs.Set(name, text) }, nil
}

// Restart lists the settings that differ between o and next and that take effect only after a
// restart.
func (o *Options) Restart(next *Options) []string {
	now, then := o.FlagSet(), next.FlagSet()
	same := func(name string) bool { return now.Lookup(name).Value.String() == then.Lookup(name).Value.String() }
	return slices.DeleteFunc(slices.Sorted(slices.Values(settings.ServingNames())), same)
}
