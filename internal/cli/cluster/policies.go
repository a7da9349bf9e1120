// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/policies"
)

// Injecting are policies with which the API server injects by itself.
type Injecting struct {
	// Name is the name of the policy that injects.
	Name string
	// Source is the input from which the policies were made.
	Source policies.Source
	// Problem is why pods may start without credentials, or are not denied; empty if the
	// policies are complete.
	Problem string
}

// ReadInjecting returns the policies that inject, or nil if there are none: Kubernetes before 1.36
// has no such API. Of several configurations it returns the first that fits the annotation
// prefix; an empty prefix fits all.
func ReadInjecting(ctx context.Context, client kubernetes.Interface, prefix string) (*Injecting, error) {
	api := client.AdmissionregistrationV1()
	all, err := api.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list mutatingadmissionpolicies: %w", err)
	}
	for i := range all.Items {
		source, found := all.Items[i].Annotations[annotations.PoliciesSource]
		if !found {
			continue
		}
		p := &Injecting{Name: all.Items[i].Name}
		if err := json.Unmarshal([]byte(source), &p.Source); err != nil {
			return nil, fmt.Errorf("mutatingadmissionpolicy %s: annotation %s: %w", p.Name, annotations.PoliciesSource, err)
		}
		if prefix != "" && prefix != cmp.Or(p.Source.AnnotationPrefix, annotations.DefaultPrefix) {
			continue
		}
		p.Problem, err = p.problem(ctx, client)
		return p, err
	}
	return nil, nil
}

// problem looks for the binding, and for the policy that denies.
func (p *Injecting) problem(ctx context.Context, client kubernetes.Interface) (string, error) {
	bindings, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list mutatingadmissionpolicybindings: %w", err)
	}
	bound := slices.ContainsFunc(bindings.Items, func(b admissionregistrationv1.MutatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == p.Name
	})
	if !bound {
		return fmt.Sprintf("MutatingAdmissionPolicy %s has no effect: it has no binding", p.Name), nil
	}
	deny := policies.DenyPods(strings.TrimSuffix(p.Name, policies.InjectPods("")))
	found, err := ReadPolicies(ctx, client, deny)
	return found.Denies(deny), err
}

// InjectedBy describes an installation with policies: by policies only, or by the webhook of a
// configuration, too. It is empty without policies.
func InjectedBy(mutating *admissionregistrationv1.MutatingWebhookConfiguration, p *Injecting) string {
	switch {
	case p == nil:
		return ""
	case mutating == nil:
		return "policies " + p.Name
	}
	return "webhook " + mutating.Name + " and policies " + p.Name
}
