// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	_ "embed" // the help text
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/version"
)

//go:embed version.txt
var versionHelp string

// newVersionCommand returns the command version.
func newVersionCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	var client bool
	cmd := command.New(versionHelp, command.NoArgs, func(cmd *cobra.Command, _ []string) error {
		result := &versions{Client: program{version.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}}
		var err error
		if !client {
			err = result.read(cmd.Context(), c)
		}
		return errors.Join(o.Write(c, result), err)
	})
	o.AddFlag(cmd, "Version")
	cmd.Flags().BoolVar(&client, "client", false, "Print only the version of this program. Needs no cluster.")
	return cmd
}

type versions struct {
	Client program `json:"client"`
	// Kubernetes is the version of the API server, or empty if it is unknown.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Webhooks are the installations, or nil if they are unknown.
	Webhooks []installation `json:"webhooks,omitempty"`
	// absent describes the webhook without an installation. It is empty if no cluster was asked.
	absent string
}

type program struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// installation is an installation of the webhook.
type installation struct {
	// Configuration is the name of its MutatingWebhookConfiguration.
	Configuration string `json:"configuration"`
	// Deployment is namespace/name, and Image is its image, or empty if they are unknown.
	Deployment string `json:"deployment,omitempty"`
	Image      string `json:"image,omitempty"`
}

// read reads the versions in the cluster. The error is about the versions that are unknown.
func (v *versions) read(ctx context.Context, c *command.CLI) error {
	v.absent = "unknown"
	client, _, err := c.Clients()
	if err != nil {
		return err
	}
	parts, err := c.Survey()
	if err != nil {
		return err
	}
	server, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	v.Kubernetes = server.GitVersion
	all, err := parts.Configurations(ctx)
	if err != nil {
		return err
	}
	v.absent = "not installed"
	var errs []error
	for _, configuration := range cluster.Find(all) {
		found := installation{Configuration: configuration.Name}
		if deployment, err := parts.Deployment(ctx, configuration); err != nil {
			errs = append(errs, fmt.Errorf("version of the webhook %s: %w", configuration.Name, err))
		} else {
			found.Deployment = deployment.Namespace + "/" + deployment.Name
			found.Image = cluster.Container(deployment).Image
		}
		v.Webhooks = append(v.Webhooks, found)
	}
	return errors.Join(errs...)
}

func (v *versions) Print(p *command.Page) {
	rows := [][]string{{"lanyard", fmt.Sprintf("%s (%s, %s)", v.Client.Version, v.Client.GoVersion, v.Client.Platform)}}
	if v.absent != "" {
		rows = append(rows, []string{"Kubernetes", cmp.Or(v.Kubernetes, "unknown")})
	}
	for _, w := range v.Webhooks {
		text := cmp.Or(w.Image, "unknown")
		if w.Deployment != "" {
			text += ", Deployment " + w.Deployment
		}
		rows = append(rows, []string{"webhook", text})
	}
	if v.absent != "" && len(v.Webhooks) == 0 {
		rows = append(rows, []string{"webhook", v.absent})
	}
	p.Table(0, rows)
}
