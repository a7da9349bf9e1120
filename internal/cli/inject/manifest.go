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

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	lanyardpatch "github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
)

// Options are the settings of the webhook.
type Options struct {
	*settings.Settings
	// Namespace is the namespace of objects that do not name one.
	Namespace string
}

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
// object that the webhook would be called for, in their order. The error is for
// documents that are not objects of Kubernetes.
func Inject(ctx context.Context, documents []*Document, o *Options) ([]Result, error) {
	var objects []*object
	for _, d := range documents {
		found, err := d.objects()
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	run, err := newInjection(ctx, o, objects)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, found := range objects {
		result, err := run.decide(ctx, found)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", found.document.source, found.reference(), err)
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
}

// reference names the object for people.
func (o *object) reference() string {
	return strings.ToLower(o.meta.Kind) + "/" + cmp.Or(o.meta.Name, o.meta.GenerateName)
}

// groupKind returns the object's kind.
func (o *object) groupKind() schema.GroupKind { return o.meta.GroupVersionKind().GroupKind() }

var (
	serviceAccountKind = schema.GroupKind{Kind: "ServiceAccount"}
	namespaceKind      = schema.GroupKind{Kind: "Namespace"}
)

// injection is one call of Inject.
type injection struct {
	*Options
	pods            *injector.PodMutator
	serviceAccounts *injector.ServiceAccountMutator
	validator       *injector.ServiceAccountValidator
	// optedOut are the namespaces that the webhook is not called for.
	optedOut []string
}

// newInjection collects the ServiceAccounts and Namespaces.
func newInjection(ctx context.Context, o *Options, objects []*object) (*injection, error) {
	serviceAccounts, namespaces := store{}, store{}
	config := injector.Config{Settings: o.Settings, ServiceAccounts: serviceAccounts, Namespaces: orEmpty{namespaces}}
	run := &injection{
		Options: o, optedOut: slices.Clone(o.ExcludedNamespaces),
		pods:            &injector.PodMutator{Config: config, Recorder: unrecorded{}},
		serviceAccounts: &injector.ServiceAccountMutator{Settings: o.Settings, Invalidator: unrecorded{}},
		validator:       &injector.ServiceAccountValidator{Config: config, Invalidator: unrecorded{}},
	}
	for _, found := range objects {
		switch found.groupKind() {
		case serviceAccountKind:
			namespace := cmp.Or(found.meta.Namespace, o.Namespace)
			_, meta, err := run.mutate(ctx, found, namespace)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", found.document.source, found.reference(), err)
			}
			serviceAccounts[namespace+"/"+found.meta.Name] = metadatacache.ObjectOf(meta, o.Keys.Prefix, o.Keys.IdentityLabel, o.Keys.MaxServiceAccountBytes())
		case namespaceKind:
			namespace := metadatacache.ObjectOf(&found.meta, o.Keys.Prefix, o.Keys.Inject, annotations.MaxNamespaceBytes)
			namespaces["/"+found.meta.Name] = namespace
			if namespace.Label == annotations.LabelDisabled || namespace.Label == annotations.OptOut {
				run.optedOut = append(run.optedOut, found.meta.Name)
			}
		}
	}
	return run, nil
}

// mutate returns the response of the mutating webhook to a ServiceAccount, and its
// metadata afterwards.
func (run *injection) mutate(ctx context.Context, o *object, namespace string) (admission.Response, *metav1.PartialObjectMetadata, error) {
	if slices.Contains(run.ExcludedNamespaces, namespace) {
		return admission.Response{}, &o.meta, nil
	}
	var parsed injector.ServiceAccount
	if _, err := run.serviceAccounts.Read(jsonscan.New(o.raw), &parsed); err != nil {
		return admission.Response{}, nil, err
	}
	response, err := run.serviceAccounts.Decide(ctx, &admission.Request[injector.ServiceAccount]{Attributes: creation("serviceaccounts", namespace), Object: &parsed})
	if err != nil || response.Patch.Empty() {
		return response, &o.meta, err
	}
	mutated, err := patched(o.raw, response.Patch.Bytes(), nil)
	if err != nil {
		return response, nil, err
	}
	meta := new(metav1.PartialObjectMetadata)
	return response, meta, json.Unmarshal(mutated, meta)
}

// store has the annotations of objects by namespace/name.
type store map[string]metadatacache.Object

// Get implements injector.Getter.
func (s store) Get(_ context.Context, namespace, name string) (metadatacache.Object, error) {
	found, ok := s[namespace+"/"+name]
	if !ok {
		return metadatacache.Object{}, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, name)
	}
	return found, nil
}

// orEmpty is a store in which every object exists. Manifests often leave out the
// Namespace, which then has no annotations.
type orEmpty struct{ store }

// Get implements injector.Getter.
func (s orEmpty) Get(_ context.Context, namespace, name string) (metadatacache.Object, error) {
	return s.store[namespace+"/"+name], nil
}

// unrecorded discards the webhook's records.
type unrecorded struct{}

func (unrecorded) RecordInjection(string)    {}
func (unrecorded) Invalidate(string, string) {}

