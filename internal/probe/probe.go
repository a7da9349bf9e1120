// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe asks the API server, by the dry run of a pod, how Lanyard would change
// the pod, and reports findings with their fixes.
//
// lanyard-webhook uses this package, so it imports no types of the Kubernetes API: these
// types would take several MiB of memory in each replica.
package probe

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/mutate"
)

// Webhook is the name of the entry of the webhook configuration that is called for
// Pod.
const Webhook = "probe.lanyard.dev"

// Pod returns a pod of the ServiceAccount that every Pod Security Standard allows.
// Its label selects the entry of the webhook configuration whose failurePolicy is
// Fail.
func Pod(keys *annotations.Keys, serviceAccount string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"generateName": "lanyard-check-", "labels": map[string]any{keys.Probe: annotations.LabelProbe}},
		"spec": map[string]any{
			"serviceAccountName": serviceAccount,
			"securityContext":    map[string]any{"runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}},
			"containers": []any{map[string]any{
				"name": "check", "image": "none",
				"securityContext": map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}},
			}},
		},
	}}
}

// Answer is the API server's response to a dry run.
type Answer struct {
	// Pod is the pod as it would be stored; nil if there is an error.
	Pod *unstructured.Unstructured
	// Warnings are the warnings of the response.
	Warnings []string
	// Err is why the pod would not be created.
	Err error
}

// Client sends dry runs. It may be used concurrently.
type Client struct {
	pods dynamic.NamespaceableResourceInterface
}

// NewClient returns a client. It does not change config.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, collector{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return &Client{client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})}, nil
}

// Create creates the pod as a dry run.
func (c *Client) Create(ctx context.Context, namespace string, pod *unstructured.Unstructured) (answer Answer) {
	ctx = context.WithValue(ctx, collector{}, &answer.Warnings)
	answer.Pod, answer.Err = c.pods.Namespace(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return answer
}

// Denied reports whether Lanyard itself denied the pod of a dry run, so that it was
// called.
func Denied(err error) bool {
	return err != nil && strings.Contains(err.Error(), " denied the request: lanyard: ")
}

// collector adds the warnings of a response to the list in the request's context.
// It is also the key of that list.
type collector struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (collector) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	if warnings, ok := ctx.Value(collector{}).(*[]string); ok && code == 299 && text != "" {
		*warnings = append(*warnings, text)
	}
}

// Injected describes the injection into a pod.
func Injected(pod *unstructured.Unstructured, keys *annotations.Keys) (string, error) {
	read, err := injected.Read(pod.Object, keys)
	switch {
	case err != nil:
		return "", err
	case len(read.Providers) == 0:
		return "", fmt.Errorf("the pod has no annotation %s: the ServiceAccount has no identity annotation, or lanyard-webhook was not called", keys.Injected)
	case read.Volume == "":
		return "", fmt.Errorf("the pod has no volume %s, but annotation %s=%s", mutate.VolumeName, keys.Injected, strings.Join(read.Providers, ","))
	}
	return fmt.Sprintf("%s, from volume %s", strings.Join(read.Providers, ", "), read.Volume), nil
}
