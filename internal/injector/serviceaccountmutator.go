// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// Invalidator is told of objects that are being written.
type Invalidator interface {
	// Invalidate makes Get read the object from the API server for a short while.
	Invalidate(namespace, name string)
}

// ServiceAccountMutator sets the identity label on the ServiceAccounts that ask
// for an identity, and removes it from the others.
type ServiceAccountMutator struct {
	Keys *annotations.Keys
	// Invalidator is told of each ServiceAccount that the webhook is called for.
	Invalidator Invalidator
}

// Read implements admission.Decider.
func (m *ServiceAccountMutator) Read(s *jsonscan.Scanner, object *ServiceAccount) error {
	return readServiceAccount(s, m.Keys, object)
}

// Size implements admission.Decider.
func (m *ServiceAccountMutator) Size(*ServiceAccount) int { return serviceAccountBytes }

// Decide implements admission.Decider.
func (m *ServiceAccountMutator) Decide(_ context.Context, request *admission.Request[ServiceAccount]) (admission.Response, error) {
	if err := expectServiceAccount(&request.Attributes); err != nil {
		return admission.Response{}, err
	}
	object := request.Object
	if object.name != "" {
		m.Invalidator.Invalidate(request.Namespace, object.name)
	}
	path := "/metadata/labels/" + jsonpatch.Escape(m.Keys.IdentityLabel)
	value := jsonscan.AppendString(nil, annotations.LabelEnabled)
	response := admission.Response{Reason: reason.Labeled}
	switch {
	case object.asks && !object.hasLabels:
		member := append(jsonscan.AppendString([]byte("{"), m.Keys.IdentityLabel), ':')
		response.Patch.Add("/metadata/labels", append(append(member, value...), '}'))
	case object.asks && object.label != annotations.LabelEnabled:
		response.Patch.Add(path, value)
	case !object.asks && object.hasLabel:
		response.Patch.Remove(path)
	case !object.asks:
		response.Reason = reason.NoIdentity
	}
	return response, nil
}
