// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Register creates the webhook configurations of deployDir with the process in
// the place of the Service. It is only effective a moment later.
func (p *Process) Register(ctx context.Context, client kubernetes.Interface, deployDir string) error {
	mutating, err := ReadMutating(deployDir)
	if err != nil {
		return err
	}
	for i := range mutating.Webhooks {
		p.redirect(&mutating.Webhooks[i].ClientConfig)
	}
	validating, err := readOne[*admissionregistrationv1.ValidatingWebhookConfiguration](filepath.Join(deployDir, "60-validatingwebhookconfiguration.yaml"))
	if err != nil {
		return err
	}
	for i := range validating.Webhooks {
		p.redirect(&validating.Webhooks[i].ClientConfig)
	}
	api := client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// redirect puts a URL in the place of a Service, with the same path.
func (p *Process) redirect(config *admissionregistrationv1.WebhookClientConfig) {
	url := p.URL + *config.Service.Path
	*config = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: p.CA}
}

// ReadMutating reads the configuration of deployDir, whose first webhook is the
// one for pods.
func ReadMutating(deployDir string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return readOne[*admissionregistrationv1.MutatingWebhookConfiguration](filepath.Join(deployDir, "50-mutatingwebhookconfiguration.yaml"))
}

// Guard creates the policies of deployDir that stand beside the webhook, as the
// user of config. They are only effective a moment later.
func Guard(ctx context.Context, config *rest.Config, deployDir string) error {
	return create(ctx, config, filepath.Join(deployDir, "70-guard.yaml"))
}
