// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/clusterconfig"
	"github.com/lanyard-dev/lanyard/internal/configfile"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// keys returns the keys of the built-in providers under --annotation-prefix.
func (c *cli) keys() (*annotations.Keys, error) {
	keys, err := annotations.NewKeys(c.prefix, provider.Builtin())
	if err != nil {
		return nil, usagef("--annotation-prefix: %w", err)
	}
	return &keys, nil
}

// addConfig adds the flag --config, to a command that uses clusterKeys.
func (c *cli) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.configPath, "config", "", "Configuration file of the webhook, for its custom providers. Without it, the file is read in the cluster.")
}

// clusterKeys returns the keys of all providers of the cluster: the custom ones are
// in the file of --config, or in that of the webhook in the cluster. If the latter
// cannot be read, the keys are those of the built-in providers, and noteUnknown says
// so where it matters.
func (c *cli) clusterKeys(ctx context.Context) (*annotations.Keys, error) {
	if c.cluster.keys != nil {
		return c.cluster.keys, nil
	}
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	text, err := c.configFile(ctx)
	if err != nil && c.configPath != "" {
		return nil, err
	}
	if err == nil {
		if keys, err = c.customKeys(keys, text); err != nil && c.configPath != "" {
			return nil, fmt.Errorf("%s: %w", c.configPath, err)
		}
	}
	c.cluster.keys, c.cluster.unread = keys, err
	return keys, nil
}

// configFile returns the content of the webhook's configuration file; nil if there is
// none.
func (c *cli) configFile(ctx context.Context) ([]byte, error) {
	if c.configPath != "" {
		return os.ReadFile(c.configPath)
	}
	client, _, err := c.clients()
	if err != nil {
		return nil, err
	}
	mutating, err := c.installation(ctx, client)
	if err != nil {
		return nil, err
	}
	return clusterconfig.Read(ctx, client, mutating)
}

// customKeys returns the keys with the custom providers of a configuration file. If
// the file is wrong, it returns the given keys and the error.
func (c *cli) customKeys(keys *annotations.Keys, text []byte) (*annotations.Keys, error) {
	file, err := configfile.Parse(text)
	if err != nil {
		return keys, err
	}
	all, err := annotations.NewKeys(c.prefix, slices.Concat(provider.Builtin(), file.Providers))
	if err != nil {
		return keys, err
	}
	return &all, nil
}

// noteUnknown tells the user, once, about an annotation of a ServiceAccount that may
// be that of a custom provider, if the custom providers could not be read.
func (c *cli) noteUnknown(object metav1.Object) {
	if c.cluster.unread == nil || c.cluster.noted {
		return
	}
	if unknown := c.cluster.keys.UnknownOnServiceAccount(object.GetAnnotations()); len(unknown) > 0 {
		c.cluster.noted = true
		c.note("warning: serviceaccount %s/%s has the annotation %s, which no built-in provider has. The custom providers of the cluster could not be read: %v. Pass the webhook's configuration file with --config.",
			object.GetNamespace(), object.GetName(), unknown[0], c.cluster.unread)
	}
}
