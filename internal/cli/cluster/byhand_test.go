// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

func TestKindsThatMustBeRestartedByHand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, object, want string }{
		"a Deployment":                  {"deployment", "{spec: {strategy: {type: Recreate}}}", ""},
		"a paused Deployment":           {"deployment", "{spec: {paused: true}}", "it is paused"},
		"a StatefulSet":                 {"statefulset", "{spec: {updateStrategy: {type: RollingUpdate}}}", ""},
		"a StatefulSet that keeps pods": {"statefulset", "{spec: {updateStrategy: {type: OnDelete}}}", "its update strategy is OnDelete"},
		"a DaemonSet that keeps pods":   {"daemonset", "{spec: {updateStrategy: {type: OnDelete}}}", "its update strategy is OnDelete"},
		"a pod on its own":              {"pod", "{}", "no controller replaces it: delete it, and create it again"},
		"a Job":                         {"job", "{}", "its pods are not replaced when its template changes"},
		"a ReplicaSet without an owner": {"replicaset", "{}", "its pods are not replaced when its template changes"},
	} {
		kind, _ := cluster.ByName(test.kind)
		if got := kind.ByHand(parse(t, test.object)); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
