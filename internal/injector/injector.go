// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injector makes Lanyard's decisions: from an admission request over
// the lookup, the annotations and the provider to the patch. It is where the
// pure packages meet what is known of the cluster.
package injector

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// Getter finds the Lanyard annotations of an object. A namespace is looked up
// with its name alone. An object that does not exist is an error for which
// apierrors.IsNotFound holds.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (metadatacache.Object, error)
}

// Cluster is what every decision rests on.
type Cluster struct {
	// Keys are the annotation keys.
	Keys *annotations.Keys
	// Defaults stand behind the annotations of an account.
	Defaults *annotations.Defaults
	// Settings shape what is injected.
	Settings *provider.Settings
	// ServiceAccounts and Namespaces know the cluster's objects.
	ServiceAccounts, Namespaces Getter
}

// refusal is a denial on its way up, with its reason.
type refusal struct {
	reason reason.Reason
	code   int
	err    error
}

func (r *refusal) response() admission.Response {
	return admission.Response{Reason: r.reason, Denial: &admission.Denial{
		Code:    r.code,
		Message: fmt.Sprintf("lanyard: %s: %v", r.reason, r.err),
	}}
}

// invalid refuses for mistakes in the annotations of one object.
func invalid(kind, name string, errs field.ErrorList) *refusal {
	return &refusal{reason.InvalidAnnotation, http.StatusBadRequest, fmt.Errorf("%s %q: %w", kind, name, errs.ToAggregate())}
}

// identity reads what the annotations of an account ask for and holds it to
// the policy of its namespace. Without an identity it gives nil.
func (c *Cluster) identity(ctx context.Context, namespace, name string, values map[string]string) (*annotations.Identity, *refusal) {
	identity, errs := annotations.ParseServiceAccount(c.Keys, values, c.Defaults)
	if len(errs) > 0 {
		return nil, invalid("serviceaccount", namespace+"/"+name, errs)
	}
	if identity == nil {
		return nil, nil
	}
	return identity, c.checkPolicy(ctx, namespace, name, identity)
}

func (c *Cluster) checkPolicy(ctx context.Context, namespace, name string, identity *annotations.Identity) *refusal {
	object, err := c.Namespaces.Get(ctx, "", namespace)
	if err != nil {
		return lookupFailed(err)
	}
	if len(object.Annotations) == 0 {
		return nil
	}
	policy, errs := annotations.ParseNamespace(c.Keys, object.Annotations)
	if len(errs) > 0 {
		return invalid("namespace", namespace, errs)
	}
	if refused, found := policy.Refused(identity.Names()); found {
		return &refusal{reason.IdentityNotAllowed, http.StatusForbidden,
			fmt.Errorf("serviceaccount %q asks for the identity %q, and annotation %s of its namespace allows only %q",
				namespace+"/"+name, refused, c.Keys.AllowedIdentities, policy.Allowed)}
	}
	return nil
}

// account looks a service account up.
func (c *Cluster) account(ctx context.Context, namespace, name string) (metadatacache.Object, *refusal) {
	object, err := c.ServiceAccounts.Get(ctx, namespace, name)
	switch {
	case err == nil && object.TooLarge == 0:
		return object, nil
	case apierrors.IsNotFound(err):
		return object, &refusal{reason.ServiceAccountNotFound, http.StatusForbidden, err}
	case err != nil:
		return object, lookupFailed(err)
	default:
		return object, invalid("serviceaccount", namespace+"/"+name, field.ErrorList{field.Invalid(
			field.NewPath("metadata", "annotations"), fmt.Sprintf("%d bytes under %s", object.TooLarge, c.Keys.Prefix),
			"is more than all of Lanyard's annotations together can have")})
	}
}

// lookupFailed refuses for a fault that is not the user's, and passes.
func lookupFailed(err error) *refusal {
	return &refusal{reason.LookupFailed, http.StatusInternalServerError,
		fmt.Errorf("%w; try again when the API server answers lanyard-webhook again", err)}
}

// unexpected refuses a review of something else than the path is for.
func unexpected(request *admission.Request, want string) *refusal {
	return &refusal{reason.InvalidReview, http.StatusBadRequest,
		fmt.Errorf("request: got %s of group %q, version %q, resource %q, subResource %q, want %s; the webhook configuration's rules ask for too much",
			request.Operation, request.Group, request.Version, request.Resource, request.SubResource, want)}
}

// warning is one as an admission warning shows it. The apiserver cuts them off
// when there are too many characters in them, so they are short.
func warning(format string, args ...any) string { return fmt.Sprintf("lanyard: "+format, args...) }
