// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

func TestDryRun(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"":                 "sends true, requests []",
		"--dry-run=none":   "sends true, requests []",
		"--dry-run":        "sends false, requests []",
		"--dry-run=client": "sends false, requests []",
		"--dry-run=server": "sends true, requests [All]",
		"--dry-run=yes":    `invalid argument "yes" for "--dry-run" flag: allowed values are: none, client, server`,
	} {
		var d DryRun
		cmd := &cobra.Command{Use: "x"}
		d.AddFlag(cmd)
		var args []string
		if arg != "" {
			args = []string{arg}
		}
		got := ""
		if err := cmd.ParseFlags(args); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("sends %t, requests %v", d.Sends(), d.Requests())
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", arg, got, want)
		}
	}
}
