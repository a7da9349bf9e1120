// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/policies"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Injecting returns the policies with which the API server injects by itself; nil if there are
// none, or if the user may not read them.
func (c *CLI) Injecting(ctx context.Context, client kubernetes.Interface) (*cluster.Injecting, error) {
	found, err := cluster.ReadInjecting(ctx, client, c.Prefix)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return found, err
}

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
