// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

// ReadGuard returns the problem with the guard of an installation, as Policies.Guard does;
// empty if the guard is in place. Kubernetes before 1.30 cannot have a guard. If a request
// fails, right is the right that the request needs, and err is the error of the API server.
func ReadGuard(ctx context.Context, api client.AdmissionregistrationV1Interface, mutating *admissionregistrationv1.MutatingWebhookConfiguration) (problem string, right ask.Right, err error) {
	const group = "." + admissionregistrationv1.GroupName
	policies := &Policies{Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
	for _, name := range cluster.GuardPolicies(mutating) {
		policy, err := api.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return policies.Denies(name), ask.Right{}, nil
		case err != nil:
			return "", ask.Right{Verb: "get", Resource: "validatingadmissionpolicies" + group}, err
		}
		policies.Policies[name] = policy
	}
	bindings, err := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", ask.Right{Verb: "list", Resource: "validatingadmissionpolicybindings" + group}, err
	}
	policies.Bindings = bindings.Items
	return policies.Guard(mutating), ask.Right{}, nil
}
