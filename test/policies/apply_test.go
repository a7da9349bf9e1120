// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// apply creates the policies of a text, each with the group at the end of its name, for the
// namespaces that have the group as the label configLabel.
func apply(ctx context.Context, client kubernetes.Interface, text, group string) error {
	only := &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{configLabel: group}}}
	api := client.AdmissionregistrationV1()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return err
		}
		var err error
		switch kind.Kind {
		case "MutatingAdmissionPolicy":
			var policy admissionv1.MutatingAdmissionPolicy
			if err = yaml.UnmarshalStrict([]byte(document), &policy); err == nil {
				policy.Name += "-" + group
				_, err = api.MutatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{})
			}
		case "MutatingAdmissionPolicyBinding":
			var binding admissionv1.MutatingAdmissionPolicyBinding
			if err = yaml.UnmarshalStrict([]byte(document), &binding); err == nil {
				binding.Name, binding.Spec.PolicyName, binding.Spec.MatchResources = binding.Name+"-"+group, binding.Spec.PolicyName+"-"+group, only
				_, err = api.MutatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{})
			}
		case "ValidatingAdmissionPolicy":
			var policy admissionv1.ValidatingAdmissionPolicy
			if err = yaml.UnmarshalStrict([]byte(document), &policy); err == nil {
				policy.Name += "-" + group
				_, err = api.ValidatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{})
			}
		case "ValidatingAdmissionPolicyBinding":
			var binding admissionv1.ValidatingAdmissionPolicyBinding
			if err = yaml.UnmarshalStrict([]byte(document), &binding); err == nil {
				binding.Name, binding.Spec.PolicyName, binding.Spec.MatchResources = binding.Name+"-"+group, binding.Spec.PolicyName+"-"+group, only
				_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{})
			}
		default:
			err = fmt.Errorf("got kind %q", kind.Kind)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind.Kind, err)
		}
	}
	return nil
}
