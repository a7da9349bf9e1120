// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/socketstore"
)

// newKeepSocketCommand returns the command that keeps the server's socket open
// while the server restarts.
func newKeepSocketCommand(width int) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:           "keep-socket",
		Short:         "Keep the server's socket open while the server restarts.",
		Long:          "keep-socket runs as a sidecar. Pass the same path to the server's --socket-store. If the server is killed,\nconnections wait for the server that is started in its place; they are not refused.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return errors.New("--socket: got none, want the path of a unix socket")
			}
			// The store stops at once: a server that drains does not need it.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return socketstore.Serve(ctx, path, options.New().NewLogger(cmd.ErrOrStderr()))
		},
	}
	var groups cliflag.NamedFlagSets
	fs := groups.FlagSet("Socket")
	fs.StringVar(&path, "socket", path, "Path of the unix socket for the server. An existing socket is replaced.")
	cmd.Flags().AddFlagSet(fs)
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	return cmd
}
