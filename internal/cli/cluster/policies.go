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

// Policies contains the validating policies by name, and their bindings. It is nil before
// Kubernetes 1.30.
type Policies struct {
	Policies map[string]*admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Name suffixes of the policies that belong to a webhook configuration. Its name is the prefix.
const (
	GuardPods            = "-guard-pods"
	GuardInjected        = "-guard-injected"
	FenceMarks           = "-guard-marks"
	FenceServiceAccounts = "-guard-serviceaccounts"
	FenceRegistration    = "-guard-registration"
)

// Guard returns the first problem with the guard of an installation, or "". See Denies.
func (p *Policies) Guard(configuration *admissionregistrationv1.MutatingWebhookConfiguration) (wrong string) {
	for _, name := range GuardPolicies(configuration) {
		wrong = cmp.Or(wrong, p.Denies(name))
	}
	return wrong
}

// Denies returns the reason why a policy does not deny the matched requests, or "" if it does.
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

// Injecting describes policies with which the API server itself injects: the name of the
// policy, the reason why pods may start without credentials, if any, and how the policies
// were created.
type Injecting struct {
	Name, Problem string
	Source        policies.Source
	// Fences are all validating policies.
	Fences *Policies
}

// Prefix is what the names of the policies start with.
func (p *Injecting) Prefix() string { return strings.TrimSuffix(p.Name, policies.InjectPods("")) }

func (p *Injecting) describe() string {
	if p.Source.Compiled {
		return "policies " + p.Name + ", which have the identities"
	}
	return "policies " + p.Name
}
