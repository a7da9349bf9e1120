// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster finds Lanyard in a cluster: its webhook configurations, the
// namespaces and ServiceAccounts in their scope, and the options of the webhook. It also
// knows the kinds that have pods, and their pod templates (workload.go, rollout.go).
package cluster

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// The entries of the webhook configurations. Their names do not depend on the
// prefix of the annotations.
const (
	PodWebhook            = "pods.lanyard.dev"
	ServiceAccountWebhook = "serviceaccounts.lanyard.dev"
	ProbeWebhook          = probe.Webhook
)

// Find returns the mutating webhook configurations of Lanyard: one, unless it is
// not installed, or twice.
func Find(all []admissionregistrationv1.MutatingWebhookConfiguration) []*admissionregistrationv1.MutatingWebhookConfiguration {
	var found []*admissionregistrationv1.MutatingWebhookConfiguration
	for i := range all {
		if Entry(&all[i], PodWebhook) != nil {
			found = append(found, &all[i])
		}
	}
	return found
}

// Names lists the names of configurations.
func Names(configurations []*admissionregistrationv1.MutatingWebhookConfiguration) string {
	var list []string
	for _, c := range configurations {
		list = append(list, c.Name)
	}
	return strings.Join(list, ", ")
}

// Entry returns the webhook of this name, or nil.
func Entry(configuration *admissionregistrationv1.MutatingWebhookConfiguration, name string) *admissionregistrationv1.MutatingWebhook {
	i := slices.IndexFunc(configuration.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == name })
	if i < 0 {
		return nil
	}
	return &configuration.Webhooks[i]
}

// Registered returns the facts about a webhook configuration that matter beside Lanyard.
func Registered(configuration *admissionregistrationv1.MutatingWebhookConfiguration) peer.Registration {
	r := peer.Registration{Name: configuration.Name, Labels: configuration.Labels}
	for i := range configuration.Webhooks {
		w := &configuration.Webhooks[i]
		r.Webhooks = append(r.Webhooks, w.Name)
		r.Again = r.Again || w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
	}
	return r
}

// GuardPolicy returns the name of the policy that denies pods without their credentials.
func GuardPolicy(configuration *admissionregistrationv1.MutatingWebhookConfiguration) string {
	return configuration.Name + "-guard-pods"
}

// Unguarded reports whether a ServiceAccount needs credentials but the guard does not
// know it: it lacks the label, or an identity is not adopted from its peer yet.
func Unguarded(s *settings.Settings, serviceAccount *metav1.PartialObjectMetadata) bool {
	labelled := annotations.IsGuarded(serviceAccount.Labels[s.Keys.IdentityLabel])
	return !labelled && s.Keys.AskForIdentity(serviceAccount.Annotations) || peer.Adoptable(s.Keys, s.Peers, serviceAccount.Annotations)
}

// Guard is whether the guard knows a ServiceAccount that asks for an identity.
type Guard string

const (
	// GuardOn means that the ServiceAccount has the label that the guard selects by.
	GuardOn Guard = "guarded"
	// GuardOff means that it lacks the label, or that an identity is not adopted from
	// another webhook's annotations yet.
	GuardOff Guard = "unguarded"
	// GuardExcluded means that Lanyard is not called for its namespace.
	GuardExcluded Guard = "excluded"
)

// GuardOf returns whether the guard knows a ServiceAccount. called reports whether Lanyard
// is called for its namespace.
func GuardOf(s *settings.Settings, serviceAccount *metav1.PartialObjectMetadata, called bool) Guard {
	switch {
	case !called:
		return GuardExcluded
	case Unguarded(s, serviceAccount):
		return GuardOff
	}
	return GuardOn
}

// CalledFor reports whether Lanyard is called for the pods of a namespace: by the webhook
// configuration or, if it was not read and is nil, by the settings of the webhook and the
// label of the namespace.
func CalledFor(configuration *admissionregistrationv1.MutatingWebhookConfiguration, s *settings.Settings, namespace *metav1.ObjectMeta) (bool, error) {
	if configuration == nil {
		return !s.Excludes(namespace.Name, namespace.Labels[s.Keys.Inject]), nil
	}
	selector, err := Selector(configuration)
	if err != nil {
		return false, err
	}
	// The API server sets the label of the name. A namespace that was not read lacks it.
	set := labels.Merge(labels.Set{corev1.LabelMetadataName: namespace.Name}, namespace.Labels)
	return selector.Matches(set), nil
}

// Selector returns the selector of the namespaces whose pods Lanyard is called for.
func Selector(configuration *admissionregistrationv1.MutatingWebhookConfiguration) (labels.Selector, error) {
	entry := Entry(configuration, PodWebhook)
	if entry == nil {
		return nil, fmt.Errorf("mutatingwebhookconfiguration %s: the webhook %s is missing", configuration.Name, PodWebhook)
	}
	if entry.NamespaceSelector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(entry.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("mutatingwebhookconfiguration %s: webhook %s: namespaceSelector: %w", configuration.Name, PodWebhook, err)
	}
	return selector, nil
}
