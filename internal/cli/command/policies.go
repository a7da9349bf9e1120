// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/policies"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// PolicySettings returns the settings of policies that were made from this source.
func (c *CLI) PolicySettings(source *policies.Source) (*settings.Settings, error) {
	o := options.New()
	if len(source.Config) > 0 {
		if err := o.ReadConfig(source.Config, o.FlagSet()); err != nil {
			return nil, err
		}
	}
	if source.AnnotationPrefix != "" {
		o.AnnotationPrefix = source.AnnotationPrefix
	}
	s, err := c.Complete(o)
	if err != nil {
		return nil, err
	}
	s.Defaults.ReservedAudiences = slices.Concat(s.Defaults.ReservedAudiences, source.ReservedAudiences)
	if s, err = policies.Choose(s, source.Providers); err != nil {
		return nil, fmt.Errorf("providers: %w", err)
	}
	return s, nil
}
