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

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// Policies are the guard and the fences, by name, and the bindings of all policies.
type Policies struct {
	Policies map[string]*admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// ReadPolicies reads the policies with these names. A policy that does not exist is left out.
// Before Kubernetes 1.30, the API does not exist either: the error is then NotFound.
func ReadPolicies(ctx context.Context, client kubernetes.Interface, names ...string) (*Policies, error) {
	api := client.AdmissionregistrationV1()
	p := &Policies{Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
	bindings, err := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return p, err
	}
	p.Bindings = bindings.Items
	for _, name := range names {
		policy, err := api.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			p.Policies[name] = policy
		} else if !apierrors.IsNotFound(err) {
			return p, err
		}
	}
	return p, nil
}

// GuardProblem returns the problem with the guard of an installation, as Denies does.
func GuardProblem(ctx context.Context, client kubernetes.Interface, configuration *admissionregistrationv1.MutatingWebhookConfiguration) (string, error) {
	policies, err := ReadPolicies(ctx, client, GuardPolicies(configuration)...)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	return policies.Guard(configuration), nil
}

// Guard returns the first mistake of the guard of an installation, as Denies does.
func (p *Policies) Guard(configuration *admissionregistrationv1.MutatingWebhookConfiguration) (wrong string) {
	for _, name := range GuardPolicies(configuration) {
		wrong = cmp.Or(wrong, p.Denies(name))
	}
	return wrong
}

// Denies returns the mistake of a policy: the policy must exist, and deny the
// matched requests. The result is empty if the policy is correct.
func (p *Policies) Denies(name string) (wrong string) {
	policy := p.Policies[name]
	if policy == nil {
		return fmt.Sprintf("ValidatingAdmissionPolicy %s does not exist", name)
	}
	if policy.Status.TypeChecking != nil && len(policy.Status.TypeChecking.ExpressionWarnings) > 0 {
		return fmt.Sprintf("ValidatingAdmissionPolicy %s has an expression with an error: %s", name, policy.Status.TypeChecking.ExpressionWarnings[0].Warning)
	}
	bound := false
	for i := range p.Bindings {
		if spec := &p.Bindings[i].Spec; spec.PolicyName == name {
			if slices.Contains(spec.ValidationActions, admissionregistrationv1.Deny) {
				return ""
			}
			bound = true
		}
	}
	if bound {
		return fmt.Sprintf("ValidatingAdmissionPolicy %s only warns: its binding has no validationAction Deny", name)
	}
	return fmt.Sprintf("ValidatingAdmissionPolicy %s has no effect: it has no binding", name)
}

// Injecting are policies with which the API server injects by itself: the name of the policy that
// injects, why pods may start without credentials, if any, and how the policies were made.
type Injecting struct {
	Name, Problem string
	Source        policies.Source
	// Fences are the fences, which are named by the first part of Name.
	Fences *Policies
}

// Prefix begins the names of the policies.
func (p *Injecting) Prefix() string { return strings.TrimSuffix(p.Name, policies.InjectPods("")) }

// ReadInjecting returns the policies that inject; nil without such policies, as before Kubernetes
// 1.36. Of several configurations it returns the first.
func ReadInjecting(ctx context.Context, client kubernetes.Interface) (*Injecting, error) {
	api := client.AdmissionregistrationV1()
	all, err := api.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list mutatingadmissionpolicies: %w", err)
	}
	for i := range all.Items {
		p := &Injecting{Name: all.Items[i].Name}
		source := all.Items[i].Annotations[annotations.PoliciesSource]
		if source == "" {
			continue
		}
		if err := json.Unmarshal([]byte(source), &p.Source); err != nil {
			return nil, fmt.Errorf("policies that inject: %w", err)
		}
		deny := policies.DenyPods(p.Prefix())
		p.Fences, err = ReadPolicies(ctx, client, deny, policies.KeepMarks(p.Prefix()), policies.LimitServiceAccounts(p.Prefix()))
		p.Problem = p.Fences.Denies(deny)
		_, errBinding := api.MutatingAdmissionPolicyBindings().Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(errBinding) {
			p.Problem = fmt.Sprintf("MutatingAdmissionPolicy %s has no effect: it has no binding", p.Name)
			return p, err
		}
		return p, cmp.Or(errBinding, err)
	}
	return nil, nil
}
