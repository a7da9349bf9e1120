// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inject is the command inject. It injects identities into manifests without a
// cluster: it makes the decisions of the webhook, with the ServiceAccounts and Namespaces
// of the same manifests, and applies the same patches.
package inject

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/rules"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
)

// Result is the decision about one object.
type Result struct {
	// Object names it: deployment/cart.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	// Changed reports whether a patch was applied.
	Changed bool `json:"changed,omitempty"`
	// Denied reports whether the webhook would deny the object, or its pods.
	Denied bool `json:"denied,omitempty"`
	// Reason is the decision.
	Reason reason.Reason `json:"reason"`
	// Message is the error of a denial, or has details of the reason.
	Message string `json:"message,omitempty"`
	// Warnings are the webhook's warnings.
	Warnings []string `json:"warnings,omitempty"`
}

// Inject changes the documents as the webhook would. It returns a Result for each
// object that the webhook would be called for, in their order. s are the settings of the
// webhook, and namespace is the namespace of objects that do not name one. The error is
// for documents that are not objects of Kubernetes.
func Inject(ctx context.Context, documents []*Document, s *settings.Settings, namespace string) ([]Result, error) {
	var objects []*object
	for _, d := range documents {
		found, err := d.objects(namespace, nil, d.json)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	run, err := newInjection(ctx, s, objects)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, found := range objects {
		result, err := run.decide(ctx, found)
		if err != nil {
			return nil, found.error(err)
		}
		if result != nil {
			results = append(results, *result)
		}
	}
	return results, nil
}

// object is one object of a document.
type object struct {
	document *Document
	// path is where the object is in the document: empty, or its place in a list.
	path []string
	raw  json.RawMessage
	meta metav1.PartialObjectMetadata
	// whole is the object, for its pod template.
	whole *unstructured.Unstructured
	// namespace is the object's namespace, or the namespace of Inject.
	namespace string
}

// reference names the object for people.
func (o *object) reference() string {
	return strings.ToLower(o.meta.Kind) + "/" + cmp.Or(o.meta.Name, o.meta.GenerateName)
}

// error names the object in an error.
func (o *object) error(err error) error {
	return fmt.Errorf("%s: %s: %w", o.document.source, o.reference(), err)
}

// groupKind returns the object's kind.
func (o *object) groupKind() schema.GroupKind { return o.meta.GroupVersionKind().GroupKind() }

var (
	serviceAccountKind = schema.GroupKind{Kind: "ServiceAccount"}
	namespaceKind      = schema.GroupKind{Kind: "Namespace"}
)

// injection is one call of Inject.
type injection struct {
	*rules.Rules
	serviceAccounts *injector.ServiceAccountMutator
	validator       *injector.ServiceAccountValidator
}

// newInjection collects the ServiceAccounts and Namespaces.
func newInjection(ctx context.Context, s *settings.Settings, objects []*object) (*injection, error) {
	all := rules.New(s)
	run := &injection{
		Rules:           all,
		serviceAccounts: &injector.ServiceAccountMutator{Settings: s, Invalidator: rules.Unrecorded{}},
		validator:       &injector.ServiceAccountValidator{Config: all.Config, Invalidator: rules.Unrecorded{}},
	}
	for _, found := range objects {
		switch found.groupKind() {
		case serviceAccountKind:
			_, mutated, err := run.mutate(ctx, found)
			var meta metav1.PartialObjectMetadata
			if err == nil {
				err = json.Unmarshal(mutated, &meta)
			}
			if err != nil {
				return nil, found.error(err)
			}
			all.AddServiceAccount(found.namespace, &meta.ObjectMeta)
		case namespaceKind:
			all.AddNamespace(&found.meta.ObjectMeta)
		}
	}
	return run, nil
}

// mutate returns the response of the mutating webhook to a ServiceAccount, and the
// ServiceAccount afterwards.
func (run *injection) mutate(ctx context.Context, o *object) (admission.Response, json.RawMessage, error) {
	if slices.Contains(run.ExcludedNamespaces, o.namespace) {
		return admission.Response{}, o.raw, nil
	}
	response, err := admission.Ask(ctx, run.serviceAccounts, "serviceaccount", o.namespace, o.raw, nil)
	if err != nil {
		return response, nil, err
	}
	mutated, err := rules.Patched(o.raw, response.Patch.Bytes())
	return response, mutated, err
}

// decide decides about one object and changes its document. It returns nil for an
// object that the webhook would not be called for.
func (run *injection) decide(ctx context.Context, o *object) (*Result, error) {
	path, isWorkload := cluster.TemplatePath(o.whole)
	isServiceAccount := o.groupKind() == serviceAccountKind && !slices.Contains(run.ExcludedNamespaces, o.namespace)
	if _, known := cluster.ByGroupKind(o.groupKind()); known && !isWorkload {
		return nil, errors.New("the pod template is missing")
	}
	if !isWorkload && !isServiceAccount {
		return nil, nil
	}
	result := &Result{Object: o.reference(), Namespace: o.namespace}
	var response admission.Response
	var after json.RawMessage
	var err error
	switch {
	case isServiceAccount:
		response, after, err = run.serviceAccount(ctx, o)
	case !run.Called(o.namespace):
		result.Reason, result.Message = reason.OptedOut, "its namespace opts out"
		return result, nil
	default:
		response, after, err = run.pod(ctx, o, path)
	}
	denied, isDenied := errors.AsType[*reason.Error](err)
	unknown, isUnknown := errors.AsType[*reason.Fault](err)
	switch {
	case isDenied:
		result.Denied, result.Reason, result.Message = true, denied.Reason, denied.Err.Error()
		return result, nil
	case isUnknown && unknown.Reason == reason.ServiceAccountNotFound:
		result.Reason, result.Message = unknown.Reason, "the manifests do not have its ServiceAccount"
		return result, nil
	case err != nil:
		return nil, err
	}
	result.Reason, result.Warnings, result.Changed = response.Reason, response.Warnings, !response.Patch.Empty()
	if result.Changed {
		err = o.document.replace(append(slices.Clone(o.path), path...), after)
	}
	return result, err
}

// serviceAccount returns the response to the creation of a ServiceAccount: of the
// mutating webhook, and of the validating one to the result.
func (run *injection) serviceAccount(ctx context.Context, o *object) (admission.Response, json.RawMessage, error) {
	response, mutated, err := run.mutate(ctx, o)
	if err != nil {
		return response, nil, err
	}
	valid, err := admission.Ask(ctx, run.validator, "serviceaccount", o.namespace, mutated, nil)
	response.Warnings = append(response.Warnings, valid.Warnings...)
	return response, mutated, err
}

// pod returns the response to the creation of a pod of the object, and the pod's
// template afterwards.
func (run *injection) pod(ctx context.Context, o *object, path []string) (admission.Response, json.RawMessage, error) {
	template, err := at(o.raw, path)
	if err != nil {
		return admission.Response{}, nil, err
	}
	return run.Pod(ctx, o.namespace, cluster.ServiceAccountOf(o.whole), template)
}

// at returns the JSON of a field.
func at(raw json.RawMessage, path []string) (json.RawMessage, error) {
	for i, name := range path {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(path[:i], "."), err)
		}
		if raw = members[name]; raw == nil {
			return nil, fmt.Errorf("%s: the pod template is missing", strings.Join(path[:i+1], "."))
		}
	}
	return raw, nil
}

