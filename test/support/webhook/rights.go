// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// The webhook's own service account in deploy/.
const (
	Namespace = "lanyard-system"
	Account   = "lanyard-webhook"
)

// Grant creates the manifests of deployDir that give the webhook its account
// and its rights, and gives a configuration that acts as this account.
func Grant(ctx context.Context, plane *controlplane.ControlPlane, deployDir string) (*rest.Config, error) {
	var files []string
	for _, name := range []string{"10-namespace.yaml", "20-serviceaccount.yaml", "21-rbac.yaml"} {
		files = append(files, filepath.Join(deployDir, name))
	}
	if err := create(ctx, plane.Config(), files...); err != nil {
		return nil, err
	}
	return plane.User("system:serviceaccount:"+Namespace+":"+Account,
		"system:serviceaccounts", "system:serviceaccounts:"+Namespace, "system:authenticated")
}
