// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules makes the decisions of the webhook about pods here, with the same
// packages, on objects that were read from files or from a cluster.
package rules

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Rules are the rules of the webhook, and the objects that they depend on. The zero
// value is of no use: see New.
type Rules struct {
	injector.Config
	serviceAccounts, namespaces store
	pods                        *injector.PodMutator
}

// New returns the rules without objects. A ServiceAccount that is not added does not
// exist. Manifests often leave out the Namespace: a Namespace that is not added has no
// annotations.
func New(s *settings.Settings) *Rules {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "")
	r := &Rules{serviceAccounts: store{map[string]metadatacache.Object{}, missing}, namespaces: store{map[string]metadatacache.Object{}, nil}}
	r.Config = injector.Config{Settings: s, ServiceAccounts: r.serviceAccounts, Namespaces: r.namespaces}
	r.pods = &injector.PodMutator{Config: r.Config, Recorder: Unrecorded{}}
	return r
}

// AddServiceAccount adds a ServiceAccount of the namespace.
func (r *Rules) AddServiceAccount(namespace string, meta *metav1.ObjectMeta) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: *meta}
	r.serviceAccounts.objects[namespace+"/"+meta.Name] = metadatacache.ObjectOf(object, annotations.Prefix, annotations.IdentityLabel, r.MaxServiceAccountBytes())
}

// AddNamespace adds a Namespace.
func (r *Rules) AddNamespace(meta *metav1.ObjectMeta) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: *meta}
	r.namespaces.objects["/"+meta.Name] = metadatacache.ObjectOf(object, annotations.Prefix, annotations.Inject, annotations.MaxNamespaceBytes)
}

// Called reports whether the webhook is called for the namespace, as far as the settings
// of the webhook and the label of the Namespace show it.
func (r *Rules) Called(namespace string) bool {
	return !r.Excludes(namespace, r.namespaces.objects["/"+namespace].Label)
}

// Pod returns the response of the webhook to the creation of a pod, and the pod
// afterwards. The error is a *reason.Error if the webhook would deny the pod.
func (r *Rules) Pod(ctx context.Context, namespace, serviceAccount string, pod json.RawMessage) (admission.Response, json.RawMessage, error) {
	response, err := admission.Ask(ctx, r.pods, "pod", namespace, pod, func(pod *mutate.Pod) error {
		pod.ServiceAccountName = serviceAccount
		return nil
	})
	if err != nil {
		return response, nil, err
	}
	mutated, err := Patched(pod, response.Patch.Bytes())
	return response, mutated, err
}

// Patched returns the JSON after a patch, if any.
func Patched(raw json.RawMessage, patch []byte) (json.RawMessage, error) {
	if len(patch) == 0 {
		return raw, nil
	}
	options := jsonpatch.NewApplyOptions()
	options.EscapeHTML = false
	operations, err := jsonpatch.DecodePatch(patch)
	if err == nil {
		raw, err = operations.ApplyWithOptions(raw, options)
	}
	if err != nil {
		return nil, fmt.Errorf("apply the patch: %w", err)
	}
	return raw, nil
}

// store has the annotations of objects by namespace/name. missing is the error for other
// objects.
type store struct {
	objects map[string]metadatacache.Object
	missing error
}

// Get implements injector.Getter.
func (s store) Get(_ context.Context, namespace, name string) (metadatacache.Object, error) {
	found, ok := s.objects[namespace+"/"+name]
	if !ok {
		return metadatacache.Object{}, s.missing
	}
	return found, nil
}

// Unrecorded discards the records of the webhook.
type Unrecorded struct{}

// RecordInjection implements injector.InjectionRecorder.
func (Unrecorded) RecordInjection(string) {}

// Invalidate implements the invalidator of the webhook's cache.
func (Unrecorded) Invalidate(string, string, string) {}
