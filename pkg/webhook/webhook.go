// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook runs Lanyard's admission webhooks in a manager of
// controller-runtime, for operators that embed them:
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{WebhookServer: webhook.NewServer(o)})
//	...
//	if err := webhook.AddToManager(mgr, webhook.Options{}); err != nil { ... }
//
// The manager's webhook server serves the paths MutatePodPath,
// MutateServiceAccountPath and ValidateServiceAccountPath. Register them as the
// manifests of Lanyard do, with the guard.
//
// lanyard-webhook itself does not use this package: it has its own server and no manager.
// ARCHITECTURE.md has the figures. With the same settings and objects, both make the
// same decisions. These differences remain:
//
//   - lanyard-webhook finds the audiences of the API server by itself. Here, the
//     operator passes the issuer as Options.ReservedAudiences.
//   - lanyard-webhook reads its configuration file again when the file changes.
//   - lanyard-webhook waits for its caches before it serves. Here, the first reviews read from
//     the API server.
//
// An operator that embeds the webhooks must itself set the following:
//
//   - limits on connections, headers and time, with NewServer: the server of
//     controller-runtime has no limit on connections, accepts headers of 1 MiB and HTTP/2,
//     and has no deadline for bodies and responses;
//   - client certificates of the API servers, with ClientCAName in the options of the
//     server, or a NetworkPolicy: otherwise any pod can send requests. lanyard-webhook can
//     also limit the names in the certificates;
//   - limits of the ports for metrics and probes: the manager has no option for them. Turn
//     its own servers off, and add NewPort for each port, as examples/embed does;
//   - RBAC: the rights to get, list and watch ServiceAccounts and Namespaces, and nothing
//     else that the operator does not need for itself;
//   - a memory limit, and GOMEMLIMIT below it: requests and their connections may take
//     87 MiB, in addition to the operator's own memory and the caches. With 20,000
//     ServiceAccounts, 2,000 of them with identities in three clouds, the webhooks add 11 MiB
//     to the 28 MiB of an empty manager (examples/embed, resident);
//   - several replicas, and a delay between SIGTERM and the end of the manager, in which
//     the cluster removes the replica from its Service.
//
// Unstable before v1: a minor version may change the API.
package webhook

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
)

// The paths that the webhooks are served on.
const (
	MutatePodPath              = injector.MutatePodPath
	MutateServiceAccountPath   = injector.MutateServiceAccountPath
	ValidateServiceAccountPath = injector.ValidateServiceAccountPath
)

// Options are the settings of the webhooks. The zero value is the default of lanyard-webhook.
type Options struct {
	// Config is the content of the configuration file of lanyard-webhook: settings by the
	// names of the flags, custom providers and identity mappings. Settings about
	// lanyard-webhook itself, such as ports, have no effect. With adopt, register the
	// webhooks as the chart does with the same file.
	Config []byte
	// ReservedAudiences are audiences of the API server besides the common ones. No token may
	// have one. Add the issuer of the cluster.
	ReservedAudiences []string
	// Registerer registers Lanyard's metrics, by default with controller-runtime. The metrics
	// of ServiceAccounts, caches and the certificate are absent.
	Registerer prometheus.Registerer
}

// AddToManager adds the webhooks to the manager's webhook server. Call it before
// the manager starts, and once for each Registerer.
func AddToManager(mgr manager.Manager, o Options) error {
	s, err := settings.Load(o.Config, o.ReservedAudiences)
	if err != nil {
		return fmt.Errorf("add Lanyard to the manager: %w", err)
	}
	recorder, err := metrics.New(cmp.Or[prometheus.Registerer](o.Registerer, ctrlmetrics.Registry))
	if err != nil {
		return err
	}
	log := mgr.GetLogger().WithName("lanyard")
	caches, err := injector.Connect(mgr.GetConfig(), recorder, log)
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(always{caches.ServiceAccounts}), mgr.Add(always{caches.Namespaces})); err != nil {
		return fmt.Errorf("add Lanyard's caches to the manager: %w", err)
	}
	for path, handler := range injector.New(caches, recorder, log).Handlers(s) {
		mgr.GetWebhookServer().Register(path, handler)
	}
	return nil
}

// always is a runnable that does not wait until its replica is the leader: all replicas
// serve reviews.
type always struct{ manager.Runnable }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (always) NeedLeaderElection() bool { return false }
