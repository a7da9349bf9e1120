// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// Register creates the webhook configurations of deployDir with the process in
// the place of the Service. It is only effective a moment later.
func (p *Process) Register(ctx context.Context, client kubernetes.Interface, deployDir string) error {
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	if err := load(filepath.Join(deployDir, "50-mutatingwebhookconfiguration.yaml"), &mutating); err != nil {
		return err
	}
	for i := range mutating.Webhooks {
		p.redirect(&mutating.Webhooks[i].ClientConfig)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	if err := load(filepath.Join(deployDir, "60-validatingwebhookconfiguration.yaml"), &validating); err != nil {
		return err
	}
	for i := range validating.Webhooks {
		p.redirect(&validating.Webhooks[i].ClientConfig)
	}
	api := client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Create(ctx, &mutating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(ctx, &validating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// redirect puts a URL in the place of a Service, with the same path.
func (p *Process) redirect(config *admissionregistrationv1.WebhookClientConfig) {
	url := p.URL + *config.Service.Path
	*config = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: p.CA}
}

func load(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return fmt.Errorf("manifest %s: %w", file, err)
	}
	return nil
}
