// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
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

// ServiceAccountCacheOptions returns the options of a cache that keeps the parts
// of ServiceAccounts that the handlers read. The caller may add limits and a recorder.
func ServiceAccountCacheOptions(client metadata.Interface, s *annotations.Settings) metadatacache.Options {
	return metadatacache.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
		Prefix:   annotations.Prefix,
		Label:    annotations.IdentityLabel,
		MaxBytes: s.MaxServiceAccountBytes(),
	}
}

// NamespaceCacheOptions is like ServiceAccountCacheOptions for namespaces.
func NamespaceCacheOptions(client metadata.Interface) metadatacache.Options {
	return metadatacache.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Prefix:   annotations.Prefix,
		Label:    annotations.Inject,
		MaxBytes: annotations.MaxNamespaceBytes,
	}
}
