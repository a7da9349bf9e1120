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
	_ "embed" // the pod
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/mutate"
)

// Webhook is the name of the entry of the webhook configuration that is called for
// Pod.
const Webhook = "probe.lanyard.dev"

//go:embed pod.yaml
var podText []byte

// Pod returns a pod of the ServiceAccount that every Pod Security Standard and the common
// rules of policy engines allow. Overrides are merged into the pod, one after another.
// Its label selects the entry of the webhook configuration whose failurePolicy is
// Fail.
func Pod(keys *annotations.Keys, serviceAccount string, overrides ...map[string]any) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(podText, &pod.Object); err != nil {
		panic(err) // the text is constant
	}
	own := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{keys.Probe: annotations.LabelProbe}},
		"spec":     map[string]any{"serviceAccountName": serviceAccount},
	}
	for _, o := range append([]map[string]any{own}, overrides...) {
		pod.Object = merge(pod.Object, o).(map[string]any)
	}
	return pod.DeepCopy() // nothing is shared with the overrides
}

// ParseOverrides reads fields of a pod, in JSON or YAML.
func ParseOverrides(text string) (map[string]any, error) {
	var overrides map[string]any
	if err := yaml.Unmarshal([]byte(text), &overrides); err != nil {
		return nil, fmt.Errorf("overrides of the pod: %w", err)
	}
	return overrides, nil
}

// merge returns the value with the other value's fields. The elements of lists are merged
// in their order, so that the first container needs no name.
func merge(value, with any) any {
	switch with := with.(type) {
	case map[string]any:
		if fields, ok := value.(map[string]any); ok {
			fields = maps.Clone(fields)
			for name, field := range with {
				fields[name] = merge(fields[name], field)
			}
			return fields
		}
	case []any:
		elements, _ := value.([]any)
		elements = slices.Clone(elements)
		for i, element := range with {
			if i == len(elements) {
				elements = append(elements, nil)
			}
			elements[i] = merge(elements[i], element)
		}
		return elements
	}
	return with
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

// denied matches the errors of pods that the webhook or the guard denies, also the errors
// that lanyard makes itself.
var denied = regexp.MustCompile(`(^| denied (the )?request: )lanyard: `)

// Denied reports whether Lanyard itself denied the pod of a dry run. For Pod, this means that
// the webhook was called: the guard comes after the webhook.
func Denied(err error) bool {
	return err != nil && denied.MatchString(err.Error())
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
