// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peers contains stand-ins for the webhooks whose annotations Lanyard adopts.
// Each changes a pod as that webhook does: the same volumes, mounts and variables in the
// same order, the same rules for existing variables and mounts, and the same faults. The
// code is Lanyard's own, based on a description of the webhooks.
package peers

import (
	"errors"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Peer is a stand-in for one webhook, with the flags of that webhook.
type Peer interface {
	// Registration returns how the webhook's own manifests register it, without the
	// client configuration. API servers call webhooks in the order of its name.
	Registration() *admissionregistrationv1.MutatingWebhookConfiguration
	// Mutate changes a new pod as the webhook does. account is nil if it does not
	// exist. An error denies the pod.
	Mutate(pod *corev1.Pod, account *corev1.ServiceAccount) error
}

// Flags are the settings of one webhook. One of the fields must be set.
type Flags struct {
	EKS   *EKS   `json:"eks,omitempty"`
	Azure *Azure `json:"azure,omitempty"`
	GCP   *GCP   `json:"gcp,omitempty"`
}

// Peer returns the stand-in with these flags.
func (f Flags) Peer() (Peer, error) {
	var set []Peer
	if f.EKS != nil {
		set = append(set, f.EKS)
	}
	if f.Azure != nil {
		set = append(set, f.Azure)
	}
	if f.GCP != nil {
		set = append(set, f.GCP)
	}
	if len(set) != 1 {
		return nil, errors.New("want one of eks, azure and gcp")
	}
	return set[0], nil
}

// Admit is like Peer.Mutate, for the pods that the API server calls the webhook for.
// It leaves all others as they are.
func Admit(p Peer, pod *corev1.Pod, account *corev1.ServiceAccount) error {
	selector, err := metav1.LabelSelectorAsSelector(p.Registration().Webhooks[0].ObjectSelector)
	if err != nil {
		return err
	}
	if !selector.Matches(labels.Set(pod.Labels)) {
		return nil
	}
	return p.Mutate(pod, account)
}

// Reinvoked reports whether the API server calls the webhook again after others
// changed the pod.
func Reinvoked(p Peer) bool {
	policy := p.Registration().Webhooks[0].ReinvocationPolicy
	return policy != nil && *policy == admissionregistrationv1.IfNeededReinvocationPolicy
}

// registration returns a configuration for new pods in all namespaces.
func registration(name, webhook string, failure admissionregistrationv1.FailurePolicyType, reinvocation admissionregistrationv1.ReinvocationPolicyType, selector *metav1.LabelSelector) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: webhook, FailurePolicy: &failure, ReinvocationPolicy: &reinvocation, ObjectSelector: selector,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
}

// each calls change for the init containers and the containers that are not skipped.
// No webhook here changes ephemeral containers.
func each(pod *corev1.Pod, skip []string, change func(*corev1.Container)) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !slices.Contains(skip, list[i].Name) {
				change(&list[i])
			}
		}
	}
}

// initContainer returns the index of an init container, or -1.
func initContainer(pod *corev1.Pod, name string) int {
	return slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

// sets reports whether the container sets one of the variables, with whatever value.
func sets(c *corev1.Container, names ...string) bool {
	return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return slices.Contains(names, v.Name) })
}

// add appends a variable.
func add(c *corev1.Container, name, value string) {
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

// addIfAbsent appends a variable that the container does not set.
func addIfAbsent(c *corev1.Container, name, value string) {
	if !sets(c, name) {
		add(c, name, value)
	}
}

// mounts reports whether the container mounts a volume of this name, anywhere.
func mounts(c *corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

// replaceOrAdd gives the element of the same name this value, or appends it.
func replaceOrAdd[T any](list []T, name func(*T) string, element T) []T {
	for i := range list {
		if name(&list[i]) == name(&element) {
			list[i] = element
			return list
		}
	}
	return append(list, element)
}

func volumeName(v *corev1.Volume) string     { return v.Name }
func mountName(m *corev1.VolumeMount) string { return m.Name }
func variableName(v *corev1.EnvVar) string   { return v.Name }

// projected returns a volume with one token.
func projected(name, audience, path string, expiration int64, mode *int32) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: mode,
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: audience, ExpirationSeconds: &expiration, Path: path,
		}}},
	}}}
}
