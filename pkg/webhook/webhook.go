// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook runs Lanyard's admission webhooks in a manager of
// controller-runtime, for operators that embed them:
//
//	if err := webhook.AddToManager(mgr, webhook.Options{}); err != nil { ... }
//
// The manager's webhook server serves the paths MutatePodPath,
// MutateServiceAccountPath and ValidateServiceAccountPath. Register them as the
// manifests of Lanyard do, with the guard. The manager needs the right to get,
// list and watch ServiceAccounts and Namespaces.
//
// lanyard-webhook itself does not use this package, because controller-runtime
// loads every API type into memory. Both make the same decisions.
package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
)

// The paths that the webhooks are served on.
const (
	MutatePodPath              = injector.MutatePodPath
	MutateServiceAccountPath   = injector.MutateServiceAccountPath
	ValidateServiceAccountPath = injector.ValidateServiceAccountPath
)

// Options are the settings of the webhooks. The zero value has the defaults of
// lanyard-webhook.
type Options struct {
	// AnnotationPrefix starts every key. If empty, it is lanyard.dev/.
	AnnotationPrefix string
	// Providers are those that ServiceAccounts can ask for. If nil, they are
	// provider.Builtin().
	Providers []*provider.Definition
	// Config is the content of a configuration file of lanyard-webhook, with custom
	// providers and identity mappings (docs/providers.md). The custom providers are
	// added to Providers. Settings in the file are an error: they have fields here.
	Config []byte
	// Adopt names other programs whose annotations on ServiceAccounts are translated,
	// as --adopt of lanyard-webhook does (docs/adoption.md). Register the webhook for
	// ServiceAccounts for these annotations, too.
	Adopt []string
	// Defaults apply where an annotation is not set. A TokenExpirationSeconds of 0
	// stands for annotations.DefaultTokenExpirationSeconds, and an empty TokenMountPath
	// for provider.DefaultTokenMountPath. If ReservedAudiences is nil, it is
	// annotations.CommonAPIServerAudiences(); add the cluster's issuer.
	Defaults annotations.Defaults
	// Registerer gets Lanyard's metrics. If nil, it is controller-runtime's. The
	// metrics of lookups stay 0, and the metrics of ServiceAccounts and the certificate are
	// absent: the manager's cache and server have metrics of their own.
	Registerer prometheus.Registerer
}

// AddToManager adds the webhooks to the manager's webhook server. Call it before
// the manager starts, and once for each Registerer.
func AddToManager(mgr manager.Manager, o Options) error {
	if err := addToManager(mgr, o); err != nil {
		return fmt.Errorf("add Lanyard to the manager: %w", err)
	}
	return nil
}

func addToManager(mgr manager.Manager, o Options) error {
	s, err := o.settings()
	if err != nil {
		return err
	}
	if o.Registerer == nil {
		o.Registerer = ctrlmetrics.Registry
	}
	recorder, err := metrics.New(o.Registerer)
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	serviceAccounts, err := newReader(mgr.GetCache(), "ServiceAccount", injector.ServiceAccountCacheOptions(client, s.Keys))
	if err != nil {
		return err
	}
	namespaces, err := newReader(mgr.GetCache(), "Namespace", injector.NamespaceCacheOptions(client, s.Keys))
	if err != nil {
		return err
	}
	config := injector.Config{Settings: s, ServiceAccounts: serviceAccounts, Namespaces: namespaces}
	for path, handler := range injector.Handlers(config, serviceAccounts, admission.NewBudget(), recorder, mgr.GetLogger().WithName("lanyard")) {
		mgr.GetWebhookServer().Register(path, handler)
	}
	return nil
}

// settings returns the settings of the options. Its errors have the names of the flags
// of lanyard-webhook.
func (o *Options) settings() (*settings.Settings, error) {
	file, err := settings.Parse(o.Config)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(file.Settings) > 0 {
		return nil, fmt.Errorf("config: got %q, want only %s and %s", slices.Sorted(maps.Keys(file.Settings)), settings.ProvidersKey, settings.IdentitiesKey)
	}
	values := settings.Values{
		AnnotationPrefix: cmp.Or(o.AnnotationPrefix, annotations.DefaultPrefix),
		Providers:        o.Providers, Defaults: o.Defaults, Adopt: o.Adopt, File: file,
	}
	d := &values.Defaults
	d.TokenExpirationSeconds = cmp.Or(d.TokenExpirationSeconds, annotations.DefaultTokenExpirationSeconds)
	d.TokenMountPath = cmp.Or(d.TokenMountPath, provider.DefaultTokenMountPath)
	if d.ReservedAudiences == nil {
		d.ReservedAudiences = annotations.CommonAPIServerAudiences()
	}
	s, errs := settings.New(&values)
	return s, errors.Join(errs...)
}
