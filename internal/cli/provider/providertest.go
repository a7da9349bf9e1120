// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider is the command "provider test". For each custom provider of a
// configuration file, it injects into an example pod as the webhook does.
package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// The names of the ServiceAccount and its namespace.
const (
	Namespace      = "team"
	ServiceAccount = "app"
)

// Result holds the additions of one provider to a ServiceAccount and its pods.
type Result struct {
	Provider string `json:"provider"`
	// Annotations are the annotations of the ServiceAccount.
	Annotations map[string]string `json:"annotations"`
	// Environment has the variables of each container of the pod, in its order.
	Environment []corev1.EnvVar `json:"environment"`
	Token       Token           `json:"token"`
	Volume      Volume          `json:"volume"`
	// Warnings are the warnings of the webhook.
	Warnings []string `json:"warnings,omitempty"`
}

// Token is the token of a pod.
type Token struct {
	Audience          string `json:"audience"`
	ExpirationSeconds int64  `json:"expirationSeconds"`
	// File is the path in a container.
	File string `json:"file"`
}

// Volume is the volume with the token.
type Volume struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

// Run returns a Result for each custom provider of the file, in its order. o are the
// settings of a webhook that has the file. given are annotations by their keys without
// the prefix, in place of the defaults and examples of the file.
func Run(ctx context.Context, o *inject.Options, file *settings.File, given map[string]string) ([]Result, error) {
	if file == nil || len(file.Providers) == 0 {
		return nil, errors.New("got no providers, want at least one")
	}
	if err := checkGiven(file.Providers, given); err != nil {
		return nil, err
	}
	var results []Result
	for _, d := range file.Providers {
		result, err := injectInto(ctx, o, d, exampleAnnotations(d, file, given))
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", d.Name, err)
		}
		results = append(results, *result)
	}
	return results, nil
}

// checkGiven checks that each annotation is one of a provider.
func checkGiven(providers []*provider.Definition, given map[string]string) error {
	var known []string
	for _, d := range providers {
		known = append(known, keysOf(d)...)
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, key) {
			return fmt.Errorf("got annotation %q, want one of %s", key, strings.Join(known, ", "))
		}
	}
	return nil
}

// keysOf returns the annotations of a provider, by their keys without the prefix.
func keysOf(d *provider.Definition) []string {
	var keys []string
	for i := range d.Parameters {
		keys = append(keys, d.Key(d.Parameters[i].Name))
	}
	return append(keys, d.Key("audience"))
}

// exampleAnnotations returns annotations that ask for an identity of the provider, by
// their keys without the prefix. Of the file, a default comes before an example.
func exampleAnnotations(d *provider.Definition, file *settings.File, given map[string]string) map[string]string {
	values := map[string]string{}
	for _, key := range keysOf(d) {
		if value, isGiven := given[key]; isGiven {
			values[key] = value
		}
	}
	for i := range d.Parameters {
		p := &d.Parameters[i]
		key := d.Key(p.Name)
		hasDefault := file.Parameters[key] != ""
		switch _, isGiven := values[key]; {
		case isGiven, hasDefault && !p.Required:
		case hasDefault:
			values[key] = annotations.ClusterDefault
		default:
			values[key] = cmp.Or(file.Examples[key], "example")
		}
	}
	return values
}

// injectInto injects into a pod of a ServiceAccount with the annotations.
func injectInto(ctx context.Context, o *inject.Options, d *provider.Definition, values map[string]string) (*Result, error) {
	result := &Result{Provider: d.Name, Annotations: map[string]string{}}
	for key, value := range values {
		result.Annotations[o.Keys.Prefix+key] = value
	}
	documents, err := objects(result.Annotations)
	if err != nil {
		return nil, err
	}
	decisions, err := inject.Inject(ctx, documents, o)
	if err != nil {
		return nil, err
	}
	for _, decision := range decisions {
		if decision.Denied {
			return nil, fmt.Errorf("%s: %s", decision.Reason, decision.Message)
		}
		result.Warnings = append(result.Warnings, decision.Warnings...)
	}
	var text bytes.Buffer
	if err := inject.Write(&text, documents[1:]); err != nil {
		return nil, err
	}
	pod, err := injected.Read(json.RawMessage(text.Bytes()), o.Keys)
	if err != nil {
		return nil, err
	}
	return result, result.read(pod)
}

// objects returns a ServiceAccount and a pod that uses it.
func objects(values map[string]string) ([]*inject.Document, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, object := range []any{
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: ServiceAccount, Annotations: values},
		},
		&corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "pod"},
			Spec:       corev1.PodSpec{ServiceAccountName: ServiceAccount, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
		},
	} {
		if err := encoder.Encode(object); err != nil {
			return nil, fmt.Errorf("encode the example: %w", err)
		}
	}
	return inject.Read("example", &text)
}

// read reads the injection back from a pod.
func (r *Result) read(pod *injected.Pod) error {
	if len(pod.Tokens) != 1 || pod.MountPath == "" {
		return fmt.Errorf("got %d tokens and the mount path %q, want one token and a path", len(pod.Tokens), pod.MountPath)
	}
	for _, v := range pod.Containers[0].Variables {
		r.Environment = append(r.Environment, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	token := &pod.Tokens[0]
	r.Token = Token{Audience: token.Audience, ExpirationSeconds: token.ExpirationSeconds, File: token.File}
	r.Volume = Volume{Name: pod.Volume, MountPath: pod.MountPath}
	return nil
}
