// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// cluster is an API server.
type cluster struct {
	client *kubernetes.Clientset
	plane  *controlplane.ControlPlane
}

// TestOnAnAPIServer shares one API server between its subtests. The policies of each apply to
// its own namespaces, by configLabel.
func TestOnAnAPIServer(t *testing.T) {
	c := start(t)
	t.Run("types", c.testTypes)
	t.Run("golden cases", c.testGoldenCases)
	t.Run("compiled golden cases", c.testCompiledGoldenCases)
	t.Run("many identities", c.testManyIdentities)
	t.Run("decisions", c.testDecisions)
	t.Run("random pods", c.testRandomPods)
	t.Run("random pods with compiled identities", c.testRandomCompiledPods)
	t.Run("fences", c.testFences)
}

func start(t *testing.T) *cluster {
	t.Helper()
	plane := controlplane.Run(t)
	config := plane.Config()
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{client, plane}
}
