// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// WithHelp sets the long help and the examples of a command. text is a file that has both below
// the two lines of the license, with the line "Examples:" in between.
func WithHelp(cmd *cobra.Command, text string) *cobra.Command {
	_, text, _ = strings.Cut(text, "\n\n")
	long, examples, _ := strings.Cut(text, "\n\nExamples:\n\n")
	cmd.Long, cmd.Example = long, strings.TrimSuffix(examples, "\n")
	return cmd
}
