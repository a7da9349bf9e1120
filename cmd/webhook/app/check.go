// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// checkOptions say whose pod is tried.
type checkOptions struct {
	kubeconfig, namespace, serviceAccount, annotationPrefix string
	timeout                                                 time.Duration
}

// newCheckCommand gives the command that says whether an account's pods get
// their identity.
func newCheckCommand(width int) *cobra.Command {
	o := checkOptions{annotationPrefix: annotations.DefaultPrefix, timeout: 30 * time.Second}
	cmd := &cobra.Command{
		Use:           "check",
		Short:         "Try whether the pods of a service account get their identity.",
		Long:          "check sends the apiserver a pod of the service account in a dry run, which creates nothing, and looks\nwhether it comes back with its identity. It has to be allowed to create pods in the namespace.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := o.run(cmd.Context())
			if err != nil {
				return fmt.Errorf("check pods of service account %s/%s: %w", o.namespace, o.serviceAccount, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pods of service account %s/%s get their identity: %s\n", o.namespace, o.serviceAccount, got)
			return err
		},
	}
	var groups cliflag.NamedFlagSets
	fs := groups.FlagSet("Check")
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Kubeconfig file; not needed inside of a cluster.")
	fs.StringVar(&o.namespace, "namespace", o.namespace, "Namespace of the service account.")
	fs.StringVar(&o.serviceAccount, "service-account", o.serviceAccount, "Name of the service account.")
	fs.StringVar(&o.annotationPrefix, "annotation-prefix", o.annotationPrefix, "Prefix of every annotation and label, with its slash.")
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long to try again what fails: an apiserver learns of a new webhook a moment later.")
	cmd.Flags().AddFlagSet(fs)
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	return cmd
}

// run tries until the pod has its identity, and gives what was injected; or
// says, when the time is over, why the last one did not.
func (o *checkOptions) run(ctx context.Context) (injected string, err error) {
	if o.namespace == "" || o.serviceAccount == "" {
		return "", errors.New("needs both --namespace and --service-account")
	}
	keys, err := annotations.NewKeys(o.annotationPrefix)
	if err != nil {
		return "", fmt.Errorf("--annotation-prefix: %w", err)
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return "", err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("client of the API server: %w", err)
	}
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(o.namespace)
	var last error // why the last one has none
	err = wait.PollUntilContextTimeout(ctx, time.Second, o.timeout, true, func(ctx context.Context) (bool, error) {
		got, err := pods.Create(ctx, o.pod(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			injected, err = identityOf(got, &keys)
		}
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return "", errors.Join(last, err)
	}
	return injected, nil
}

// pod gives a pod that every Pod Security Standard allows.
func (o *checkOptions) pod() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"generateName": "lanyard-check-"},
		"spec": map[string]any{
			"serviceAccountName": o.serviceAccount,
			"securityContext":    map[string]any{"runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}},
			"containers": []any{map[string]any{
				"name": "check", "image": "none",
				"securityContext": map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}},
			}},
		},
	}}
}

// identityOf says what was injected into a pod.
func identityOf(pod *unstructured.Unstructured, keys *annotations.Keys) (string, error) {
	injected := pod.GetAnnotations()[keys.Injected]
	if injected == "" {
		return "", fmt.Errorf("annotation %s is not on the pod: either the service account has no identity annotation, or lanyard-webhook was not called", keys.Injected)
	}
	volumes, _, err := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	if err != nil {
		return "", fmt.Errorf("the pod's volumes: %w", err)
	}
	for _, volume := range volumes {
		fields, ok := volume.(map[string]any)
		if !ok {
			continue
		}
		if name, _, _ := unstructured.NestedString(fields, "name"); name == mutate.VolumeName || name == mutate.FallbackVolumeName {
			return fmt.Sprintf("%s, from volume %s", strings.ReplaceAll(injected, ",", ", "), name), nil
		}
	}
	return "", fmt.Errorf("volume %s is not in the pod, although it is annotated %s=%s", mutate.VolumeName, keys.Injected, injected)
}
