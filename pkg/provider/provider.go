// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider renders the identities of a ServiceAccount: the token, the files and
// the variables that each provider adds to a pod. Operators use it to write pod templates
// for clusters without the webhook, and programs that do not run in a pod use the files
// and variables.
//
// The definitions of the providers are part of the settings: the built-in providers, and
// the custom providers of the configuration file.
//
// Unstable before v1: a minor version may change the API.
package provider

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	publicannotations "github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Renderer renders identities. It may be used concurrently. Make it with New.
type Renderer struct{ settings *settings.Settings }

// New returns a Renderer for a cluster with these settings.
func New(o publicannotations.Options) (*Renderer, error) {
	s, err := options.Embedded(o.Config, o.ReservedAudiences)
	if err != nil {
		return nil, err
	}
	return &Renderer{s}, nil
}

// Injection is the part of one provider.
type Injection struct {
	// Provider is the name of the provider.
	Provider string
	// MountPath is where the volume with the token and the files must be mounted.
	MountPath string
	// Token is the projected token. Its path is relative to MountPath.
	Token corev1.ServiceAccountTokenProjection
	// TokenCopy is the path of a second copy of the token, or empty.
	TokenCopy string
	// Files are the contents of the other files, by their paths relative to MountPath.
	Files map[string]string
	// Variables are for each container, in the form of a pod's spec.
	Variables []corev1.EnvVar
}

// Render returns the injections for the pods of the ServiceAccount, on Windows nodes or on
// other nodes, sorted by provider. It returns all mistakes in the annotations instead, or
// neither for a ServiceAccount that asks for no identity. Render does not compare the
// identities with the policy of the namespace.
func (r *Renderer) Render(serviceAccount metav1.Object, windows bool) ([]Injection, field.ErrorList) {
	keys, defaults := r.settings.Keys, r.settings.Defaults
	namespace, name := serviceAccount.GetNamespace(), serviceAccount.GetName()
	identity, errs := annotations.ParseServiceAccount(keys, serviceAccount.GetAnnotations(), defaults.For(namespace, name))
	if identity == nil || len(errs) > 0 {
		return nil, errs
	}
	expiration, errs := annotations.Expiration(keys, new(annotations.Pod), identity, defaults)
	rendered := provider.NewInjection(identity.Providers, &provider.Subject{
		Namespace: namespace, ServiceAccount: name, MountPath: defaults.TokenMountPath, TokenExpirationSeconds: expiration, Windows: windows,
	})
	injections := make([]Injection, len(rendered.Providers))
	for i := range rendered.Providers {
		injections[i] = injectionOf(&rendered.Providers[i], rendered.MountPath)
	}
	return injections, errs
}

func injectionOf(p *provider.Provider, mountPath string) Injection {
	injection := Injection{
		Provider: p.Name, MountPath: mountPath, TokenCopy: p.Copy.File,
		Token: corev1.ServiceAccountTokenProjection{Audience: p.Token.Audience, ExpirationSeconds: &p.Token.ExpirationSeconds, Path: p.Token.Path},
	}
	if p.File.Path != "" {
		injection.Files = map[string]string{p.File.Path: p.File.Content}
	}
	for _, v := range p.Variables {
		variable := corev1.EnvVar{Name: v.Name, Value: v.Value}
		if v.PodName != "" {
			variable = corev1.EnvVar{Name: v.Name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: provider.PodNameField}}}
		}
		injection.Variables = append(injection.Variables, variable)
	}
	return injection
}
