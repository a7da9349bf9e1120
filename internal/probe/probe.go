// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe sends the API server dry runs of pods to test whether Lanyard injects
// credentials, and reports findings with their fixes.
//
// lanyard-webhook uses this package, so it imports no types of the Kubernetes API: they
// nearly double the size of the program (see ARCHITECTURE.md).
package probe

import (
	"context"
	_ "embed" // the pod
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cause"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// Webhook is the name of the webhook that the API server calls for Pod.
const Webhook = "probe.lanyard.dev"

//go:embed pod.yaml
var podText []byte

// Pod returns a pod of the ServiceAccount that every Pod Security Standard and the common
// rules of policy engines allow. Overrides are merged into the pod, one after another.
// Its label selects the entry of the webhook configuration whose failurePolicy is
// Fail.
func Pod(serviceAccount string, overrides ...map[string]any) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(podText, &pod.Object); err != nil {
		panic(err) // the text is constant
	}
	own := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{annotations.Probe: annotations.LabelProbe}},
		"spec":     map[string]any{"serviceAccountName": serviceAccount},
	}
	for _, o := range append([]map[string]any{own}, overrides...) {
		merge(pod.Object, o)
	}
	return pod
}

// ParseOverrides reads fields of a pod, in JSON or YAML.
func ParseOverrides(text string) (map[string]any, error) {
	var overrides any
	if err := yaml.Unmarshal([]byte(text), &overrides); err != nil {
		return nil, fmt.Errorf("overrides of the pod: %w", err)
	}
	fields, isObject := overrides.(map[string]any)
	if !isObject && overrides != nil {
		return nil, errors.New(`overrides of the pod: no fields of a pod, such as {"metadata":{"labels":{"team":"shop"}}}`)
	}
	return fields, nil
}

// merge merges a deep copy of another value. List elements are merged by index, so that the
// first container needs no name.
func merge(value, with any) any {
	switch with := with.(type) {
	case map[string]any:
		fields, isObject := value.(map[string]any)
		if !isObject {
			fields = map[string]any{}
		}
		for name, field := range with {
			fields[name] = merge(fields[name], field)
		}
		return fields
	case []any:
		elements, _ := value.([]any)
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
	// Pod is the pod as it would be stored, or nil if there is an error.
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

// denied matches denials by the webhook or the guard, including the errors that lanyard
// computes itself.
var denied = regexp.MustCompile(`(^| denied (the )?request: )lanyard: `)

// Denied reports whether Lanyard denied the pod. For Pod, this proves that the webhook was
// called, because the guard runs after it.
func Denied(err error) bool {
	return err != nil && denied.MatchString(err.Error())
}

// collector adds the warnings of a response to the list in the request's context, for which
// it is also the key.
type collector struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (collector) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	if warnings, ok := ctx.Value(collector{}).(*[]string); ok && code == 299 && text != "" {
		*warnings = append(*warnings, text)
	}
}

// DryRun judges the dry run of a pod of the ServiceAccount with the probe label: whether the
// API server can call the webhook, and whether the pod would get credentials.
func DryRun(s *annotations.Settings, serviceAccount string, answer Answer) (called, tried finding.Finding) {
	called = Probe(answer.Err)
	switch {
	case called.Status == finding.OK:
		tried = Injection(s, serviceAccount, answer)
	case noServiceAccount.MatchString(answer.Err.Error()):
		tried = NoServiceAccount(serviceAccount)
	case called.Status == finding.Failed:
		tried = finding.Skip("", "Correct the cause first.", "", "pods of ServiceAccount %s were not tested: the API server cannot call the webhook", serviceAccount)
	default:
		tried = finding.Skip("", called.Fix, "", "pods of ServiceAccount %s were not tested: no dry run reached the webhook", serviceAccount)
	}
	return called, tried
}

// NoServiceAccount returns the finding about a ServiceAccount that does not exist.
func NoServiceAccount(serviceAccount string) finding.Finding {
	return finding.Fail("", "Create it, or correct the name.", "reference/annotations.md", "ServiceAccount %s does not exist", serviceAccount)
}

// noServiceAccount matches the error for a pod whose ServiceAccount does not exist.
var noServiceAccount = regexp.MustCompile(`error looking up service account \S+: serviceaccount "\S+" not found`)

// Probe judges the error of a dry run with the probe label. A denial by Lanyard proves that
// the webhook was called.
func Probe(err error) finding.Finding {
	if err == nil || Denied(err) {
		return finding.Passed("the API server can call the webhook")
	}
	if strings.Contains(err.Error(), Webhook) {
		why := cause.Webhook(err.Error())
		return finding.Fail("", why.Advice(), why.Link, "the API server cannot call the webhook: %v", err)
	}
	if right := finding.LackedRight(err); right != "" {
		return Unasked(right)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return finding.Skip("", "Choose another namespace with --namespace, or set the image, labels or other fields of the pod with --overrides.", "",
			"the dry run of a pod was denied, but not by Lanyard: %v", err)
	}
	return finding.Skip("", "Check the connection to the API server.", "", "the API server did not respond to the dry run of a pod: %v", err)
}

// Unasked returns the finding for a user who lacks the right to send the dry run.
func Unasked(right string) finding.Finding {
	return finding.NoRight(right, "could not determine whether the API server can call the webhook")
}

// Injection judges the dry run of a pod whose ServiceAccount needs credentials.
func Injection(s *annotations.Settings, serviceAccount string, answer Answer) finding.Finding {
	read, err := &injected.Pod{}, answer.Err
	if err == nil {
		read, err = injected.Read(answer.Pod.Object, s)
	}
	providers := strings.Join(read.Providers, ", ")
	switch {
	case err != nil:
	case providers == "":
		err = fmt.Errorf("the pod has no annotation %s: the ServiceAccount has no identity annotation, or lanyard-webhook was not called", annotations.Injected)
	case read.Volume == "":
		err = fmt.Errorf("the pod has no token volume, but annotation %s=%s", annotations.Injected, strings.Join(read.Providers, ","))
	default:
		return finding.Passed("pods of ServiceAccount %s get credentials: %s, from volume %s", serviceAccount, providers, read.Volume)
	}
	namespace, name, _ := strings.Cut(serviceAccount, "/")
	return finding.Fail("", "Run: lanyard explain serviceaccount "+name+" --namespace "+namespace, "reference/reasons.md", "pods of ServiceAccount %s get no credentials: %v", serviceAccount, err)
}
