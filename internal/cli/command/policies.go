// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/policies"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// ReadPolicies reads the policies with which the API server injects by itself, next to the webhook
// of a configuration or, if it is nil, without a webhook. Next to a webhook, a user who may not
// list policies sees none.
func (c *CLI) ReadPolicies(ctx context.Context, client kubernetes.Interface, mutating *admissionregistrationv1.MutatingWebhookConfiguration) (err error) {
	c.Webhook.Policies, err = cluster.ReadInjecting(ctx, client, c.Prefix)
	if mutating != nil && apierrors.IsForbidden(err) {
		err = nil
	}
	if p := c.Webhook.Policies; p != nil && mutating != nil {
		c.Webhook.InjectedBy = "webhook " + mutating.Name + " and policies " + p.Name
	} else if p != nil {
		c.Webhook.InjectedBy = "policies " + p.Name
	}
	return err
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
