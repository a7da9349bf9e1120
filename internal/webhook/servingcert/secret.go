// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managedByLabel is "Helm" on each object of a Helm release.
const managedByLabel = "app.kubernetes.io/managed-by"

// ensureAuthority returns the CA of the Secret. It creates or renews it if
// necessary.
func (s *SelfManaged) ensureAuthority(ctx context.Context, now time.Time) (*authority, error) {
	secret := s.secret.get()
	if secret == nil {
		if uninstalled, err := s.uninstalled(ctx); uninstalled || err != nil {
			return s.last, err
		}
		var err error
		s.opts.Logger.Info("CA Secret not found, creating it", "namespace", s.opts.SecretNamespace, "name", s.opts.SecretName)
		// All replicas apply the same object, so their order does not matter. Unlike create,
		// RBAC can allow apply for one name.
		if secret, err = s.secret.resource.Apply(ctx, s.opts.SecretName, s.newSecret(), metav1.ApplyOptions{FieldManager: fieldManager}); err != nil {
			return nil, fmt.Errorf("create Secret %s/%s: %w", s.opts.SecretNamespace, s.opts.SecretName, err)
		}
	}
	current, wanted, err := s.wantedAuthority(secretData(secret), now)
	if err != nil || wanted == current {
		return current, err
	}
	data, err := wanted.encode()
	if err != nil {
		return nil, err
	}
	if err := writeSecret(ctx, s.secret.resource, secret, data); err != nil {
		return nil, fmt.Errorf("write the CA into Secret %s/%s: %w", s.opts.SecretNamespace, s.opts.SecretName, err)
	}
	s.opts.Logger.Info("CA written", "subject", wanted.certificate.Subject.String(), "notAfter", wanted.certificate.NotAfter,
		"sameKey", current != nil && sameKey(current.certificate, wanted.certificate), "previousTrusted", len(wanted.previous))
	return wanted, nil
}

// uninstalled reports whether this replica has used the Secret, and now neither the Secret
// nor a webhook configuration exists. A replica that created the Secret again would leave it
// behind.
//
// It asks the API server, because the watches of the configurations may be behind
// the watch of the Secret. "helm uninstall" deletes the configurations first.
func (s *SelfManaged) uninstalled(ctx context.Context) (bool, error) {
	if s.last == nil {
		return false, nil
	}
	for _, configuration := range s.configurations {
		_, err := configuration.resource.Get(ctx, configuration.name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	s.opts.Logger.Info("CA Secret and webhook configurations not found, keeping the current certificate")
	return true, nil
}

// newSecret returns an empty Secret, which belongs to the Helm release of the webhook
// configurations, if any, because Helm only upgrades and deletes its own objects.
func (s *SelfManaged) newSecret() *unstructured.Unstructured {
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}}
	secret.SetNamespace(s.opts.SecretNamespace)
	secret.SetName(s.opts.SecretName)
	for _, configuration := range s.configurations {
		object := configuration.get()
		if object == nil || object.GetLabels()[managedByLabel] != "Helm" {
			continue
		}
		annotations := map[string]string{}
		for _, key := range []string{"meta.helm.sh/release-name", "meta.helm.sh/release-namespace"} {
			annotations[key] = object.GetAnnotations()[key]
		}
		secret.SetLabels(map[string]string{managedByLabel: "Helm"})
		secret.SetAnnotations(annotations)
	}
	return secret
}

// wantedAuthority returns the CA in the Secret's data, or nil if the data is invalid, and the
// CA that the Secret should contain: the same one, or one to write.
func (s *SelfManaged) wantedAuthority(data map[string][]byte, now time.Time) (current, wanted *authority, err error) {
	current, err = decodeAuthority(data, now)
	switch {
	case err != nil:
		wanted, err = s.regenerated(data, now, err)
		return nil, wanted, err
	case now.Before(current.certificate.NotBefore) || !now.Before(renewAt(current.certificate)): // the clock may have been set back
		wanted, err = certify(current.key, now, s.opts.CADuration, current.previous)
		return current, wanted, err
	case len(current.previous) > 0 && !now.Before(current.forgetAt(s.opts.CertificateDuration)):
		return current, &authority{certificate: current.certificate, key: current.key}, nil
	}
	return current, current, nil
}

// regenerated returns a CA to replace an invalid one, with the same key if that is valid, or
// else a new key. The previous CAs stay trusted.
func (s *SelfManaged) regenerated(data map[string][]byte, now time.Time, cause error) (*authority, error) {
	if len(data) > 0 {
		s.opts.Logger.Error(cause, "CA Secret is invalid, regenerating the CA", "namespace", s.opts.SecretNamespace, "name", s.opts.SecretName)
	}
	return certify(decodeKey(data), now, s.opts.CADuration, s.previousCertificates(data))
}

// previousCertificates returns the CA certificates whose leaves a replica may still serve.
// They come from this replica's last CA, the Secret and the configurations.
func (s *SelfManaged) previousCertificates(data map[string][]byte) []*x509.Certificate {
	var previous []*x509.Certificate
	if s.last != nil {
		previous = append(previous, s.last.certificate)
		previous = append(previous, s.last.previous...)
	}
	previous = append(previous, decodeBundle(data[bundleKey])...)
	for _, w := range s.webhooks() {
		previous = append(previous, decodeBundle(w.ClientConfig.CABundle)...)
	}
	return previous
}
