// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optionstest reads configuration files in tests.
package optionstest

import (
	"os"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Settings returns the settings of the injection, with a configuration file, as
// lanyard-webhook reads them. reserved are the audiences of the API server.
func Settings(t testing.TB, file string, reserved ...string) *settings.Settings {
	t.Helper()
	o, err := options.Parse([]string{"--config=" + file}, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := o.Settings(reserved)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
