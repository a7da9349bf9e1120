// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injector makes Lanyard's decisions about pods and ServiceAccounts. It
// passes the objects of the cluster to the pure packages.
package injector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Getter returns the Lanyard annotations of an object. For a Namespace, namespace
// is empty. The error for an object that does not exist satisfies
// apierrors.IsNotFound.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (metadatacache.Object, error)
}

// Config holds the values that every decision needs.
type Config struct {
	*settings.Settings
	// ServiceAccounts and Namespaces are the objects of the cluster.
	ServiceAccounts, Namespaces Getter
}

// invalid returns the error for mistakes in the annotations of one object.
func invalid(kind, name string, errs field.ErrorList) error {
	return &reason.Error{Reason: reason.InvalidAnnotation, Err: fmt.Errorf("%s %q: %w", kind, name, errs.ToAggregate())}
}

// tooManyBytes returns the error for annotations that are longer than valid ones
// can be.
func (c *Config) tooManyBytes(kind, name string, size, most int) error {
	return invalid(kind, name, field.ErrorList{field.Invalid(
		field.NewPath("metadata", "annotations"), fmt.Sprintf("%d bytes under %s", size, annotations.Prefix),
		fmt.Sprintf("must have at most %d bytes", most))})
}

// serviceAccount returns a ServiceAccount. If it cannot be read, nothing is known of it,
// and the error is a *reason.Fault.
func (c *Config) serviceAccount(ctx context.Context, namespace, name string) (metadatacache.Object, error) {
	object, err := c.ServiceAccounts.Get(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return object, &reason.Fault{Reason: reason.ServiceAccountNotFound, Err: err}
	case err != nil:
		return object, &reason.Fault{Reason: reason.LookupFailed, Err: err}
	case object.TooLarge > 0:
		return object, c.tooManyBytes("serviceaccount", namespace+"/"+name, object.TooLarge, c.MaxServiceAccountBytes())
	}
	return object, nil
}

// identity returns the identity in the annotations of a ServiceAccount, or nil if
// they ask for nothing.
func (c *Config) identity(namespace, name string, values map[string]string) (*annotations.ServiceAccount, error) {
	identity, errs := c.ParseServiceAccount(namespace, name, values)
	if len(errs) > 0 {
		return nil, invalid("serviceaccount", namespace+"/"+name, errs)
	}
	return identity, nil
}

// checkPolicy checks that the namespace allows the identity.
func (c *Config) checkPolicy(ctx context.Context, namespace, name string, identity *annotations.ServiceAccount) error {
	object, err := c.Namespaces.Get(ctx, "", namespace)
	if err != nil {
		return &reason.Error{Reason: reason.LookupFailed, Err: fmt.Errorf("%w; try again when lanyard-webhook reaches the API server", err)}
	}
	if object.TooLarge > 0 {
		return c.tooManyBytes("namespace", namespace, object.TooLarge, annotations.MaxNamespaceBytes)
	}
	policy, errs := c.ParseNamespace(namespace, object.Annotations)
	if len(errs) > 0 {
		return invalid("namespace", namespace, errs)
	}
	if denied, found := policy.Denied(identity.Principals()); found {
		return &reason.Error{Reason: reason.IdentityNotAllowed, Err: fmt.Errorf(
			"serviceaccount %q asks for the identity %q, but %s", namespace+"/"+name, denied, c.describe(&policy))}
	}
	return nil
}

// describe lists the identities that a policy allows, and where it is set.
func (c *Config) describe(policy *annotations.Policy) string {
	allows := "nothing"
	if len(policy.Allowed) > 0 {
		allows = fmt.Sprintf("only %q", policy.Allowed)
	}
	if policy.FromDefault {
		return fmt.Sprintf("its namespace has no annotation %s, and the cluster's default, --default-allowed-identities, allows %s", annotations.AllowedIdentities, allows)
	}
	return fmt.Sprintf("annotation %s of its namespace allows %s", annotations.AllowedIdentities, allows)
}
