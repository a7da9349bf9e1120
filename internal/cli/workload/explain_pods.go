// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// aboutPods are the running pods of a workload or a ServiceAccount.
const aboutPods = "running pods"

// pods adds the running pods of a workload or a ServiceAccount, as status counts them. The rest
// of the explanation does not depend on them.
func (r *reader) pods(ctx context.Context, e *Explanation) {
	result := newStatusResult(&query{scope: e.Namespace, names: []string{e.Object}})
	err := eachNamespace(ctx, r.CLI, result.query, func(rows []Row, found []finding.Finding) error {
		result.add(rows, found)
		return nil
	})
	if err != nil {
		f := finding.Unreadable("the "+aboutPods, err)
		f.About = aboutPods
		e.Findings = append(e.Findings, f)
		return
	}
	if result.Summary.Pods > 0 {
		e.Pods = &result.Summary
	}
	e.addPods(result, r.in)
}

// addPods adds the findings about running pods.
func (e *Explanation) addPods(result *statusResult, in *input) {
	for _, f := range result.Findings {
		// What is unknown about its own new pods is explained already.
		unknown := f.Reason == string(injected.Unknown) && in.Owner.Name != ""
		if f.About == "pods" && f.Status != finding.NotApplicable && !unknown {
			f.About = aboutPods
			e.Findings = append(e.Findings, f)
		}
	}
	if Outdated(result.Summary.States) == 0 {
		return
	}
	f := result.outdated(e.Object)
	f.Status, f.About = finding.Failed, aboutPods
	if in.Owner.Name != "" { // otherwise a ServiceAccount, of any number of workloads
		f.Fix = in.restart()
	}
	e.Findings = append(e.Findings, f)
}

// ownerOfPods returns the named workload, as the owner of its pods.
func ownerOfPods(name string, object *unstructured.Unstructured) topOwner {
	kind, _ := cluster.ByGroupKind(object.GroupVersionKind().GroupKind())
	return topOwner{Name: name, Kind: kind, ByHand: kind.ByHand(object)}
}

// problems returns the number of pods that need attention.
func (s *summary) problems() int {
	return Outdated(s.States) + s.States[Shadowed] + s.States[injected.Unknown]
}
