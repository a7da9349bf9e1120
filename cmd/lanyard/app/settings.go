// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/installation"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// addConfig adds the flag --config, to a command that uses settings.
func (c *CLI) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.configPath, "config", "", "Configuration file of the webhook, with its settings. Without it, the settings are read in the cluster.")
}

// settings returns the settings of the webhook: the settings in the file of --config, or
// the settings in the cluster. If the cluster's cannot be read, the settings are
// the built-in defaults, and noteUnknown warns where it matters.
func (c *CLI) settings(ctx context.Context) (*settings.Settings, error) {
	if c.webhook.settings != nil {
		return c.webhook.settings, nil
	}
	o, err := c.webhookOptions(ctx)
	if err == nil {
		c.webhook.settings, err = c.complete(o)
	}
	if err != nil && c.configPath == "" {
		c.webhook.unread = err
		c.webhook.settings, err = c.builtin()
	}
	return c.webhook.settings, err
}

// builtin returns the built-in defaults. An error is a mistake in --annotation-prefix.
func (c *CLI) builtin() (*settings.Settings, error) {
	s, err := c.complete(options.New())
	if err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

// webhookOptions reads the options of the webhook.
func (c *CLI) webhookOptions(ctx context.Context) (*options.Options, error) {
	if c.configPath != "" {
		return options.Parse([]string{"--config=" + c.configPath}, os.ReadFile)
	}
	client, _, err := c.clients()
	if err != nil {
		return nil, err
	}
	mutating, err := c.installation(ctx, client)
	if err != nil {
		return nil, err
	}
	return installation.Options(ctx, client, mutating)
}

// complete returns the settings of options. --annotation-prefix takes precedence.
func (c *CLI) complete(o *options.Options) (*settings.Settings, error) {
	if c.prefix != "" {
		o.AnnotationPrefix = c.prefix
	}
	return o.Settings(annotations.CommonAPIServerAudiences())
}

// noteUnknown warns the user, once, about an annotation of a ServiceAccount that
// Lanyard may read, if the settings of the webhook could not be read: an annotation
// of a custom provider, or of another webhook.
func (c *CLI) noteUnknown(object metav1.Object) {
	if c.webhook.unread == nil || c.webhook.noted {
		return
	}
	unknown := c.webhook.settings.Keys.UnknownOnServiceAccount(object.GetAnnotations())
	for _, p := range peer.All() {
		if p.Asks(object.GetAnnotations()) {
			unknown = append(unknown, p.Identity...)
		}
	}
	if len(unknown) > 0 {
		c.webhook.noted = true
		c.note("warning: serviceaccount %s/%s has the annotation %s, which Lanyard only reads with settings of the webhook. The settings could not be read: %v. Pass the webhook's configuration file with --config.",
			object.GetNamespace(), object.GetName(), unknown[0], c.webhook.unread)
	}
}
