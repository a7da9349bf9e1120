// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/lanyard-dev/lanyard/policies"
)

// Policies are the validating policies by name, and their bindings. It is nil before Kubernetes
// 1.30, which has none.
type Policies struct {
	Policies map[string]*admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// The names of the policies that belong to a webhook configuration begin with its name, and end with
// one of these. The guard denies pods without their credentials, and the fences limit who may write
// what.
const (
	GuardPods            = "-guard-pods"
	GuardInjected        = "-guard-injected"
	FenceMarks           = "-guard-marks"
	FenceServiceAccounts = "-guard-serviceaccounts"
	FenceRegistration    = "-guard-registration"
)

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
	if p == nil || p.Policies[name] == nil {
		return fmt.Sprintf("ValidatingAdmissionPolicy %s does not exist", name)
	}
	policy := p.Policies[name]
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
	// Fences are all validating policies; Prefix begins the names of those that belong to it.
	Fences *Policies
}

// Prefix begins the names of the policies.
func (p *Injecting) Prefix() string { return strings.TrimSuffix(p.Name, policies.InjectPods("")) }

func (p *Injecting) describe() string {
	if p.Source.Compiled {
		return "policies " + p.Name + ", which have the identities"
	}
	return "policies " + p.Name
}
