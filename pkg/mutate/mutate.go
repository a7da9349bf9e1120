// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutate injects the identities of a ServiceAccount into the JSON of a pod: it
// returns the JSON Patch, the warnings and the reasons of lanyard-webhook. Operators use it
// in a pod webhook of their own, and in tests of the pods that they create.
//
// The reasons are words of docs/reference/reasons.md.
//
// Unstable before v1: a minor version may change the API.
package mutate

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Mutator decides about pods. It may be used concurrently. Make it with New.
type Mutator struct{ settings *settings.Settings }

// New returns a Mutator for a cluster with the settings of a configuration file of
// lanyard-webhook. reservedAudiences are audiences of the API server in addition to the
// common audiences.
func New(config []byte, reservedAudiences []string) (*Mutator, error) {
	s, err := settings.Load(config, reservedAudiences)
	if err != nil {
		return nil, err
	}
	return &Mutator{s}, nil
}

// Result is the decision to allow a pod.
type Result struct {
	// Patch is the JSON Patch, nil if nothing is missing.
	Patch []byte
	// Reason is the decision, such as injected or no_identity.
	Reason string
	// Warnings are for the author of the pod.
	Warnings []string
}

// Denial is the error for a pod that must not be created.
type Denial struct {
	// Reason is the decision, such as invalid_annotation.
	Reason string
	// Message names the object, the key, the value and the allowed form.
	Message string
}

// Error implements error.
func (d *Denial) Error() string { return d.Reason + ": " + d.Message }

// Create decides about a new pod of the ServiceAccount. The namespace has the policy for
// identities; nil, or a nil *corev1.Namespace, stands for a namespace without annotations.
// The error is a *Denial, unless the JSON is malformed or the pod has another ServiceAccount.
func (m *Mutator) Create(pod []byte, serviceAccount, namespace metav1.Object) (Result, error) {
	mutator := injector.PodMutator{Config: injector.Config{
		Settings:        m.settings,
		ServiceAccounts: m.only(serviceAccount, annotations.IdentityLabel, m.settings.MaxServiceAccountBytes()),
		Namespaces:      m.only(namespace, "", annotations.MaxNamespaceBytes),
	}}
	response, err := admission.Ask(context.Background(), &mutator, "pod", serviceAccount.GetNamespace(), pod, func(parsed *mutate.Pod) error {
		if got, want := parsed.ServiceAccountName, serviceAccount.GetName(); got != want {
			return fmt.Errorf("pod: spec.serviceAccountName: got %q, want %q", got, want)
		}
		return nil
	})
	if denied, ok := errors.AsType[*reason.Error](err); ok {
		return Result{}, &Denial{Reason: string(denied.Reason), Message: denied.Err.Error()}
	}
	return Result{Patch: response.Patch.Bytes(), Reason: string(response.Reason), Warnings: response.Warnings}, err
}

// only returns a store with the annotations and the label of one object.
func (m *Mutator) only(object metav1.Object, label string, maxBytes int) store {
	var meta metav1.PartialObjectMetadata
	if value := reflect.ValueOf(object); value.IsValid() && !(value.Kind() == reflect.Pointer && value.IsNil()) {
		meta.Annotations, meta.Labels = object.GetAnnotations(), object.GetLabels()
	}
	return store(metadatacache.ObjectOf(&meta, annotations.Prefix, label, maxBytes))
}

// store has one object, under every name.
type store metadatacache.Object

// Get implements injector.Getter.
func (s store) Get(context.Context, string, string) (metadatacache.Object, error) {
	return metadatacache.Object(s), nil
}
