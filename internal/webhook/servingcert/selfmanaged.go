// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const (
	// trustDelay is the time between the last change of a webhook configuration for a new CA
	// and the first use of that CA, because each API server learns of the change by its own
	// watch.
	trustDelay = 5 * time.Second
	// retryDelay is the time between two attempts, and stepTimeout limits the requests of one.
	retryDelay, stepTimeout = 2 * time.Second, 30 * time.Second
	// defaultMaxDelay is the longest wait. Timers do not run while a machine is suspended.
	defaultMaxDelay = time.Minute
)

// SelfManagedOptions configure a SelfManaged. All are required.
type SelfManagedOptions struct {
	// Client must be allowed to get, list, watch, apply and update the Secret, and to get,
	// list, watch and patch the webhook configurations.
	Client dynamic.Interface
	// SecretNamespace and SecretName name the Secret of the CA.
	SecretNamespace, SecretName string
	// WebhookConfigurationName is the name of the MutatingWebhookConfiguration and of
	// the ValidatingWebhookConfiguration that must trust the CA.
	WebhookConfigurationName string
	// Hosts are the DNS names and IP addresses of the serving certificate.
	Hosts []string
	// CADuration and CertificateDuration are the lifetimes of CA and serving certificates,
	// which are renewed after two thirds of their lifetimes.
	CADuration, CertificateDuration time.Duration
	// OnChange is called with the expiry of each new serving certificate.
	OnChange func(notAfter time.Time)
	// Logger logs changes and failures.
	Logger logr.Logger
}

// SelfManaged issues its own serving certificate. All replicas share one CA, which is in a
// Secret and in the caBundle of the webhook configurations. Each replica keeps its own
// serving certificate in memory.
//
// A renewal never breaks trust. A CA certificate is renewed with the same key. If
// the key changes, because the Secret was deleted or damaged, the old CA stays in
// the bundle until its last leaf has expired, and replicas switch to the new CA
// only after every webhook configuration trusts it.
type SelfManaged struct {
	served

	opts           SelfManagedOptions
	secret         *watchedObject
	configurations []*watchedObject
	changed        chan struct{} // of capacity 1: an object has changed
	maxDelay       time.Duration // the longest time between two steps

	last *authority // of the last step
	// trusted is a CA certificate that every configuration has trusted since trustedSince.
	trusted      *x509.Certificate
	trustedSince time.Time

	untrusted atomic.Pointer[error] // what does not trust the certificate
}

// NewSelfManaged returns a SelfManaged without a certificate; Start issues it.
func NewSelfManaged(opts SelfManagedOptions) *SelfManaged {
	s := &SelfManaged{
		opts:     opts,
		changed:  make(chan struct{}, 1),
		maxDelay: defaultMaxDelay,
	}
	s.secret = watchObject(opts.Client.Resource(secrets).Namespace(opts.SecretNamespace), "Secret", opts.SecretName, s.wake, opts.Logger)
	s.configurations = []*watchedObject{
		watchObject(opts.Client.Resource(mutatingConfigurations),
			"MutatingWebhookConfiguration", opts.WebhookConfigurationName, s.wake, opts.Logger),
		watchObject(opts.Client.Resource(validatingConfigurations),
			"ValidatingWebhookConfiguration", opts.WebhookConfigurationName, s.wake, opts.Logger),
	}
	return s
}

func (s *SelfManaged) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // the next step is already due
	}
}

// Start issues the certificate and renews it, the CA and the caBundles until ctx is
// done. It retries after a failure.
func (s *SelfManaged) Start(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	synced := []cache.InformerSynced{}
	for _, object := range append(s.configurations, s.secret) {
		watches.Go(func() { object.RunWithContext(ctx) })
		synced = append(synced, object.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	// The rate limit matters if another client keeps overwriting the same fields.
	steps := rate.NewLimiter(rate.Every(time.Second), 10)
	for steps.Wait(ctx) == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		case <-time.After(s.step(ctx)):
		}
	}
	return nil
}

// webhooks returns the webhooks of all configurations, with their configurations.
func (s *SelfManaged) webhooks() iter.Seq2[*watchedObject, webhook] {
	return func(yield func(*watchedObject, webhook) bool) {
		for _, configuration := range s.configurations {
			for _, w := range webhooksOf(configuration.get()) {
				if !yield(configuration, w) {
					return
				}
			}
		}
	}
}

