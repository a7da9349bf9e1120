// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

// Names that all install methods use.
const (
	Namespace     = "lanyard-system"
	Deployment    = "lanyard-webhook"
	Configuration = "lanyard"
)

// Install is an installation of Lanyard with Helm.
type Install struct {
	// Release is the name of the release, in the namespace RELEASE-system. The default
	// is lanyard. Other releases are installed in addition.
	Release string
	// Values are additional chart values, such as guard.enabled=false.
	Values []string
	// Config is the value config of the chart, which is a configuration file.
	Config map[string]any
}

// release returns the name of the release.
func (i *Install) release() string { return cmp.Or(i.Release, "lanyard") }

// namespace returns the namespace of the release: Namespace, unless Release is set.
func (i *Install) namespace() string { return i.release() + "-system" }

// Up installs Lanyard with the documented command, which waits until all replicas
// are ready.
func (i *Install) Up(ctx context.Context, c *Cluster) error {
	repository, tag, _ := strings.Cut(WebhookImage, ":")
	arguments := []string{
		"install", i.release(), "charts/lanyard", "--namespace", i.namespace(), "--create-namespace", "--wait", "--timeout", Patience.String(),
		"--set", "image.repository=" + repository, "--set", "image.tag=" + tag,
	}
	for _, value := range i.Values {
		arguments = append(arguments, "--set", value)
	}
	if i.Config != nil {
		config, err := json.Marshal(i.Config)
		if err != nil {
			return fmt.Errorf("encode the values: %w", err)
		}
		arguments = append(arguments, "--set-json", "config="+string(config))
	}
	_, err := c.Run(ctx, "helm", arguments...)
	return err
}

// Down uninstalls Lanyard with the documented commands.
func (i *Install) Down(ctx context.Context, c *Cluster) error {
	_, err := c.Run(ctx, "helm", "uninstall", i.release(), "--namespace", i.namespace(), "--wait", "--timeout", Patience.String())
	if err == nil {
		// Wait for the pods first: a namespace that still contains pods is
		// only checked again after a long interval.
		_, err = c.Run(ctx, "kubectl", "wait", "pods", "--all", "--namespace", i.namespace(), "--for", "delete", "--timeout", Patience.String())
	}
	if err == nil {
		_, err = c.Run(ctx, "kubectl", "delete", "namespace", i.namespace())
	}
	return err
}

// Policies are the policies of deploy/policies, by which the API server injects pods
// without a program of Lanyard.
type Policies struct{}

// Up installs the policies and waits until the API server follows them, because a
// ServiceAccount that is written earlier never gets the label.
func (Policies) Up(ctx context.Context, c *Cluster) error {
	if _, err := c.Run(ctx, "kubectl", "apply", "-k", "deploy/policies"); err != nil {
		return err
	}
	return podstream.WaitLabelled(ctx, c)
}

// Down removes the policies.
func (Policies) Down(ctx context.Context, c *Cluster) error {
	_, err := c.Run(ctx, "kubectl", "delete", "-k", "deploy/policies")
	return err
}
