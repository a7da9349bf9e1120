// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DryRun is the flag --dry-run of a command that writes objects of the cluster. It has the
// values of kubectl's.
type DryRun string

const (
	// DryRunNone writes.
	DryRunNone DryRun = "none"
	// DryRunClient sends no request that writes.
	DryRunClient DryRun = "client"
	// DryRunServer sends each request as a dry run, which the API server admits but does not
	// store.
	DryRunServer DryRun = "server"
)

// AddFlag adds the flag. Without a value, it means client.
func (d *DryRun) AddFlag(cmd *cobra.Command) {
	*d = DryRunNone
	AddChoice(cmd, (*string)(d), "dry-run", "", "Only show the changes. client sends nothing, server sends each change as a dry run",
		string(DryRunNone), string(DryRunClient), string(DryRunServer))
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(DryRunClient)
}

// Writes reports whether the cluster changes.
func (d DryRun) Writes() bool { return d == DryRunNone }

// Sends reports whether requests are sent: to write, or as dry runs.
func (d DryRun) Sends() bool { return d != DryRunClient }

// Requests returns the field DryRun of the options of a request.
func (d DryRun) Requests() []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}
