// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Rollout is how far the pods of a workload follow its template.
type Rollout struct {
	// Done reports whether all pods do, and are available.
	Done bool
	// Progress describes the missing replicas, for people.
	Progress string
	// Failed is why the rollout will not be done, empty if it may be.
	Failed string
}

// Rollout reads the status of a Deployment, StatefulSet or DaemonSet. k8s.io/kubectl has the
// same in polymorphichelpers, which would add eight modules and 1 MB to the program.
func (k *Kind) Rollout(object *unstructured.Unstructured) Rollout {
	number := func(missing int64, path ...string) int64 {
		if n, found, err := unstructured.NestedInt64(object.Object, path...); found && err == nil {
			return n
		}
		return missing
	}
	if number(0, "status", "observedGeneration") < object.GetGeneration() {
		return Rollout{Progress: "waiting for its controller"}
	}
	var want, updated, all, available int64
	switch k.Kind {
	case "DaemonSet":
		want = number(0, "status", "desiredNumberScheduled")
		updated, all, available = number(0, "status", "updatedNumberScheduled"), want, number(0, "status", "numberAvailable")
	case "StatefulSet":
		want = number(1, "spec", "replicas")
		// Pods below the partition keep the previous template.
		want -= min(want, number(0, "spec", "updateStrategy", "rollingUpdate", "partition"))
		updated, all = number(0, "status", "updatedReplicas"), want
		available = number(0, "status", "availableReplicas")
	default:
		if reason, failed := progressFailed(object); failed {
			return Rollout{Failed: reason}
		}
		want = number(1, "spec", "replicas")
		updated, all = number(0, "status", "updatedReplicas"), number(0, "status", "replicas")
		available = number(0, "status", "availableReplicas")
	}
	switch {
	case updated < want:
		return Rollout{Progress: fmt.Sprintf("%d of %d pods are new", updated, want)}
	case all > updated:
		return Rollout{Progress: fmt.Sprintf("%d old pods are left", all-updated)}
	case available < want:
		return Rollout{Progress: fmt.Sprintf("%d of %d pods are available", available, want)}
	}
	return Rollout{Done: true}
}

// progressFailed reports whether a Deployment did not progress in time.
func progressFailed(object *unstructured.Unstructured) (reason string, failed bool) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		if condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded" {
			message, _ := condition["message"].(string)
			return message, true
		}
	}
	return "", false
}

// ByHand returns why a change of the template would not replace the pods, so that
// somebody must; empty if it would.
func (k *Kind) ByHand(object *unstructured.Unstructured) string {
	if k.Kind == "Pod" {
		return "nothing replaces it: delete it, and create it again"
	}
	if !k.Restarts {
		return "its pods are not replaced when its template changes"
	}
	if paused, _, _ := unstructured.NestedBool(object.Object, "spec", "paused"); paused {
		return "it is paused"
	}
	for _, field := range []string{"updateStrategy", "strategy"} {
		if kind, _, _ := unstructured.NestedString(object.Object, "spec", field, "type"); kind == "OnDelete" {
			return "its update strategy is OnDelete: delete its pods"
		}
	}
	return ""
}
