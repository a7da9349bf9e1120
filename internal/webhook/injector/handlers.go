// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"net/http"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// The paths of the webhooks.
const (
	// MutatePodPath is for CREATE of pods and UPDATE of pods/ephemeralcontainers.
	MutatePodPath = "/mutate-v1-pod"
	// MutateServiceAccountPath is for CREATE and UPDATE of serviceaccounts.
	MutateServiceAccountPath = "/mutate-v1-serviceaccount"
	// ValidateServiceAccountPath is for CREATE and UPDATE of serviceaccounts.
	ValidateServiceAccountPath = "/validate-v1-serviceaccount"
)

// Recorder counts requests and injections.
type Recorder interface {
	admission.Recorder
	InjectionRecorder
}

// Webhooks are the webhooks of a cluster. Make them with New.
type Webhooks struct {
	Caches

	budget   *admission.Budget
	recorder Recorder
	log      logr.Logger
}

// New returns the webhooks of the cluster with these caches.
func New(caches Caches, recorder Recorder, log logr.Logger) *Webhooks {
	return &Webhooks{caches, admission.NewBudget(), recorder, log}
}

// Handlers returns the handlers of all webhooks by their paths. The requests of all calls
// share the limits of one budget.
func (w *Webhooks) Handlers(s *annotations.Settings) map[string]http.Handler {
	config := Config{Settings: s, ServiceAccounts: w.ServiceAccounts, Namespaces: w.Namespaces}
	return map[string]http.Handler{
		MutatePodPath: admission.NewHandler(&PodMutator{Config: config, Recorder: w.recorder}, w.budget, w.recorder, w.log),
		MutateServiceAccountPath: admission.NewHandler(
			&ServiceAccountMutator{Settings: s, Invalidator: w.ServiceAccounts}, w.budget, w.recorder, w.log),
		ValidateServiceAccountPath: admission.NewHandler(
			&ServiceAccountValidator{Config: config, Invalidator: w.ServiceAccounts}, w.budget, w.recorder, w.log),
	}
}
