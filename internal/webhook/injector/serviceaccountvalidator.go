// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"errors"
	"maps"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
)

// ServiceAccountValidator denies ServiceAccounts with mistakes that would
// otherwise be found when their next pod is created.
type ServiceAccountValidator struct {
	Config
	// Invalidator is told of each ServiceAccount whose annotations change.
	Invalidator Invalidator
}

// Read implements admission.Decider.
func (v *ServiceAccountValidator) Read(s *jsonscan.Scanner, object *ServiceAccount) (cost int, err error) {
	return serviceAccountBytes, readServiceAccount(s, v.Keys, nil, object)
}

// Decide implements admission.Decider.
func (v *ServiceAccountValidator) Decide(ctx context.Context, request *admission.Request[ServiceAccount]) (admission.Response, error) {
	if err := expectServiceAccount(&request.Attributes); err != nil {
		return admission.Response{}, err
	}
	object, old := request.Object, request.OldObject
	unchanged := old != nil && old.annotationBytes == object.annotationBytes && maps.Equal(old.annotations, object.annotations)
	if object.name != "" && !unchanged {
		v.Invalidator.Invalidate(request.Namespace, object.name)
	}
	err := v.check(ctx, request.Namespace, object)
	if denied, ok := errors.AsType[*reason.Error](err); ok && (unchanged || v.isAdopted(object) || old != nil && v.isAdopted(old)) {
		// The mistake is older than this write, which changes something else, such as a
		// finalizer. Or it is in an annotation of a peer, which may have accepted it.
		// The write must not be denied.
		return admission.Response{Reason: denied.Reason, Warnings: []string{err.Error()}}, nil
	}
	return admission.Response{Reason: reason.Valid}, err
}

// isAdopted reports whether annotations of a peer were translated.
func (v *ServiceAccountValidator) isAdopted(object *ServiceAccount) bool {
	_, found := object.annotations[v.Keys.Adopted]
	return found
}

// check returns the first error in the annotations, as a *reason.Error.
func (v *ServiceAccountValidator) check(ctx context.Context, namespace string, object *ServiceAccount) error {
	if most := v.Keys.MaxServiceAccountBytes(); object.annotationBytes > most {
		return v.tooManyBytes("serviceaccount", namespace+"/"+object.name, object.annotationBytes, most)
	}
	identity, err := v.identity(namespace, object.name, object.annotations)
	if err != nil || identity == nil {
		return err
	}
	return v.checkPolicy(ctx, namespace, object.name, identity)
}
