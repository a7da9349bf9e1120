// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
)

// Invalidator is told of objects that are being written.
type Invalidator interface {
	// Invalidate makes Get read the object from the API server for a short while.
	Invalidate(namespace, name string)
}

// ServiceAccountMutator translates the annotations of peers, adds the
// annotations of the mappings, sets the identity label on the ServiceAccounts that ask for an identity,
// and removes it from the others. The label that a user set to annotations.LabelRequired stays.
type ServiceAccountMutator struct {
	*settings.Settings
	// Invalidator is told of each ServiceAccount that the webhook is called for.
	Invalidator Invalidator
}

// Read implements admission.Decider.
func (m *ServiceAccountMutator) Read(s *jsonscan.Scanner, object *ServiceAccount) (cost int, err error) {
	return serviceAccountBytes, readServiceAccount(s, m.Keys, m.Peers, object)
}

// Decide implements admission.Decider.
func (m *ServiceAccountMutator) Decide(_ context.Context, request *admission.Request[ServiceAccount]) (admission.Response, error) {
	if err := expectServiceAccount(&request.Attributes); err != nil {
		return admission.Response{}, err
	}
	object := request.Object
	if object.name != "" {
		m.Invalidator.Invalidate(request.Namespace, object.name)
	}
	response := admission.Response{Reason: reason.Labeled}
	m.adopt(&response, object)
	if added := m.mapped(request.Namespace, object); len(added) > 0 {
		response.Reason = reason.Mapped
		addAnnotations(&response.Patch, object, added)
		object.asks = true
	}
	m.label(&response, object)
	return response, nil
}

// maxWarningBytes limits a warning of adoption: an API server shows 256 bytes.
const maxWarningBytes = 256

// adopt translates the annotations of the peers. Nothing is done to a ServiceAccount
// with too many annotations: not all of them are known.
func (m *ServiceAccountMutator) adopt(response *admission.Response, object *ServiceAccount) {
	if len(m.Peers) == 0 || object.annotationBytes > m.Keys.MaxServiceAccountBytes() {
		return
	}
	values := maps.Clone(object.annotations)
	maps.Copy(values, object.peerAnnotations)
	adoption := peer.Adopt(m.Keys, m.Peers, values, m.Defaults)
	for _, finding := range adoption.Findings {
		warning := finding.String()
		response.Warnings = append(response.Warnings, "adoption: "+warning[:min(len(warning), maxWarningBytes)])
	}
	if len(adoption.Set) == 0 && len(adoption.Remove) == 0 {
		return
	}
	response.Reason = reason.Adopted
	addAnnotations(&response.Patch, object, adoption.Set)
	object.hasAnnotations = true
	for _, key := range adoption.Remove {
		if m.Keys.IsIdentity(key) {
			// It may be in a manifest from which the peer's annotation was removed.
			response.Warnings = append(response.Warnings, "adoption: "+key+" is removed with the annotation that it was translated from; to keep it, write the ServiceAccount again")
		}
		response.Patch.Remove("/metadata/annotations/" + jsonpatch.Escape(key))
		delete(object.annotations, key)
	}
	maps.Copy(object.annotations, adoption.Set)
	object.asks = m.Keys.AskForIdentity(object.annotations)
}

// mapped returns the annotations that the mappings add. Nothing is added to a
// ServiceAccount with too many annotations: not all of them are known.
func (m *ServiceAccountMutator) mapped(namespace string, object *ServiceAccount) map[string]string {
	if len(m.Mappings) == 0 || object.annotationBytes > m.Keys.MaxServiceAccountBytes() {
		return nil
	}
	return m.Keys.Map(m.Mappings, namespace, object.name, object.annotations)
}

// addAnnotations adds annotations, or replaces them.
func addAnnotations(patch *jsonpatch.Patch, object *ServiceAccount, add map[string]string) {
	if !object.hasAnnotations && len(add) > 0 {
		patch.Add("/metadata/annotations", []byte("{}"))
	}
	for _, key := range slices.Sorted(maps.Keys(add)) {
		patch.Add("/metadata/annotations/"+jsonpatch.Escape(key), jsonscan.AppendString(nil, add[key]))
	}
}

// label makes the identity label right.
func (m *ServiceAccountMutator) label(response *admission.Response, object *ServiceAccount) {
	path := "/metadata/labels/" + jsonpatch.Escape(m.Keys.IdentityLabel)
	value := jsonscan.AppendString(nil, annotations.LabelEnabled)
	if object.hasLabel && !annotations.IsGuarded(object.label) {
		response.Warnings = append(response.Warnings, fmt.Sprintf("the label %s was %q, which has no meaning: a user can set it to %q",
			m.Keys.IdentityLabel, object.label, annotations.LabelRequired))
	}
	switch {
	case object.label == annotations.LabelRequired:
		// Only a user sets it or removes it.
	case object.asks && !object.hasLabels:
		member := append(jsonscan.AppendString([]byte("{"), m.Keys.IdentityLabel), ':')
		response.Patch.Add("/metadata/labels", append(append(member, value...), '}'))
	case object.asks && object.label != annotations.LabelEnabled:
		response.Patch.Add(path, value)
	case !object.asks && object.hasLabel:
		response.Patch.Remove(path)
	case !object.asks && response.Patch.Empty():
		response.Reason = reason.NoIdentity
	}
}
