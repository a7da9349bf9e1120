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
)

// Register creates the webhook configurations of deployDir with the process's
// URL instead of the Service. They take effect a moment later.
func (p *Process) Register(ctx context.Context, client kubernetes.Interface, deployDir string) error {
	mutating, validating, err := Registration(deployDir, p.URL, p.CA)
	if err != nil {
		return err
	}
	api := client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the mutating webhook configuration: %w", err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the validating webhook configuration: %w", err)
	}
	return nil
}

// Registration reads the webhook configurations of deployDir, and replaces the Service with URLs of
// the same paths.
func Registration(deployDir, url string, ca []byte) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	mutating, err := ReadMutating(deployDir)
	if err != nil {
		return nil, nil, err
	}
	validating, err := readOne[*admissionregistrationv1.ValidatingWebhookConfiguration](filepath.Join(deployDir, "60-validatingwebhookconfiguration.yaml"))
	if err != nil {
		return nil, nil, err
	}
	redirect := func(config *admissionregistrationv1.WebhookClientConfig) {
		url := url + *config.Service.Path
		*config = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca}
	}
	for i := range mutating.Webhooks {
		redirect(&mutating.Webhooks[i].ClientConfig)
	}
	for i := range validating.Webhooks {
		redirect(&validating.Webhooks[i].ClientConfig)
	}
	return mutating, validating, nil
}

// ReadMutating reads the mutating webhook configuration of deployDir. Its first
// webhook is for pods.
func ReadMutating(deployDir string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return readOne[*admissionregistrationv1.MutatingWebhookConfiguration](filepath.Join(deployDir, "50-mutatingwebhookconfiguration.yaml"))
}
