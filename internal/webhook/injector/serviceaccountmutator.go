// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Invalidator is notified of objects that are being written.
type Invalidator interface {
	// Invalidate makes Get read the object from the API server until the cache has received
	// the write. The resource version is that before the write, or empty for a new object.
	Invalidate(namespace, name, resourceVersion string)
}

// invalidate reports the write to the invalidator. A ServiceAccount without a name, which the API
// server generates later, is in no cache.
func invalidate(invalidator Invalidator, request *admission.Request[ServiceAccount]) {
	if request.Object.name == "" {
		return
	}
	replaced := ""
	if request.OldObject != nil {
		replaced = request.OldObject.resourceVersion
	}
	invalidator.Invalidate(request.Namespace, request.Object.name, replaced)
}

// ServiceAccountMutator translates the annotations of peers, adds the
// annotations of the mappings, sets the identity label on the ServiceAccounts that ask for an identity,
// and removes it from the others. The label that a user set to annotations.IdentityRequired stays.
type ServiceAccountMutator struct {
	*annotations.Settings
	// Invalidator is notified of each ServiceAccount that the webhook is called for.
	Invalidator Invalidator
}

// Read implements admission.Decider.
func (m *ServiceAccountMutator) Read(s *rawjson.Scanner, object *ServiceAccount) error {
	return object.read(s, m.Settings)
}

// Decide implements admission.Decider.
func (m *ServiceAccountMutator) Decide(_ context.Context, request *admission.Request[ServiceAccount]) (admission.Response, error) {
	if err := expectServiceAccount(&request.Attributes); err != nil {
		return admission.Response{}, err
	}
	object := request.Object
	invalidate(m.Invalidator, request)
	return annotate(m.Settings, request.Namespace, object), nil
}

// Annotate returns the response of the mutating webhook to the JSON of a ServiceAccount of
// the namespace.
func Annotate(s *annotations.Settings, namespace string, serviceAccount []byte) (admission.Response, error) {
	object, err := readServiceAccount(s, serviceAccount)
	if err != nil {
		return admission.Response{}, err
	}
	return annotate(s, namespace, object), nil
}

func annotate(s *annotations.Settings, namespace string, object *ServiceAccount) admission.Response {
	a := annotator{Settings: s, object: object, Response: admission.Response{Reason: reason.Labeled}}
	a.label(a.annotate(namespace))
	if !a.patch.Empty() {
		a.Patch = &a.patch
	}
	return a.Response
}

// annotator builds the response for one ServiceAccount.
type annotator struct {
	*annotations.Settings
	admission.Response
	object *ServiceAccount
	patch  rawjson.Patch
}

// annotate translates the annotations of the peers and adds the annotations of the mappings.
// It reports whether the ServiceAccount then asks for an identity. It does not change a
// ServiceAccount with too many annotations, which were not all read.
func (a *annotator) annotate(namespace string) (asks bool) {
	object := a.object
	if len(a.Peers)+len(a.Mappings) == 0 || !object.isWhole(a.Settings) {
		return object.asks
	}
	after := maps.Clone(object.annotations)
	if len(a.Peers) > 0 {
		adoption := peer.Adopt(a.Settings, peer.Of(a.Settings), object.withPeers())
		a.Warnings = a.warnings(&adoption)
		if len(adoption.Set)+len(adoption.Remove) > 0 {
			a.Reason = reason.Adopted
		}
		a.add(adoption.Set)
		for _, key := range adoption.Remove {
			a.patch.Remove("/metadata/annotations/" + rawjson.EscapePointer(key))
			delete(after, key)
		}
		maps.Copy(after, adoption.Set)
	}
	if mapped := a.Map(namespace, object.name, after); len(mapped) > 0 {
		a.Reason = reason.Mapped
		a.add(mapped)
		maps.Copy(after, mapped)
	}
	return a.AskForIdentity(after)
}

// maxWarningBytes limits a warning of adoption: an API server shows 256 bytes.
const maxWarningBytes = 256

// warnings returns the warnings about an adoption.
func (a *annotator) warnings(adoption *peer.Adoption) []string {
	var warnings []string
	for _, finding := range adoption.Findings {
		warning := finding.String()
		warnings = append(warnings, "adoption: "+warning[:min(len(warning), maxWarningBytes)])
	}
	for _, key := range adoption.Remove {
		if a.IsIdentity(key) {
			// The annotation may come from a manifest from which the peer's annotation was removed.
			warnings = append(warnings, "adoption: "+key+" is removed with the annotation that it was translated from; to keep it, write the ServiceAccount again")
		}
	}
	return warnings
}

// add adds or replaces annotations.
func (a *annotator) add(add map[string]string) {
	if !a.object.hasAnnotations && len(add) > 0 {
		a.patch.Add("/metadata/annotations", []byte("{}"))
	}
	for _, key := range slices.Sorted(maps.Keys(add)) {
		a.patch.Add("/metadata/annotations/"+rawjson.EscapePointer(key), rawjson.AppendString(nil, add[key]))
	}
}

// label corrects the identity label. asks reports whether the ServiceAccount asks for an
// identity.
func (a *annotator) label(asks bool) {
	object := a.object
	path := "/metadata/labels/" + rawjson.EscapePointer(annotations.IdentityLabel)
	value := rawjson.AppendString(nil, annotations.IdentityEnabled)
	if object.hasLabel && !annotations.IsGuarded(object.label) {
		a.Warnings = append(a.Warnings, fmt.Sprintf("the label %s was %q, which has no meaning: a user can set it to %q",
			annotations.IdentityLabel, object.label, annotations.IdentityRequired))
	}
	switch {
	case object.label == annotations.IdentityRequired:
		// Only a user sets it or removes it.
	case asks && !object.hasLabels:
		member := append(rawjson.AppendString([]byte("{"), annotations.IdentityLabel), ':')
		a.patch.Add("/metadata/labels", append(append(member, value...), '}'))
	case asks && object.label != annotations.IdentityEnabled:
		a.patch.Add(path, value)
	case !asks && object.hasLabel:
		a.patch.Remove(path)
	case !asks && a.patch.Empty():
		a.Reason = reason.NoIdentity
	}
}
