// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/policies"
)

// Injecting are policies with which the API server injects by itself: the name of the policy that
// injects, why pods may start without credentials, if any, and how the policies were made.
type Injecting struct {
	Name, Problem string
	Source        policies.Source
}

// ReadInjecting returns the policies that inject; nil without such policies, as before Kubernetes
// 1.36. Of several configurations it returns the first with
// the annotation prefix; an empty prefix fits all.
func ReadInjecting(ctx context.Context, client kubernetes.Interface, prefix string) (*Injecting, error) {
	api := client.AdmissionregistrationV1()
	all, err := api.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list mutatingadmissionpolicies: %w", err)
	}
	for i := 0; err == nil && i < len(all.Items); i++ {
		p := &Injecting{Name: all.Items[i].Name}
		source := all.Items[i].Annotations[annotations.PoliciesSource]
		if source != "" {
			err = json.Unmarshal([]byte(source), &p.Source)
		}
		if source == "" || err != nil || prefix != "" && prefix != cmp.Or(p.Source.AnnotationPrefix, annotations.DefaultPrefix) {
			continue
		}
		if _, err = api.MutatingAdmissionPolicyBindings().Get(ctx, p.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			p.Problem = fmt.Sprintf("MutatingAdmissionPolicy %s has no effect: it has no binding", p.Name)
			return p, nil
		}
		deny := policies.DenyPods(strings.TrimSuffix(p.Name, policies.InjectPods("")))
		found, errDeny := ReadPolicies(ctx, client, deny)
		p.Problem = found.Denies(deny)
		return p, cmp.Or(err, errDeny)
	}
	if err != nil {
		return nil, fmt.Errorf("policies that inject: %w", err)
	}
	return nil, nil
}
