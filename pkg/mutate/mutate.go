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
	"errors"

	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
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
// identities; nil stands for a namespace without annotations. The error is a *Denial,
// unless the JSON is malformed or the pod has another ServiceAccount.
func (m *Mutator) Create(pod []byte, serviceAccount, namespace annotations.Metadata) (Result, error) {
	read, err := mutate.ReadPod(pod, m.settings.Settings)
	if err != nil {
		return Result{}, err
	}
	var policy *annotations.Object
	if namespace != nil {
		policy = annotations.NamespaceObject(namespace)
	}
	decision, err := mutate.Decide(m.settings.Settings, annotations.ServiceAccountObject(serviceAccount), policy, read)
	if denied, ok := errors.AsType[*reason.Error](err); ok {
		return Result{}, &Denial{Reason: string(denied.Reason), Message: denied.Err.Error()}
	}
	if err != nil {
		return Result{}, err
	}
	_, warnings := decision.Texts()
	return Result{Patch: decision.Patch, Reason: string(decision.Reason), Warnings: warnings}, nil
}
