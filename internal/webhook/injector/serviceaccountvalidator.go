// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
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
	doubts, err := v.check(ctx, request.Namespace, object)
	if denied, ok := errors.AsType[*reason.Error](err); ok && (unchanged || v.isAdopted(request.Namespace, object)) {
		// The mistake is older than this write, which changes something else, such as a
		// finalizer. Or it is in an annotation of a peer, which may have accepted it.
		// The write must not be denied.
		return admission.Response{Reason: denied.Reason, Warnings: []string{err.Error()}}, nil
	}
	return admission.Response{Reason: reason.Valid, Warnings: doubts}, err
}

// isAdopted reports whether all mistakes of the ServiceAccount are in annotations that
// follow a peer's. A missing value is a mistake of the identity that needs the value.
func (v *ServiceAccountValidator) isAdopted(namespace string, object *ServiceAccount) bool {
	if len(v.Peers) == 0 || !object.isWhole(v.Settings) {
		return false
	}
	adopted := peer.Adopted(v.Settings.Settings, v.Peers, object.withPeers())
	_, errs := v.ParseServiceAccount(namespace, object.name, object.annotations)
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(err *field.Error) bool {
		provider, _, _ := strings.Cut(strings.TrimPrefix(err.Field, "metadata.annotations["+annotations.Prefix), "-")
		return !slices.ContainsFunc(adopted, func(key string) bool {
			return strings.HasSuffix(err.Field, "["+key+"]") ||
				err.Type == field.ErrorTypeRequired && strings.HasPrefix(key, annotations.Prefix+provider+"-")
		})
	})
}

// check returns why SDKs cannot use identities, and the first error in the annotations, as a
// *reason.Error.
func (v *ServiceAccountValidator) check(ctx context.Context, namespace string, object *ServiceAccount) (doubts []string, err error) {
	if !object.isWhole(v.Settings) {
		return nil, v.tooManyBytes("serviceaccount", namespace+"/"+object.name, object.annotationBytes, v.MaxServiceAccountBytes())
	}
	identity, err := v.identity(namespace, object.name, object.annotations)
	if err != nil || identity == nil {
		return nil, err
	}
	if err := v.checkSize(namespace, object.name, identity); err != nil {
		return nil, err
	}
	return identity.Doubts(), v.checkPolicy(ctx, namespace, object.name, identity)
}

// longestGenerated is as long as the longest name that the API server generates. It does so
// after admission.
var longestGenerated = strings.Repeat("x", 63)

// checkSize checks that the identities fit into a container: otherwise all pods of the
// ServiceAccount would be denied.
func (v *ServiceAccountValidator) checkSize(namespace, name string, identity *annotations.ServiceAccount) error {
	for _, windows := range []bool{false, true} {
		injection := provider.NewInjection(identity.Identities, &provider.Subject{
			Namespace: namespace, ServiceAccount: cmp.Or(name, longestGenerated), MountPath: v.TokenMountPath,
			TokenExpirationSeconds: annotations.MaxTokenExpirationSeconds, Windows: windows,
		})
		if err := mutate.NewInjection(injection).CheckSize(); err != nil {
			return &reason.Error{Reason: reason.TooLarge, Err: fmt.Errorf("serviceaccount %q: %w", namespace+"/"+name, err)}
		}
	}
	return nil
}
