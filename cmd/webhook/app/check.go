// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/secretpath"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// checkOptions select the ServiceAccount to check.
type checkOptions struct {
	kubeconfig, namespace, serviceAccount, annotationPrefix string
	timeout                                                 time.Duration
}

const checkHelp = `check sends the API server a dry run of a pod that uses the ServiceAccount, and reports
whether the pod would get its token volume. Nothing is created. It needs the right to create
pods in the namespace.

The pod has the label lanyard.dev/probe=true. For such pods the webhook configuration has an
entry of its own, probe.lanyard.dev, with failurePolicy Fail. If the API server cannot call the
webhook (x509: certificate signed by unknown authority, timeout, connection refused), check
therefore prints the error of the API server. Other pods are not affected.`

// newCheckCommand returns the command that reports whether the pods of a
// ServiceAccount get credentials.
func newCheckCommand(width int) *cobra.Command {
	o := checkOptions{annotationPrefix: annotations.DefaultPrefix, timeout: 30 * time.Second}
	cmd := &cobra.Command{
		Use:           "check",
		Short:         "Check that the pods of a ServiceAccount get credentials.",
		Long:          checkHelp,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := o.run(cmd.Context())
			if err != nil {
				return fmt.Errorf("check pods of ServiceAccount %s/%s: %w", o.namespace, o.serviceAccount, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pods of ServiceAccount %s/%s get credentials: %s\n", o.namespace, o.serviceAccount, got)
			return err
		},
	}
	var groups cliflag.NamedFlagSets
	fs := groups.FlagSet("Check")
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Kubeconfig file; not needed in a cluster.")
	fs.StringVar(&o.namespace, "namespace", o.namespace, "Namespace of the ServiceAccount.")
	fs.StringVar(&o.serviceAccount, "service-account", o.serviceAccount, "Name of the ServiceAccount.")
	fs.StringVar(&o.annotationPrefix, "annotation-prefix", o.annotationPrefix, "Prefix of every annotation and label, with its slash.")
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long to retry. An API server calls a new webhook only after a moment.")
	cmd.Flags().AddFlagSet(fs)
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	return cmd
}

// run retries until a pod is injected, and returns what was injected. After the
// timeout it returns why the last pod was not injected.
func (o *checkOptions) run(ctx context.Context) (injected string, err error) {
	if o.namespace == "" || o.serviceAccount == "" {
		return "", errors.New("--namespace and --service-account are required")
	}
	keys, err := annotations.NewKeys(o.annotationPrefix, provider.Builtin())
	if err != nil {
		return "", fmt.Errorf("--annotation-prefix: %w", err)
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return "", err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("create Kubernetes client: %w", err)
	}
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(o.namespace)
	var last error // of the last pod
	err = wait.PollUntilContextTimeout(ctx, time.Second, o.timeout, true, func(ctx context.Context) (bool, error) {
		got, err := pods.Create(ctx, probe.Pod(&keys, o.serviceAccount), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			injected, err = probe.Injected(got, &keys)
		}
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = secretpath.RedactError(err)
		}
		return err == nil, nil
	})
	if err != nil {
		return "", errors.Join(last, err)
	}
	return injected, nil
}
