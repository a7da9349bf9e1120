// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optionstest reads configuration files in tests.
package optionstest

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/cmd/webhook/app/options"
)

// Injection returns the settings that decide what is injected, with a configuration
// file, as lanyard-webhook reads them.
func Injection(t testing.TB, file string) *options.Completed {
	t.Helper()
	o := options.New()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, group := range o.Flags().FlagSets {
		flags.AddFlagSet(group)
	}
	if err := flags.Parse([]string{"--config=" + file}); err != nil {
		t.Fatal(err)
	}
	if err := o.LoadConfig(flags); err != nil {
		t.Fatal(err)
	}
	completed, err := o.CompleteInjection()
	if err != nil {
		t.Fatal(err)
	}
	return completed
}
