// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// AddConfig adds the flag --config, to a command that uses settings.
func (c *CLI) AddConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.ConfigPath, "config", "", "Configuration file of the webhook, with its settings. Without it, the settings are read in the cluster.")
}

// AddOverrides adds the flag --overrides, to a command that uses ProbePod.
func (c *CLI) AddOverrides(cmd *cobra.Command) {
	cmd.Flags().Func("overrides", "Fields of the pod of a dry run, in JSON or YAML, that the policies of the cluster ask for. Without it, the pod has the image and labels of the webhook's own pods.",
		func(text string) (err error) {
			c.overrides, err = probe.ParseOverrides(text)
			return err
		})
}

// ProbePod returns the pod of a dry run for a ServiceAccount. Policies of the cluster allow the
// pod as they allow the pods of the webhook. The settings must have been read.
func (c *CLI) ProbePod(serviceAccount string) *unstructured.Unstructured {
	return probe.Pod(c.Webhook.settings.Keys, serviceAccount, c.Webhook.allowed, c.overrides)
}

// ForgetSettings makes the next call of Settings read the settings again.
func (c *CLI) ForgetSettings() { c.Webhook.settings, c.Webhook.Unread = nil, nil }

// Settings returns the settings of the webhook: the settings in the file of --config, or
// the settings in the cluster. If the cluster's cannot be read, the settings are
// the built-in defaults, and noteUnknown warns where it matters.
func (c *CLI) Settings(ctx context.Context) (*settings.Settings, error) {
	if c.Webhook.settings != nil {
		return c.Webhook.settings, nil
	}
	o, err := c.webhookOptions(ctx)
	if err == nil {
		c.Webhook.settings, err = c.Complete(o)
	}
	if err != nil && c.ConfigPath == "" {
		c.Webhook.Unread = err
		c.Webhook.settings, err = c.Builtin()
	}
	return c.Webhook.settings, err
}

// Builtin returns the built-in defaults. An error is a mistake in --annotation-prefix.
func (c *CLI) Builtin() (*settings.Settings, error) {
	s, err := c.Complete(options.New())
	if err != nil {
		return nil, UsageError{err}
	}
	return s, nil
}

// webhookOptions reads the options of the webhook.
func (c *CLI) webhookOptions(ctx context.Context) (*options.Options, error) {
	if c.ConfigPath != "" {
		return options.Parse([]string{"--config=" + c.ConfigPath}, os.ReadFile)
	}
	client, _, err := c.Clients()
	if err != nil {
		return nil, err
	}
	mutating, err := c.Installation(ctx, client)
	if err != nil {
		return nil, err
	}
	o, allowed, err := cluster.Options(ctx, client, mutating)
	c.Webhook.allowed = allowed
	return o, err
}

// Complete returns the settings of options. --annotation-prefix takes precedence.
func (c *CLI) Complete(o *options.Options) (*settings.Settings, error) {
	if c.Prefix != "" {
		o.AnnotationPrefix = c.Prefix
	}
	return o.Settings(annotations.CommonAPIServerAudiences())
}

// NoteUnknown warns the user, once, about an annotation of a ServiceAccount that
// Lanyard may read, if the settings of the webhook could not be read: an annotation
// of a custom provider, or of another webhook.
func (c *CLI) NoteUnknown(object metav1.Object) {
	if c.Webhook.Unread == nil || c.Webhook.noted {
		return
	}
	unknown := c.Webhook.settings.Keys.UnknownOnServiceAccount(object.GetAnnotations())
	for _, p := range peer.All() {
		if p.Asks(object.GetAnnotations()) {
			unknown = append(unknown, p.Identity...)
		}
	}
	if len(unknown) > 0 {
		c.Webhook.noted = true
		c.Note("warning: serviceaccount %s/%s has the annotation %s, which Lanyard only reads with settings of the webhook. The settings could not be read: %v. Pass the webhook's configuration file with --config.",
			object.GetNamespace(), object.GetName(), unknown[0], c.Webhook.Unread)
	}
}
