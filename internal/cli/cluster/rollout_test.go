// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

// integers makes the numbers of a parsed YAML document those of the API's JSON.
func integers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = integers(value[key])
		}
	case []any:
		for i := range value {
			value[i] = integers(value[i])
		}
	case float64:
		return int64(value)
	}
	return value
}

func TestRollouts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind, object     string
		progress, failed string
	}{
		"a Deployment that its controller has not seen": {
			"deployment", "{metadata: {generation: 2}, spec: {replicas: 1}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas: 1}}",
			"waiting for its controller", "",
		},
		"a Deployment with old pods only": {
			"deployment", "{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, availableReplicas: 3}}",
			"0 of 3 pods are new", "",
		},
		"a Deployment with an old pod": {
			"deployment", "{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 4, updatedReplicas: 3, availableReplicas: 4}}",
			"1 old pods are left", "",
		},
		"a Deployment whose new pod is not available": {
			"deployment", "{metadata: {generation: 2}, spec: {}, status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1}}",
			"0 of 1 pods are available", "",
		},
		"a Deployment that is done": {
			"deployment", "{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, availableReplicas: 2}}",
			"", "",
		},
		"a Deployment without replicas": {
			"deployment", "{metadata: {generation: 2}, spec: {replicas: 0}, status: {observedGeneration: 2}}",
			"", "",
		},
		"a Deployment that does not progress": {
			"deployment", "{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, conditions: [{type: Available, reason: x}, {type: Progressing, reason: ProgressDeadlineExceeded, message: timed out}]}}",
			"", "timed out",
		},
		"a StatefulSet with an old pod": {
			"statefulset", "{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 1, availableReplicas: 2}}",
			"1 of 2 pods are new", "",
		},
		"a StatefulSet with a partition": {
			"statefulset", "{metadata: {generation: 2}, spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 1, availableReplicas: 3}}",
			"", "",
		},
		"a StatefulSet with a partition, whose new pods are not available": {
			"statefulset", "{metadata: {generation: 2}, spec: {replicas: 5, updateStrategy: {rollingUpdate: {partition: 3}}}, status: {observedGeneration: 2, replicas: 5, updatedReplicas: 2, availableReplicas: 3}}",
			"3 of 5 pods are available", "",
		},
		"a StatefulSet whose partition is above its replicas": {
			"statefulset", "{metadata: {generation: 2}, spec: {replicas: 2, updateStrategy: {rollingUpdate: {partition: 3}}}, status: {observedGeneration: 2, replicas: 2, availableReplicas: 2}}",
			"", "",
		},
		"a DaemonSet with an old pod": {
			"daemonset", "{metadata: {generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 2, updatedNumberScheduled: 1, numberAvailable: 2}}",
			"1 of 2 pods are new", "",
		},
		"a DaemonSet whose pod is not available": {
			"daemonset", "{metadata: {generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1}}",
			"1 of 2 pods are available", "",
		},
		"a DaemonSet that is done": {
			"daemonset", "{metadata: {generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2}}",
			"", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, _ := cluster.ByName(test.kind)
			object := &unstructured.Unstructured{Object: integers(parse(t, test.object).Object).(map[string]any)}
			got, err := kind.Rollout(object)
			if got != test.progress || (err != nil) != (test.failed != "") || err != nil && err.Error() != test.failed {
				t.Errorf("got %q and %v, want %q and %q", got, err, test.progress, test.failed)
			}
		})
	}
}

func TestWhatMustBeRestartedByHand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, object, want string }{
		"a Deployment":                  {"deployment", "{spec: {strategy: {type: Recreate}}}", ""},
		"a paused Deployment":           {"deployment", "{spec: {paused: true}}", "it is paused"},
		"a StatefulSet":                 {"statefulset", "{spec: {updateStrategy: {type: RollingUpdate}}}", ""},
		"a StatefulSet that keeps pods": {"statefulset", "{spec: {updateStrategy: {type: OnDelete}}}", "its update strategy is OnDelete: delete its pods"},
		"a DaemonSet that keeps pods":   {"daemonset", "{spec: {updateStrategy: {type: OnDelete}}}", "its update strategy is OnDelete: delete its pods"},
		"a pod on its own":              {"pod", "{}", "nothing replaces it: delete it, and create it again"},
		"a Job":                         {"job", "{}", "its pods are not replaced when its template changes"},
		"a ReplicaSet without an owner": {"replicaset", "{}", "its pods are not replaced when its template changes"},
	} {
		kind, _ := cluster.ByName(test.kind)
		if got := kind.ByHand(parse(t, test.object)); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
