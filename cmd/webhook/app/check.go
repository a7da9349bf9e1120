// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

// checkOptions select the ServiceAccount to check.
type checkOptions struct {
	kubeconfig, namespace, serviceAccount, overrides string
	timeout                                          time.Duration
}

const checkHelp = `check creates a pod of the ServiceAccount as a dry run, and reports whether the API server can
call the webhook and the pod would get credentials. It needs the right to create pods in the
namespace. "lanyard check" also looks at the rest of the installation.

The pod has the label lanyard.dev/probe=true, for which the webhook configuration has the entry
probe.lanyard.dev with failurePolicy Fail. So check can print why the API server cannot call it.`

// newCheckCommand returns the command that reports whether the pods of a
// ServiceAccount get credentials.
func newCheckCommand(width int) *cobra.Command {
	o := checkOptions{timeout: 30 * time.Second}
	cmd := &cobra.Command{
		Use:           "check",
		Short:         "Check that the pods of a ServiceAccount get credentials.",
		Long:          checkHelp,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := o.run(cmd.Context())
			if err == nil {
				err = show(cmd.OutOrStdout(), found)
			}
			if err != nil {
				return fmt.Errorf("check pods of ServiceAccount %s/%s: %w", o.namespace, o.serviceAccount, err)
			}
			return nil
		},
	}
	var groups cliflag.NamedFlagSets
	fs := groups.FlagSet("Check")
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Kubeconfig file. Not needed in a cluster.")
	fs.StringVar(&o.namespace, "namespace", o.namespace, "Namespace of the ServiceAccount.")
	fs.StringVar(&o.serviceAccount, "service-account", o.serviceAccount, "Name of the ServiceAccount.")
	fs.StringVar(&o.overrides, "overrides", o.overrides, "Fields of the dry-run pod in JSON or YAML, such as its image and labels, for policies of the cluster that require them.")
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long to retry. It takes API servers a moment to call a new webhook.")
	cmd.Flags().AddFlagSet(fs)
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	return cmd
}

// run retries until nothing has failed. After the timeout it returns the last
// findings.
func (o *checkOptions) run(ctx context.Context) ([]finding.Finding, error) {
	if o.namespace == "" || o.serviceAccount == "" {
		return nil, errors.New("--namespace and --service-account are required")
	}
	settings, err := options.New().Settings(nil)
	if err != nil {
		return nil, err
	}
	overrides, err := probe.ParseOverrides(o.overrides)
	if err != nil {
		return nil, fmt.Errorf("--overrides: %w", err)
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := probe.NewClient(config)
	if err != nil {
		return nil, err
	}
	var last []finding.Finding
	err = wait.PollUntilContextTimeout(ctx, time.Second, o.timeout, true, func(ctx context.Context) (bool, error) {
		answer := client.Create(ctx, o.namespace, probe.Pod(o.serviceAccount, overrides))
		called, tried := probe.DryRun(settings, o.namespace+"/"+o.serviceAccount, answer)
		if last == nil || ctx.Err() == nil {
			last = []finding.Finding{called, tried} // otherwise err is the error of the timeout
		}
		return called.Status == finding.OK && tried.Status == finding.OK, nil
	})
	if last == nil {
		return nil, err
	}
	return last, nil
}

// show writes findings. The returned error contains those that failed or were skipped.
func show(w io.Writer, found []finding.Finding) error {
	var failures []error
	for _, f := range found {
		if f.Status == finding.Failed || f.Status == finding.Skipped {
			failures = append(failures, errors.New(f.String()))
		} else if _, err := fmt.Fprintln(w, f.String()); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}