// decide decides about one object and changes its document. It returns nil for an
// object that the webhook would not be called for.
func (run *injection) decide(ctx context.Context, o *object) (*Result, error) {
	kind, isWorkload := cluster.ByGroupKind(o.groupKind())
	isServiceAccount := o.groupKind() == serviceAccountKind
	if !isWorkload && !isServiceAccount {
		return nil, nil
	}
	result := &Result{Object: o.reference(), Namespace: cmp.Or(o.meta.Namespace, run.Namespace)}
	var path []string
	var response admission.Response
	var err error
	switch {
	case isServiceAccount && slices.Contains(run.ExcludedNamespaces, result.Namespace):
		return nil, nil
	case isServiceAccount:
		response, err = run.serviceAccount(ctx, o, result.Namespace)
	case slices.Contains(run.optedOut, result.Namespace):
		result.Reason, result.Message = reason.OptedOut, "its namespace opts out"
		return result, nil
	default:
		path = kind.Template
		response, err = run.pod(ctx, o, &kind, result.Namespace)
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
	return result, o.document.apply(response.Patch.Bytes(), append(slices.Clone(o.path), path...))
}

// serviceAccount returns the response to the creation of a ServiceAccount: of the
// mutating webhook, and of the validating one to the result.
func (run *injection) serviceAccount(ctx context.Context, o *object, namespace string) (admission.Response, error) {
	response, meta, err := run.mutate(ctx, o, namespace)
	if err != nil {
		return response, err
	}
	raw, err := json.Marshal(meta)
	if err != nil {
		return response, err
	}
	var parsed injector.ServiceAccount
	if _, err := run.validator.Read(jsonscan.New(raw), &parsed); err != nil {
		return response, err
	}
	valid, err := run.validator.Decide(ctx, &admission.Request[injector.ServiceAccount]{Attributes: creation("serviceaccounts", namespace), Object: &parsed})
	response.Warnings = append(response.Warnings, valid.Warnings...)
	return response, err
}

// pod returns the response to the creation of a pod of the object. The patch is for
// the pod's template.
func (run *injection) pod(ctx context.Context, o *object, kind *cluster.Kind, namespace string) (admission.Response, error) {
	template, err := at(o.raw, kind.Template)
	if err != nil {
		return admission.Response{}, err
	}
	var whole unstructured.Unstructured
	if err := json.Unmarshal(o.raw, &whole.Object); err != nil {
		return admission.Response{}, err
	}
	var pod mutate.Pod
	if _, err := run.pods.Read(jsonscan.New(template), &pod); err != nil {
		return admission.Response{}, err
	}
	pod.ServiceAccountName = kind.ServiceAccount(&whole)
	return run.pods.Decide(ctx, &admission.Request[mutate.Pod]{Attributes: creation("pods", namespace), Object: &pod})
}

// creation returns the attributes of a request that creates an object.
func creation(resource, namespace string) admission.Attributes {
	return admission.Attributes{Version: "v1", Resource: resource, Operation: admission.Create, Namespace: namespace}
}

// at returns the JSON of a field.
func at(raw json.RawMessage, path []string) (json.RawMessage, error) {
	for i, name := range path {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(path[:i], "."), err)
		}
		if raw = members[name]; raw == nil {
			return nil, fmt.Errorf("%s: got none, want a pod template", strings.Join(path[:i+1], "."))
		}
	}
	return raw, nil
}

// apply applies a patch to the value at path. It leaves everything else as it is.
func (d *Document) apply(patch []byte, path []string) error {
	if len(patch) == 0 {
		return nil
	}
	result, err := patched(d.json, patch, path)
	if err != nil {
		return err
	}
	d.json, d.changed = result, true
	return nil
}

// patched returns the JSON after a patch of the value at path.
func patched(raw json.RawMessage, patch []byte, path []string) (json.RawMessage, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	var prefix strings.Builder
	for _, name := range path {
		prefix.WriteString("/" + lanyardpatch.Escape(name))
	}
	for _, operation := range operations {
		old, err := operation.Path()
		if err != nil {
			return nil, fmt.Errorf("read the patch: %w", err)
		}
		full, err := json.Marshal(prefix.String() + old)
		if err != nil {
			return nil, err
		}
		operation["path"] = (*json.RawMessage)(&full)
	}
	options := jsonpatch.NewApplyOptions()
	options.EscapeHTML = false
	result, err := operations.ApplyWithOptions(raw, options)
	if err != nil {
		return nil, fmt.Errorf("apply the patch: %w", err)
	}
	return result, nil
}

// objects returns the object of a document, or the objects of its list.
func (d *Document) objects() ([]*object, error) {
	if d.json == nil {
		return nil, nil
	}
	return d.objectsAt(nil, d.json)
}

func (d *Document) objectsAt(path []string, raw json.RawMessage) ([]*object, error) {
	o := &object{document: d, path: path, raw: raw}
	if err := json.Unmarshal(raw, &o.meta); err != nil {
		return nil, fmt.Errorf("%s: want an object of Kubernetes: %w", d.source, err)
	}
	if o.meta.Kind == "" || o.meta.APIVersion == "" {
		return nil, fmt.Errorf("%s: got apiVersion %q and kind %q, want both", d.source, o.meta.APIVersion, o.meta.Kind)
	}
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
		found, err := d.objectsAt(append(slices.Clone(path), "items", strconv.Itoa(i)), item)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
