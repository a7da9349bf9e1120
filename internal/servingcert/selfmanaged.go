// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const (
	// trustDelay is how long a new key waits after the webhook configurations
	// carry it: each apiserver learns of them by a watch of its own.
	trustDelay = 5 * time.Second
	// retryDelay is between two tries of what failed.
	retryDelay = 2 * time.Second
	// maxDelay is the longest wait. Timers stand still while a machine sleeps.
	maxDelay = time.Minute
)

// SelfManagedOptions say what a SelfManaged keeps and where. All are required.
type SelfManagedOptions struct {
	// Client may get, list, watch, apply and update the Secret, and get, list,
	// watch and patch the webhook configurations.
	Client dynamic.Interface
	// SecretNamespace and SecretName are the Secret's that holds the CA.
	SecretNamespace, SecretName string
	// WebhookConfigurationName is the name of the MutatingWebhookConfiguration
	// and of the ValidatingWebhookConfiguration that have to trust the CA.
	WebhookConfigurationName string
	// DNSNames are what the serving certificate is for.
	DNSNames []string
	// CADuration and CertificateDuration are how long a CA certificate and a
	// serving certificate live. Each is renewed when two thirds of it are over.
	CADuration, CertificateDuration time.Duration
	// OnChange is told when the serving certificate expires, each time there is
	// another one.
	OnChange func(notAfter time.Time)
	// Logger gets what changes, and what fails.
	Logger logr.Logger
}

// SelfManaged is a serving certificate that nobody has to provide: its CA is in
// one Secret, which all replicas share, and in the webhook configurations, so
// that the apiserver trusts it. The certificate itself is each replica's own,
// and only in memory.
//
// Nothing that is renewed ever breaks trust. A CA certificate is renewed with
// the key that it has. Where the key is another, because the Secret was deleted
// or damaged, the former CA stays trusted for as long as a certificate of its
// may live, and a replica serves one of the new CA only when the configurations
// carry that.
type SelfManaged struct {
	opts           SelfManagedOptions
	secrets        dynamic.ResourceInterface
	secret         *object
	configurations []*object
	changed        chan struct{} // holds one: something is to be looked at

	last    *authority // the one of the last step
	trusted trustedKey

	mu      sync.RWMutex
	current *tls.Certificate
	problem error // why the certificate is of no use, nil where it is
}

// trustedKey is since when every configuration carries a CA's certificate.
type trustedKey struct {
	certificate *x509.Certificate
	since       time.Time
}

// NewSelfManaged prepares; Start makes the certificate.
func NewSelfManaged(opts SelfManagedOptions) *SelfManaged {
	s := &SelfManaged{
		opts:    opts,
		secrets: opts.Client.Resource(secrets).Namespace(opts.SecretNamespace),
		changed: make(chan struct{}, 1),
		problem: errors.New("the CA has not been read yet"),
	}
	s.secret = watchObject(s.secrets, "Secret", opts.SecretName, s.wake, opts.Logger)
	s.configurations = []*object{
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
	default: // it is going to look anyway
	}
}

