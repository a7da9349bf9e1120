// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// invalid returns the error for mistakes in the annotations of one object.
func invalid(kind, name string, errs field.ErrorList) *reason.Error {
	return &reason.Error{Reason: reason.InvalidAnnotation, Err: fmt.Errorf("%s %q: %w", kind, name, errs.ToAggregate())}
}

// tooManyBytes returns the error for annotations that are too long to be valid.
func tooManyBytes(kind, name string, size, most int) *reason.Error {
	return invalid(kind, name, field.ErrorList{field.Invalid(
		field.NewPath("metadata", "annotations"), fmt.Sprintf("%d bytes under %s", size, annotations.Prefix),
		fmt.Sprintf("must have at most %d bytes", most))})
}

// Account returns the identities of a ServiceAccount, or nil if it asks for none. The error
// is a *reason.Error, for which the ServiceAccount and its pods must be denied.
func Account(s *annotations.Settings, serviceAccount *annotations.Object) (*annotations.ServiceAccount, error) {
	if len(serviceAccount.Annotations) == 0 && serviceAccount.TooLarge == 0 {
		return nil, nil
	}
	name := serviceAccount.Namespace + "/" + serviceAccount.Name
	if size := serviceAccount.Bytes(); serviceAccount.TooLarge > 0 || size > annotations.MaxKeptBytes {
		return nil, tooManyBytes("serviceaccount", name, size, s.MaxServiceAccountBytes())
	}
	account, errs := s.ParseServiceAccount(serviceAccount.Namespace, serviceAccount.Name, serviceAccount.Annotations)
	if len(errs) > 0 {
		return nil, invalid("serviceaccount", name, errs)
	}
	return account, nil
}

// longestGenerated stands in for a name that the API server generates after admission. It has
// the maximum length.
var longestGenerated = strings.Repeat("x", 63)

// CheckWritten makes the checks that apply only when a ServiceAccount is written: that its
// identities fit into a container, and that the cluster has an image to verify them. The
// error is a *reason.Error.
func CheckWritten(s *annotations.Settings, serviceAccount *annotations.Object, account *annotations.ServiceAccount) error {
	if err := s.CheckVerify(account); err != nil {
		return invalid("serviceaccount", serviceAccount.Namespace+"/"+serviceAccount.Name, field.ErrorList{err})
	}
	for _, windows := range []bool{false, true} {
		injection := provider.NewInjection(account.Identities, &provider.Subject{
			Namespace: serviceAccount.Namespace, ServiceAccount: cmp.Or(serviceAccount.Name, longestGenerated), MountPath: s.TokenMountPath,
			TokenExpirationSeconds: annotations.MaxTokenExpirationSeconds, Windows: windows,
		})
		if err := newInjection(injection).checkSize(); err != nil {
			return &reason.Error{Reason: reason.TooLarge, Err: fmt.Errorf("serviceaccount %q: %w", serviceAccount.Namespace+"/"+serviceAccount.Name, err)}
		}
	}
	return nil
}

// CheckPolicy checks that the namespace allows the identities of the ServiceAccount. A nil
// namespace has no annotations. The error is a *reason.Error.
func CheckPolicy(s *annotations.Settings, serviceAccount *annotations.Object, account *annotations.ServiceAccount, namespace *annotations.Object) error {
	if namespace == nil {
		namespace = &annotations.Object{Name: serviceAccount.Namespace}
	}
	if size := namespace.Bytes(); namespace.TooLarge > 0 || size > annotations.MaxNamespaceBytes {
		return tooManyBytes("namespace", namespace.Name, size, annotations.MaxNamespaceBytes)
	}
	policy, errs := s.ParseNamespace(namespace.Name, namespace.Annotations)
	if len(errs) > 0 {
		return invalid("namespace", namespace.Name, errs)
	}
	if denied, found := policy.Denied(account.Principals()); found {
		return &reason.Error{Reason: reason.IdentityNotAllowed, Err: fmt.Errorf(
			"serviceaccount %q asks for the identity %q, but %s", serviceAccount.Namespace+"/"+serviceAccount.Name, denied, describe(&policy))}
	}
	return nil
}

// describe lists the identities that a policy allows, and says where the policy is set.
func describe(policy *annotations.Policy) string {
	allows := "nothing"
	if len(policy.Allowed) > 0 {
		allows = fmt.Sprintf("only %q", policy.Allowed)
	}
	if policy.FromDefault {
		return fmt.Sprintf("its namespace has no annotation %s, and the cluster's default, --default-allowed-identities, allows %s", annotations.AllowedIdentities, allows)
	}
	return fmt.Sprintf("annotation %s of its namespace allows %s", annotations.AllowedIdentities, allows)
}
