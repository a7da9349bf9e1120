// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"net/http"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
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

// Handlers returns the handlers of all webhooks by their paths. The requests share
// the memory of budget.
func Handlers(config Config, invalidator Invalidator, budget *admission.Budget, recorder Recorder, log logr.Logger) map[string]http.Handler {
	return map[string]http.Handler{
		MutatePodPath: admission.NewHandler(&PodMutator{Config: config, Recorder: recorder}, budget, recorder, log),
		MutateServiceAccountPath: admission.NewHandler(
			&ServiceAccountMutator{Settings: config.Settings, Invalidator: invalidator}, budget, recorder, log),
		ValidateServiceAccountPath: admission.NewHandler(
			&ServiceAccountValidator{Config: config, Invalidator: invalidator}, budget, recorder, log),
	}
}
