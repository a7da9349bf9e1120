// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// Invalidator is told of service accounts that are being written, so that it does
// not trust what it knew of them.
type Invalidator interface {
	Invalidate(namespace, name string)
}

// Labels puts the identity label on the service accounts that ask for an
// identity, and takes it off the others.
type Labels struct {
	Keys *annotations.Keys
	// Invalidator hears of each account whose annotations change.
	Invalidator Invalidator
}

// Decide implements admission.Decider.
func (l *Labels) Decide(_ context.Context, request *admission.Request) admission.Response {
	account, old, refused := accounts(request)
	if refused != nil {
		return refused.response()
	}
	if name := account.Metadata.Name; name != "" && !maps.Equal(l.lanyards(account), l.lanyards(old)) {
		l.Invalidator.Invalidate(request.Namespace, name)
	}
	value, labeled := account.Metadata.Labels[l.Keys.IdentityLabel]
	wanted := l.Keys.AskForIdentity(account.Metadata.Annotations)
	path := "/metadata/labels/" + strings.ReplaceAll(l.Keys.IdentityLabel, "/", "~1")
	switch {
	case wanted && account.Metadata.Labels == nil:
		return l.labeled(operation{Op: "add", Path: "/metadata/labels", Value: map[string]string{l.Keys.IdentityLabel: annotations.LabelEnabled}})
	case wanted && value != annotations.LabelEnabled:
		return l.labeled(operation{Op: "add", Path: path, Value: annotations.LabelEnabled})
	case !wanted && labeled:
		return l.labeled(operation{Op: "remove", Path: path})
	case wanted:
		return admission.Response{Reason: reason.Labeled}
	}
	return admission.Response{Reason: reason.NoIdentity}
}

func (l *Labels) lanyards(account *serviceAccount) map[string]string {
	return withPrefix(account.Metadata.Annotations, l.Keys.Prefix)
}

// operation is one of JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (l *Labels) labeled(op operation) admission.Response {
	patch, err := json.Marshal([]operation{op})
	if err != nil {
		return (&refusal{reason.InternalError, http.StatusInternalServerError, err}).response()
	}
	return admission.Response{Patch: patch, Reason: reason.Labeled}
}

// Validator refuses service accounts whose annotations would only be found
// wrong when their next pod is created.
type Validator struct {
	Cluster
}

// Decide implements admission.Decider.
func (v *Validator) Decide(ctx context.Context, request *admission.Request) admission.Response {
	account, old, refused := accounts(request)
	if refused != nil {
		return refused.response()
	}
	values := withPrefix(account.Metadata.Annotations, v.Keys.Prefix)
	_, refused = v.identity(ctx, request.Namespace, account.Metadata.Name, values)
	switch {
	case refused == nil:
		return admission.Response{Reason: reason.Valid}
	case request.Operation == admission.Update && maps.Equal(values, withPrefix(old.Metadata.Annotations, v.Keys.Prefix)):
		// The mistake is an old one, and this write is about something else:
		// a controller's finalizer, say. It must not be held up.
		return admission.Response{Reason: refused.reason, Warnings: []string{warning("%s: %v", refused.reason, refused.err)}}
	}
	return refused.response()
}

// serviceAccount is what is needed of a ServiceAccount.
type serviceAccount struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// accounts reads the account of the request, and the one before; an account
// that is being created was empty before.
func accounts(request *admission.Request) (account, old *serviceAccount, refused *refusal) {
	if request.Group != "" || request.Version != "v1" || request.Resource != "serviceaccounts" || request.SubResource != "" {
		return nil, nil, unexpected(request, "CREATE or UPDATE of v1 serviceaccounts")
	}
	account, old = &serviceAccount{}, &serviceAccount{}
	err := json.Unmarshal(request.Object, account)
	if err == nil && request.OldObject != nil {
		err = json.Unmarshal(request.OldObject, old)
	}
	if err != nil {
		return nil, nil, &refusal{reason.InvalidReview, http.StatusBadRequest, fmt.Errorf("serviceaccount: %w", err)}
	}
	return account, old, nil
}

func withPrefix(values map[string]string, prefix string) map[string]string {
	kept := map[string]string{}
	for key, value := range values {
		if strings.HasPrefix(key, prefix) {
			kept[key] = value
		}
	}
	return kept
}
