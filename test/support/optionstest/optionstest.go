// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optionstest returns settings for tests.
package optionstest

import (
	"testing"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Settings returns the settings of the injection with the text of a configuration file, as
// lanyard-webhook reads them. reserved are the audiences of the API server.
func Settings(t testing.TB, config string, reserved ...string) *annotations.Settings {
	t.Helper()
	o, err := options.Load([]string{"--config=config.yaml"}, func(string) ([]byte, error) { return []byte(config), nil })
	if err != nil {
		t.Fatal(err)
	}
	s, err := o.Settings(reserved)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
