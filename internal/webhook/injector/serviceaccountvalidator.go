// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// ServiceAccountValidator denies ServiceAccounts with mistakes that would
// otherwise be found when their next pod is created.
type ServiceAccountValidator struct {
	Config
	// Invalidator is notified of each ServiceAccount whose annotations change.
	Invalidator Invalidator
}

// Read implements admission.Decider.
func (v *ServiceAccountValidator) Read(s *rawjson.Scanner, object *ServiceAccount) error {
	return object.read(s, v.Settings)
}

// Decide implements admission.Decider.
func (v *ServiceAccountValidator) Decide(ctx context.Context, request *admission.Request[ServiceAccount]) (admission.Response, error) {
	if err := expectServiceAccount(&request.Attributes); err != nil {
		return admission.Response{}, err
	}
	object, old := request.Object, request.OldObject
	unchanged := old != nil && old.annotationBytes == object.annotationBytes && maps.Equal(old.annotations, object.annotations)
	if !unchanged {
		invalidate(v.Invalidator, request)
	}
	return v.validate(request.Namespace, object, unchanged, func() (annotations.Object, error) { return v.namespace(ctx, request.Namespace) })
}

// Validate returns the response of the validating webhook to the JSON of a new
// ServiceAccount. namespace is its Namespace. The error is a *reason.Error if the webhook
// would deny the ServiceAccount.
func Validate(s *annotations.Settings, namespace *annotations.Object, serviceAccount []byte) (admission.Response, error) {
	object, err := readServiceAccount(s, serviceAccount)
	if err != nil {
		return admission.Response{}, err
	}
	v := ServiceAccountValidator{Config: Config{Settings: s}}
	return v.validate(namespace.Name, object, false, func() (annotations.Object, error) { return *namespace, nil })
}

// validate decides about a ServiceAccount. It looks up the Namespace only for a
// ServiceAccount that asks for an identity.
func (v *ServiceAccountValidator) validate(namespace string, object *ServiceAccount, unchanged bool, lookup func() (annotations.Object, error)) (admission.Response, error) {
	doubts, err := v.check(namespace, object, lookup)
	if denied, ok := errors.AsType[*reason.Error](err); ok && (unchanged || v.isAdopted(namespace, object)) {
		// The mistake is older than this write, which changes something else, such as a
		// finalizer, or it is in an annotation of a peer, which may have accepted it. The
		// write must not be denied.
		return admission.Response{Reason: denied.Reason, Warnings: []string{err.Error()}}, nil
	}
	return admission.Response{Reason: reason.Valid, Warnings: doubts}, err
}

// isAdopted reports whether all mistakes are in adopted annotations. A missing value counts
// as a mistake of the identity that needs it.
func (v *ServiceAccountValidator) isAdopted(namespace string, object *ServiceAccount) bool {
	if len(v.Peers) == 0 || !object.isWhole(v.Settings) {
		return false
	}
	adopted := peer.Adopted(v.Settings, peer.Of(v.Settings), object.withPeers())
	_, errs := v.ParseServiceAccount(namespace, object.name, object.annotations)
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(err *field.Error) bool {
		mistaken := annotations.KeyOf(err)
		return !slices.ContainsFunc(adopted, func(key string) bool {
			return key == mistaken || err.Type == field.ErrorTypeRequired && v.Owner(key) != nil && v.Owner(key) == v.Owner(mistaken)
		})
	})
}

// check returns reasons why SDKs cannot use identities, and the first error in the
// annotations, as a *reason.Error.
func (v *ServiceAccountValidator) check(namespace string, object *ServiceAccount, lookup func() (annotations.Object, error)) (doubts []string, err error) {
	account := annotations.Object{Namespace: namespace, Name: object.name, Annotations: object.annotations}
	if !object.isWhole(v.Settings) {
		account.Annotations, account.TooLarge = nil, object.annotationBytes
	}
	identity, err := mutate.Account(v.Settings, &account)
	if err != nil || identity == nil {
		return nil, err
	}
	if err := mutate.CheckWritten(v.Settings, &account, identity); err != nil {
		return nil, err
	}
	policy, err := lookup()
	if err != nil {
		return nil, err
	}
	return identity.Doubts(), mutate.CheckPolicy(v.Settings, &account, identity, &policy)
}