// step performs the work that is due, and returns the time until the next step if no object
// changes.
func (s *SelfManaged) step(ctx context.Context) time.Duration {
	now := time.Now()
	next := now.Add(s.maxDelay)
	wakeAt := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	// A request without a response must not keep the leaf from being renewed.
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	ca, err := s.ensureAuthority(limited, now)
	if err == nil {
		s.last = ca
		wakeAt(renewAt(ca.certificate))
		if len(ca.previous) > 0 {
			wakeAt(ca.forgetAt(s.opts.CertificateDuration))
		}
		err = s.ensureRegistration(limited, ca, now)
	}
	// The requests take time, and trustDelay begins after the last of them.
	now = time.Now()
	if err != nil && ctx.Err() == nil {
		s.report(err)
		wakeAt(now.Add(retryDelay))
	}
	// If the CA cannot be read or written, the last known CA is still trusted.
	if s.last != nil {
		wakeAt(s.ensureLeaf(s.last, now))
	}
	s.check(now)
	return max(next.Sub(now), 0)
}

// report logs a failure, except a conflict: another replica wrote first, and the watch
// delivers the new object.
func (s *SelfManaged) report(err error) {
	if !apierrors.IsConflict(err) {
		s.opts.Logger.Error(err, "Failed to renew, keeping the current certificate", "retryAfter", retryDelay.String())
	}
}

// ensureRegistration writes the CA into the webhook configurations. It skips a
// missing configuration: an operator may have deleted it in an emergency.
func (s *SelfManaged) ensureRegistration(ctx context.Context, ca *authority, now time.Time) error {
	var errs []error
	for _, configuration := range s.configurations {
		patch := registrationPatch(webhooksOf(configuration.get()), ca.bundle())
		if patch.Empty() {
			continue
		}
		latest, err := s.isLatest(ctx, ca, now)
		if err != nil || !latest {
			return errors.Join(append(errs, err)...)
		}
		_, err = configuration.resource.Patch(ctx, configuration.name, types.JSONPatchType, patch.Bytes(), metav1.PatchOptions{FieldManager: fieldManager})
		switch {
		case err == nil:
			s.opts.Logger.Info("Webhook configuration updated", "configuration", configuration.String())
		case !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("write caBundle into %v: %w", configuration, err))
		}
	}
	return errors.Join(errs...)
}

// isLatest reports whether the Secret contains this CA. It asks the API server, because the
// watch of the Secret may be behind those of the configurations. If this replica replaced a
// newer CA with an older one, the API server would no longer trust the other replicas.
func (s *SelfManaged) isLatest(ctx context.Context, ca *authority, now time.Time) (bool, error) {
	secret, err := s.secret.resource.Get(ctx, s.opts.SecretName, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read Secret %s/%s: %w", s.opts.SecretNamespace, s.opts.SecretName, err)
	}
	stored, err := decodeAuthority(secretData(secret), now)
	return err == nil && bytes.Equal(stored.bundle(), ca.bundle()), nil
}

// ensureLeaf issues a serving certificate if one is due, and returns when the next
// one is.
func (s *SelfManaged) ensureLeaf(ca *authority, now time.Time) time.Time {
	leaf := s.leaf()
	switch {
	case s.checkAt(now) != nil:
		// There is no valid certificate to keep.
	case leaf.CheckSignatureFrom(ca.certificate) != nil:
		if usable := s.usableAt(ca, now); now.Before(usable) {
			return usable
		}
	case now.Before(renewAt(leaf)):
		return renewAt(leaf)
	}
	certificate, err := ca.leaf(now, s.opts.CertificateDuration, s.opts.Hosts)
	if err != nil {
		s.report(err)
		return now.Add(retryDelay)
	}
	s.current.Store(certificate)
	s.opts.OnChange(certificate.Leaf.NotAfter)
	s.opts.Logger.Info("Serving certificate issued", "notAfter", certificate.Leaf.NotAfter)
	return renewAt(certificate.Leaf)
}

// usableAt returns when every API server trusts a CA with a new key: trustDelay after every
// configuration contains it.
func (s *SelfManaged) usableAt(ca *authority, now time.Time) time.Time {
	for _, w := range s.webhooks() {
		if !slices.ContainsFunc(decodeBundle(w.ClientConfig.CABundle), ca.certificate.Equal) {
			s.trusted = nil
			return now.Add(s.maxDelay)
		}
	}
	if !ca.certificate.Equal(s.trusted) {
		s.trusted, s.trustedSince = ca.certificate, now
	}
	return s.trustedSince.Add(trustDelay)
}

// check records whether all configurations trust the certificate.
func (s *SelfManaged) check(now time.Time) {
	leaf := s.leaf()
	if leaf == nil {
		return
	}
	var untrusted error
	for configuration, w := range s.webhooks() {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(w.ClientConfig.CABundle)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
			err = fmt.Errorf("webhook %s of %v does not trust the serving certificate: %w", w.Name, configuration, err)
			untrusted = errors.Join(untrusted, err)
		}
	}
	s.untrusted.Store(&untrusted)
}

// Check is a health check. It fails while the certificate is missing, is not
// valid yet or has expired, and while a webhook configuration does not trust it.
func (s *SelfManaged) Check(r *http.Request) error {
	if untrusted := s.untrusted.Load(); untrusted != nil && *untrusted != nil {
		return *untrusted
	}
	return s.served.Check(r)
}
