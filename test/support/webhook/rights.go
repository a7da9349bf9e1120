// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"path/filepath"

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

// GrantCertificates creates the RBAC rules of deployDir that a webhook with
// self-managed certificates needs as well.
func GrantCertificates(ctx context.Context, config *rest.Config, deployDir string) error {
	return create(ctx, config, filepath.Join(deployDir, "22-certificates-rbac.yaml"))
}

// GrantChecks creates the CronJobs of directory with their ServiceAccount and RBAC rules,
// and returns a configuration that acts as this ServiceAccount.
func GrantChecks(ctx context.Context, plane *controlplane.ControlPlane, directory string) (*rest.Config, error) {
	if err := create(ctx, plane.Config(), filepath.Join(directory, "checks.yaml")); err != nil {
		return nil, err
	}
	return plane.User("system:serviceaccount:"+Namespace+":lanyard-checks",
		"system:serviceaccounts", "system:serviceaccounts:"+Namespace, "system:authenticated")
}
