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

	"github.com/lanyard-dev/lanyard/cmd/webhook/app/options"
	"github.com/lanyard-dev/lanyard/internal/socketstore"
)

// newKeepSocketCommand gives the command that holds the server's socket while
// the server is started again.
func newKeepSocketCommand(width int) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:           "keep-socket",
		Short:         "Keep the server's socket open while the server is started again.",
		Long:          "keep-socket runs in a container beside the server, whose --socket-store is its --socket. When the server\nis killed, connections wait for the one that is started in its place, and are not refused.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return errors.New("--socket: got none, want the path of a unix socket")
			}
			// At once: then the pod goes, and the server drains by itself.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return socketstore.Serve(ctx, path, options.New().NewLogger(cmd.ErrOrStderr()))
		},
	}
	var groups cliflag.NamedFlagSets
	fs := groups.FlagSet("Socket")
	fs.StringVar(&path, "socket", path, "Path of the unix socket to talk to the server over. It is made anew.")
	cmd.Flags().AddFlagSet(fs)
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	return cmd
}
