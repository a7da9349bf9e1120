// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injector handles the requests about pods and ServiceAccounts: it looks up the
// objects in the cluster, and passes them to the pure packages, which decide.
package injector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Getter gets the Lanyard annotations of an object. For a Namespace, namespace is empty. If
// the object does not exist, the error satisfies apierrors.IsNotFound.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (annotations.Object, error)
}

// Config contains the values that every decision needs.
type Config struct {
	*annotations.Settings
	// ServiceAccounts and Namespaces are the objects of the cluster.
	ServiceAccounts, Namespaces Getter
}

// serviceAccount returns a ServiceAccount. If it cannot be read, the error is a
// *reason.Fault.
func (c *Config) serviceAccount(ctx context.Context, namespace, name string) (annotations.Object, error) {
	object, err := c.ServiceAccounts.Get(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return annotations.Object{}, &reason.Fault{Reason: reason.ServiceAccountNotFound, Err: err}
	case err != nil:
		return annotations.Object{}, &reason.Fault{Reason: reason.LookupFailed, Err: err}
	}
	return object, nil
}

// namespace returns a Namespace. If it cannot be read, the error is a *reason.Error.
func (c *Config) namespace(ctx context.Context, name string) (annotations.Object, error) {
	object, err := c.Namespaces.Get(ctx, "", name)
	if err != nil {
		return annotations.Object{}, &reason.Error{Reason: reason.LookupFailed, Err: fmt.Errorf("%w; try again when lanyard-webhook reaches the API server", err)}
	}
	return object, nil
}
