// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Embedded returns the settings of the injection for a program without flags: config is
// the content of a configuration file. Its settings about lanyard-webhook itself, such as
// ports, are checked and have no effect. reserved are audiences of the API server in
// addition to the common audiences.
func Embedded(config []byte, reserved []string) (*settings.Settings, error) {
	o := New()
	if err := o.ReadConfig(config, o.FlagSet()); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	o.Defaults.ReservedAudiences = slices.Concat(annotations.CommonAPIServerAudiences(), reserved)
	s, errs := settings.New(&o.Values)
	return s, errors.Join(errs...)
}