// replace replaces the value at path. It leaves everything else as it is.
func (d *Document) replace(path []string, value json.RawMessage) (err error) {
	d.changed = true
	if len(path) == 0 {
		d.json = value
		return nil
	}
	d.json, err = rules.Patched(d.json, fmt.Appendf(nil, `[{"op":"replace","path":%q,"value":%s}]`, "/"+strings.Join(path, "/"), value))
	return err
}

// objects returns the objects in a part of a document: one, the items of a list, or none.
func (d *Document) objects(namespace string, path []string, raw json.RawMessage) ([]*object, error) {
	if raw == nil {
		return nil, nil
	}
	o := &object{document: d, path: path, raw: raw, whole: &unstructured.Unstructured{}}
	if err := cmp.Or(json.Unmarshal(raw, &o.meta), json.Unmarshal(raw, &o.whole.Object)); err != nil {
		return nil, fmt.Errorf("%s: not an object of Kubernetes: %w", d.source, err)
	}
	if o.meta.Kind == "" || o.meta.APIVersion == "" {
		return nil, fmt.Errorf("%s: not an object of Kubernetes: apiVersion is %q and kind is %q", d.source, o.meta.APIVersion, o.meta.Kind)
	}
	o.namespace = cmp.Or(o.meta.Namespace, namespace)
	if !strings.HasSuffix(o.meta.Kind, "List") {
		return []*object{o}, nil
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.source, o.meta.Kind, err)
	}
	var objects []*object
	for i, item := range list.Items {
		found, err := d.objects(namespace, append(slices.Clone(path), "items", strconv.Itoa(i)), item)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
