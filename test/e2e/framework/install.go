// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// Names that all install methods use.
const (
	Namespace     = "lanyard-system"
	Deployment    = "lanyard-webhook"
	Configuration = "lanyard"
)

// Install is a method to install Lanyard.
type Install struct {
	// Tool is Helm or Kustomize.
	Tool string
	// Release is the name of the release for Helm, in the namespace RELEASE-system. The
	// default is lanyard. Other releases are next to it.
	Release string
	// Certificates is SelfManaged or CertManager.
	Certificates string
	// CADuration and CertificateDuration apply to SelfManaged. Zero keeps the
	// manifests' values.
	CADuration, CertificateDuration time.Duration
	// Values are additional chart values for Helm, such as guard.enabled=false.
	Values []string
	// Config is the value config of the chart for Helm, which is a configuration file.
	Config map[string]any
}

// Values of Install.
const (
	Helm        = "Helm"
	Kustomize   = "kustomize"
	SelfManaged = "self-managed"
	CertManager = "cert-manager"
)

// String returns the name of the method.
func (i *Install) String() string { return i.Tool + ", " + i.Certificates }

// release returns the name of the release.
func (i *Install) release() string { return cmp.Or(i.Release, "lanyard") }

// namespace returns the namespace that Helm installs into: Namespace, unless Release is
// set.
func (i *Install) namespace() string { return i.release() + "-system" }

// Up installs Lanyard with the documented commands and waits until all replicas
// are ready.
func (i *Install) Up(ctx context.Context, c *Cluster) error {
	if i.Tool == Helm {
		arguments, err := i.helmArguments()
		if err == nil {
			_, err = c.Run(ctx, "helm", arguments...)
		}
		return err
	}
	if err := i.kustomize(c, func(directory string) error {
		_, err := c.Run(ctx, "kubectl", "apply", "-k", directory)
		return err
	}); err != nil {
		return err
	}
	_, err := c.Run(ctx, "kubectl", "rollout", "status", "deployment/"+Deployment, "--namespace", Namespace, "--timeout", "3m")
	return err
}

func (i *Install) helmArguments() ([]string, error) {
	repository, tag, _ := strings.Cut(WebhookImage, ":")
	arguments := []string{
		"install", i.release(), "charts/lanyard", "--namespace", i.namespace(), "--create-namespace", "--wait", "--timeout", "3m",
		"--set", "image.repository=" + repository, "--set", "image.tag=" + tag,
	}
	for _, value := range i.Values {
		arguments = append(arguments, "--set", value)
	}
	if i.Config != nil {
		config, err := json.Marshal(i.Config)
		if err != nil {
			return nil, fmt.Errorf("encode the values: %w", err)
		}
		arguments = append(arguments, "--set-json", "config="+string(config))
	}
	if i.Certificates == CertManager {
		arguments = append(arguments, "--set", "certificates.mode=certManager")
	} else if i.CADuration != 0 {
		arguments = append(arguments, "--set", "certificates.caDuration="+i.CADuration.String(),
			"--set", "certificates.duration="+i.CertificateDuration.String())
	}
	return arguments, nil
}

// Down uninstalls Lanyard with the documented commands.
func (i *Install) Down(ctx context.Context, c *Cluster) error {
	if i.Tool == Helm {
		_, err := c.Run(ctx, "helm", "uninstall", i.release(), "--namespace", i.namespace(), "--wait")
		if err == nil {
			// Wait for the pods first: a namespace that still contains pods is
			// only checked again after a long interval.
			_, err = c.Run(ctx, "kubectl", "wait", "pods", "--all", "--namespace", i.namespace(), "--for", "delete", "--timeout", "2m")
		}
		if err == nil {
			_, err = c.Run(ctx, "kubectl", "delete", "namespace", i.namespace())
		}
		return err
	}
	return i.kustomize(c, func(directory string) error {
		_, err := c.Run(ctx, "kubectl", "delete", "-k", directory, "-l", "app.kubernetes.io/component=registration")
		if err == nil {
			_, err = c.Run(ctx, "kubectl", "delete", "-k", directory, "--ignore-not-found")
		}
		return err
	})
}

// Policies are the policies of deploy/policies, by which the API server injects pods
// without a program of Lanyard.
type Policies struct{}

// String returns the name of the method.
func (Policies) String() string { return "policies" }

// Up installs the policies and waits until the API server follows them: a ServiceAccount
// that is written before stays without the label.
func (Policies) Up(ctx context.Context, c *Cluster) error {
	if _, err := c.Run(ctx, "kubectl", "apply", "-k", "deploy/policies"); err != nil {
		return err
	}
	probe := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: map[string]string{"lanyard.dev/audience": "probe"}}}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return process.Poll(ctx, "the API server to label ServiceAccounts", func(ctx context.Context) error {
		created, err := c.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && created.Labels["lanyard.dev/identity"] != "enabled" {
			err = errors.New("the ServiceAccount was not labelled")
		}
		return err
	})
}

// Down removes the policies.
func (Policies) Down(ctx context.Context, c *Cluster) error {
	_, err := c.Run(ctx, "kubectl", "delete", "-k", "deploy/policies")
	return err
}

// kustomize calls do with a directory that contains a kustomization of
// deploy/base as a user would write it.
func (i *Install) kustomize(c *Cluster, do func(directory string) error) (err error) {
	if err := os.MkdirAll(filepath.Join(c.Root, "bin"), 0o755); err != nil {
		return err
	}
	directory, err := os.MkdirTemp(filepath.Join(c.Root, "bin"), "kustomization-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	text, err := yaml.Marshal(i.kustomization())
	if err != nil {
		return fmt.Errorf("encode the kustomization: %w", err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), text, 0o600); err != nil {
		return err
	}
	return do(directory)
}

func (i *Install) kustomization() map[string]any {
	repository, tag, _ := strings.Cut(WebhookImage, ":")
	k := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{"../../deploy/base"},
		"images":    []any{map[string]any{"name": "lanyard-webhook", "newName": repository, "newTag": tag}},
	}
	if i.Certificates == CertManager {
		k["components"] = []string{"../../deploy/components/cert-manager"}
	} else if i.CADuration != 0 {
		k["patches"] = []any{map[string]any{
			"target": map[string]any{"kind": "Deployment", "name": Deployment},
			"patch": fmt.Sprintf(`[
				{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--ca-duration=%s"},
				{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--certificate-duration=%s"}
			]`, i.CADuration, i.CertificateDuration),
		}}
	}
	return k
}
