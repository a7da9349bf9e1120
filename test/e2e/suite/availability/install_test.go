// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package availability_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// method is a method to install Lanyard.
type method struct {
	// tool is helm or kustomize.
	tool string
	// certificates is selfManaged, with certificates that are renewed soon, or certManager.
	certificates string
}

const (
	helm        = "Helm"
	kustomize   = "kustomize"
	selfManaged = "self-managed"
	certManager = "cert-manager"

	// They are renewed after two thirds of this time. The last third is for a busy machine.
	caDuration, certificateDuration = "120s", "40s"
)

// String returns the name of the method.
func (m method) String() string { return m.tool + ", " + m.certificates }

// install returns the installation with Helm.
func (m method) install() *framework.Install {
	if m.certificates == certManager {
		return &framework.Install{Values: []string{"certificates.mode=certManager"}}
	}
	return &framework.Install{Values: []string{"certificates.caDuration=" + caDuration, "certificates.duration=" + certificateDuration}}
}

// up installs Lanyard with the documented commands and waits until all replicas are ready.
func (m method) up(ctx context.Context) error {
	if m.tool == helm {
		return m.install().Up(ctx, cluster)
	}
	if err := m.kustomize(func(directory string) error {
		_, err := cluster.Run(ctx, "kubectl", "apply", "-k", directory)
		return err
	}); err != nil {
		return err
	}
	_, err := cluster.Run(ctx, "kubectl", "rollout", "status", "deployment/"+framework.Deployment, "--namespace", framework.Namespace, "--timeout", framework.Patience.String())
	return err
}

// down uninstalls Lanyard with the documented commands.
func (m method) down(ctx context.Context) error {
	if m.tool == helm {
		return m.install().Down(ctx, cluster)
	}
	return m.kustomize(func(directory string) error {
		_, err := cluster.Run(ctx, "kubectl", "delete", "-k", directory, "-l", "app.kubernetes.io/component=registration")
		if err == nil {
			// A namespace that still contains pods is only checked again after a long
			// interval.
			_, err = cluster.Run(ctx, "kubectl", "delete", "deployment", framework.Deployment, "--namespace", framework.Namespace, "--cascade=foreground")
		}
		if err == nil {
			_, err = cluster.Run(ctx, "kubectl", "delete", "-k", directory, "--ignore-not-found")
		}
		return err
	})
}

// kustomize calls do with a directory that contains a kustomization of
// deploy/base as a user would write it.
func (m method) kustomize(do func(directory string) error) (err error) {
	if err := os.MkdirAll(filepath.Join(cluster.Root, "bin"), 0o755); err != nil {
		return err
	}
	directory, err := os.MkdirTemp(filepath.Join(cluster.Root, "bin"), "kustomization-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	text, err := yaml.Marshal(m.kustomization())
	if err != nil {
		return fmt.Errorf("encode the kustomization: %w", err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), text, 0o600); err != nil {
		return err
	}
	return do(directory)
}

func (m method) kustomization() map[string]any {
	repository, tag, _ := strings.Cut(framework.WebhookImage, ":")
	k := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{"../../deploy/base"},
		"images":    []any{map[string]any{"name": "lanyard-webhook", "newName": repository, "newTag": tag}},
	}
	if m.certificates == certManager {
		k["components"] = []string{"../../deploy/components/cert-manager"}
	} else {
		k["patches"] = []any{map[string]any{
			"target": map[string]any{"kind": "Deployment", "name": framework.Deployment},
			"patch": fmt.Sprintf(`[
				{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--ca-duration=%s"},
				{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--certificate-duration=%s"}
			]`, caDuration, certificateDuration),
		}}
	}
	return k
}
