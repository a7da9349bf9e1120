// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// The webhook's ServiceAccount in deploy/.
const (
	Namespace = "lanyard-system"
	Account   = "lanyard-webhook"
)

// Grant creates the webhook's ServiceAccount and RBAC rules of deployDir, and
// returns a configuration that acts as this ServiceAccount.
func Grant(ctx context.Context, plane *controlplane.ControlPlane, deployDir string) (*rest.Config, error) {
	if err := Create(ctx, plane.Config(), deployDir, "10-namespace.yaml", "20-serviceaccount.yaml", "21-rbac.yaml"); err != nil {
		return nil, err
	}
	return User(plane, Account)
}

// User returns a configuration that acts as a ServiceAccount in Namespace.
func User(plane *controlplane.ControlPlane, account string) (*rest.Config, error) {
	return plane.User("system:serviceaccount:"+Namespace+":"+account,
		"system:serviceaccounts", "system:serviceaccounts:"+Namespace, "system:authenticated")
}