// Start makes the certificate, and keeps it and the trust in it, until ctx
// ends. What fails is tried again.
func (s *SelfManaged) Start(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	synced := []cache.InformerSynced{}
	for _, o := range s.objects() {
		watches.Go(func() { o.run(ctx) })
		synced = append(synced, o.synced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	// Somebody else may write the same fields again and again.
	steps := rate.NewLimiter(rate.Every(time.Second), 10)
	for steps.Wait(ctx) == nil {
		timer := time.NewTimer(s.step(ctx, time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
	return nil
}

func (s *SelfManaged) objects() []*object { return append([]*object{s.secret}, s.configurations...) }

// hooks are the webhooks of all configurations, each with its configuration.
func (s *SelfManaged) hooks() iter.Seq2[*object, hook] {
	return func(yield func(*object, hook) bool) {
		for _, o := range s.configurations {
			for _, h := range hooks(o.get()) {
				if !yield(o, h) {
					return
				}
			}
		}
	}
}

// step does what is to be done now, and says how long nothing will be, if
// nothing changes.
func (s *SelfManaged) step(ctx context.Context, now time.Time) time.Duration {
	next := now.Add(maxDelay)
	before := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	authority, err := s.ensureAuthority(ctx, now)
	if err == nil {
		s.last = authority
		before(renewAt(authority.certificate))
		if len(authority.former) > 0 {
			before(authority.forgetAt(s.opts.CertificateDuration))
		}
		err = s.ensureTrust(ctx, authority)
	}
	if err != nil && ctx.Err() == nil {
		s.report(err)
		before(now.Add(retryDelay))
	}
	// A CA that cannot be written any more is still trusted, and can sign.
	if s.last != nil {
		before(s.ensureLeaf(s.last, now))
	}
	s.check(now)
	return max(next.Sub(now), 0)
}

// report logs a failure, but not that another replica was faster: the watch
// brings what it did.
func (s *SelfManaged) report(err error) {
	if !apierrors.IsConflict(err) {
		s.opts.Logger.Error(err, "The serving certificate stays as it is; trying again", "after", retryDelay.String())
	}
}

// ensureAuthority gives the CA of the Secret, which it makes or renews where
// that is due.
func (s *SelfManaged) ensureAuthority(ctx context.Context, now time.Time) (*authority, error) {
	secret := s.secret.get()
	if secret == nil {
		var err error
		s.opts.Logger.Info("The Secret of the CA is not there; making it", "namespace", s.opts.SecretNamespace, "name", s.opts.SecretName)
		if secret, err = createSecret(ctx, s.secrets, s.opts.SecretNamespace, s.opts.SecretName); err != nil {
			return nil, fmt.Errorf("create Secret %s/%s: %w", s.opts.SecretNamespace, s.opts.SecretName, err)
		}
	}
	current, wanted, err := s.wantedAuthority(secretData(secret), now)
	if err != nil || wanted == current {
		return current, err
	}
	data, err := wanted.encode()
	if err != nil {
		return nil, fmt.Errorf("encode the CA: %w", err)
	}
	if err := writeSecret(ctx, s.secrets, secret, data); err != nil {
		return nil, fmt.Errorf("write the CA into Secret %s/%s: %w", s.opts.SecretNamespace, s.opts.SecretName, err)
	}
	s.opts.Logger.Info("CA written", "subject", wanted.certificate.Subject.String(), "notAfter", wanted.certificate.NotAfter,
		"sameKey", current != nil && sameKey(current.certificate, wanted.certificate), "formerTrusted", len(wanted.former))
	return wanted, nil
}

// wantedAuthority reads the CA and says which it should be: itself, or another
// one to be written.
func (s *SelfManaged) wantedAuthority(data map[string][]byte, now time.Time) (current, wanted *authority, err error) {
	current, err = decodeAuthority(data, now)
	switch {
	case err != nil:
		wanted, err = s.madeAnew(data, now, err)
		return nil, wanted, err
	case !now.Before(renewAt(current.certificate)):
		wanted, err = current.renewed(now, s.opts.CADuration)
		return current, wanted, err
	case len(current.former) > 0 && !now.Before(current.forgetAt(s.opts.CertificateDuration)):
		return current, current.withoutFormer(), nil
	}
	return current, current, nil
}

// madeAnew gives a CA in the place of one that cannot be used: with the same
// key, if that can be read, or else with the former ones trusted beside it.
func (s *SelfManaged) madeAnew(data map[string][]byte, now time.Time, cause error) (*authority, error) {
	if len(data) > 0 {
		s.opts.Logger.Error(cause, "The Secret of the CA is damaged; making the CA anew", "namespace", s.opts.SecretNamespace, "name", s.opts.SecretName)
	}
	former := s.formerCertificates(data)
	if key, err := decodeKey(data[privateKeyKey]); err == nil {
		return certify(key, now, s.opts.CADuration, former)
	}
	return newAuthority(now, s.opts.CADuration, former)
}

// formerCertificates are those that a replica may still serve a leaf of: its
// own of before, and what the Secret and the configurations have trusted.
func (s *SelfManaged) formerCertificates(data map[string][]byte) []*x509.Certificate {
	var former []*x509.Certificate
	if s.last != nil {
		former = append(former, s.last.certificate)
		former = append(former, s.last.former...)
	}
	former = append(former, decodeBundle(data[bundleKey])...)
	for _, h := range s.hooks() {
		former = append(former, decodeBundle(h.caBundle)...)
	}
	return former
}

// ensureTrust has the webhook configurations trust the CA. One that is not
// there, as after an emergency, needs nothing.
func (s *SelfManaged) ensureTrust(ctx context.Context, authority *authority) error {
	bundle, err := authority.bundle()
	if err != nil {
		return fmt.Errorf("encode the CA: %w", err)
	}
	var errs []error
	for _, o := range s.configurations {
		written, err := trust(ctx, o.resource, o.get(), bundle)
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("write caBundle into %v: %w", o, err))
		case written:
			s.opts.Logger.Info("CA written into the webhook configuration", "configuration", o.String())
		}
	}
	return errors.Join(errs...)
}

// ensureLeaf makes a serving certificate where another one is due, and says when
// to come back.
func (s *SelfManaged) ensureLeaf(authority *authority, now time.Time) time.Time {
	leaf := s.leaf()
	switch {
	case leaf == nil || now.After(leaf.NotAfter):
		// Nothing that could be gone on with.
	case !authority.signed(leaf):
		if usable := s.usableAt(authority, now); now.Before(usable) {
			return usable
		}
	case now.Before(renewAt(leaf)):
		return renewAt(leaf)
	}
	certificate, err := authority.leaf(now, s.opts.CertificateDuration, s.opts.DNSNames)
	if err != nil {
		s.report(err)
		return now.Add(retryDelay)
	}
	s.mu.Lock()
	s.current = certificate
	s.mu.Unlock()
	s.opts.OnChange(certificate.Leaf.NotAfter)
	s.opts.Logger.Info("Serving certificate made", "notAfter", certificate.Leaf.NotAfter)
	return renewAt(certificate.Leaf)
}

// usableAt says when a CA with another key is trusted by every apiserver: a
// while after every configuration carries it.
func (s *SelfManaged) usableAt(authority *authority, now time.Time) time.Time {
	for _, h := range s.hooks() {
		if !holds(h.caBundle, authority.certificate) {
			s.trusted = trustedKey{}
			return now.Add(maxDelay)
		}
	}
	if !authority.certificate.Equal(s.trusted.certificate) {
		s.trusted = trustedKey{authority.certificate, now}
	}
	return s.trusted.since.Add(trustDelay)
}

// check looks whether the configurations trust the certificate.
func (s *SelfManaged) check(now time.Time) {
	leaf := s.leaf()
	var problem error
	if leaf == nil {
		problem = errors.New("there is no serving certificate yet")
	} else {
		for o, h := range s.hooks() {
			problem = errors.Join(problem, verify(leaf, o, h, now))
		}
	}
	s.mu.Lock()
	s.problem = problem
	s.mu.Unlock()
}

func verify(leaf *x509.Certificate, o *object, h hook, now time.Time) error {
	roots := x509.NewCertPool()
	for _, c := range decodeBundle(h.caBundle) {
		roots.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return fmt.Errorf("the serving certificate is not trusted by webhook %s of %v: %w", h.name, o, err)
	}
	return nil
}

func (s *SelfManaged) leaf() *x509.Certificate {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.current == nil {
		return nil
	}
	return s.current.Leaf
}

// GetCertificate is for tls.Config.
func (s *SelfManaged) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.current == nil {
		return nil, s.problem
	}
	return s.current, nil
}

// Check is a health check: it fails while there is no certificate, while it is
// outside of its validity, and while a webhook configuration does not trust it.
func (s *SelfManaged) Check(*http.Request) error {
	s.mu.RLock()
	problem := s.problem
	s.mu.RUnlock()
	if problem != nil {
		return problem
	}
	return checkValidity(s.leaf(), time.Now())
}
