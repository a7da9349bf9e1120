// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// Survey reads the parts of a cluster that concern Lanyard, each once, when a command first
// asks for it. An error about one part, such as a missing right, does not affect the others.
// A Survey may be used concurrently.
type Survey struct {
	client         kubernetes.Interface
	configurations part[[]admissionregistrationv1.MutatingWebhookConfiguration]
	validating     part[[]admissionregistrationv1.ValidatingWebhookConfiguration]
	policies       part[*Policies]
	injecting      part[*Injecting]
	installation   part[*Installation]

	mu       sync.Mutex
	webhooks map[string]*webhook // by the names of their registrations
}

// NewSurvey returns a survey that has read nothing yet.
func NewSurvey(client kubernetes.Interface) *Survey {
	return &Survey{client: client, webhooks: map[string]*webhook{}}
}

// part is a part of the cluster, which is read once.
type part[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (p *part[T]) get(read func() (T, error)) (T, error) {
	p.once.Do(func() { p.value, p.err = read() })
	return p.value, p.err
}

// Configurations returns all mutating webhook configurations, also those of other programs.
func (c *Survey) Configurations(ctx context.Context) ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return c.configurations.get(func() ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
		all, err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list mutatingwebhookconfigurations: %w", err)
		}
		return all.Items, nil
	})
}

// Validating returns all validating webhook configurations.
func (c *Survey) Validating(ctx context.Context) ([]admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return c.validating.get(func() ([]admissionregistrationv1.ValidatingWebhookConfiguration, error) {
		all, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list validatingwebhookconfigurations: %w", err)
		}
		return all.Items, nil
	})
}

// Policies returns the validating policies and their bindings, or nil before Kubernetes 1.30.
func (c *Survey) Policies(ctx context.Context) (*Policies, error) {
	return c.policies.get(func() (*Policies, error) {
		api := c.client.AdmissionregistrationV1()
		bindings, err := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		all, err := api.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		p := &Policies{Bindings: bindings.Items, Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
		for i := range all.Items {
			p.Policies[all.Items[i].Name] = &all.Items[i]
		}
		return p, nil
	})
}

// Injecting returns the policies with which the API server itself injects, or nil if there are none,
// as before Kubernetes 1.36. If there are several, it returns the first.
func (c *Survey) Injecting(ctx context.Context) (*Injecting, error) {
	return c.injecting.get(func() (*Injecting, error) { return c.readInjecting(ctx) })
}

func (c *Survey) readInjecting(ctx context.Context) (*Injecting, error) {
	api := c.client.AdmissionregistrationV1()
	all, err := api.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list mutatingadmissionpolicies: %w", err)
	}
	for i := range all.Items {
		p := &Injecting{Name: all.Items[i].Name}
		source := all.Items[i].Annotations[annotations.PoliciesSource]
		if source == "" {
			continue
		}
		if err := json.Unmarshal([]byte(source), &p.Source); err != nil {
			return nil, fmt.Errorf("policies that inject: %w", err)
		}
		p.Fences, err = c.Policies(ctx)
		p.Problem = p.Fences.Denies(policies.DenyPods(p.Prefix()))
		_, errBinding := api.MutatingAdmissionPolicyBindings().Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(errBinding) {
			p.Problem = fmt.Sprintf("MutatingAdmissionPolicy %s has no effect: it has no binding", p.Name)
			errBinding = nil
		}
		return p, cmp.Or(errBinding, err)
	}
	return nil, nil
}

// Installation describes what injects pods: webhooks, policies, both, or nothing.
type Installation struct {
	// Registrations are the webhook configurations of Lanyard, usually one. The first has the
	// most ready replicas.
	Registrations []*admissionregistrationv1.MutatingWebhookConfiguration
	// Ready contains the number of ready replicas of each, if there are several
	// Registrations. -1 means unknown.
	Ready []int
	// Policies are the policies that inject, if any.
	Policies *Injecting
}

// Absent reports whether nothing injects.
func (i *Installation) Absent() bool { return len(i.Registrations) == 0 && i.Policies == nil }

// OnlyPolicies returns the policies that inject if no webhook does, or nil.
func (i *Installation) OnlyPolicies() *Injecting {
	if i == nil || len(i.Registrations) > 0 {
		return nil
	}
	return i.Policies
}

// Compiled reports whether policies inject and contain the identities, so ServiceAccounts need no
// annotations.
func (p *Injecting) Compiled() bool { return p != nil && p.Source.Compiled }

// Registration returns the webhook configuration that decides for which pods Lanyard is
// called, or nil if only policies inject or the installation is unknown. If nothing injects,
// it returns a configuration without webhooks, which matches no pod.
func (i *Installation) Registration() *admissionregistrationv1.MutatingWebhookConfiguration {
	switch {
	case i == nil:
		return nil
	case len(i.Registrations) > 0:
		return i.Registrations[0]
	case i.Policies == nil:
		return new(admissionregistrationv1.MutatingWebhookConfiguration)
	}
	return nil
}

// InjectedBy describes an installation with policies, and is "" for any other.
func (i *Installation) InjectedBy() string {
	switch {
	case i == nil || i.Policies == nil:
		return ""
	case len(i.Registrations) > 0:
		return "webhook " + Names(i.Registrations) + " and " + i.Policies.describe()
	}
	return i.Policies.describe()
}

// Installation returns what injects pods, or an error if that is unknown. If there is a
// webhook, policies that the user may not list are ignored.
func (c *Survey) Installation(ctx context.Context) (*Installation, error) {
	return c.installation.get(func() (*Installation, error) {
		all, err := c.Configurations(ctx)
		if err != nil {
			return nil, err
		}
		i := &Installation{Registrations: Find(all)}
		i.Policies, err = c.Injecting(ctx)
		if len(i.Registrations) > 0 && apierrors.IsForbidden(err) {
			err = nil
		}
		if err != nil {
			return nil, err
		}
		if len(i.Registrations) > 1 {
			c.sort(ctx, i)
		}
		return i, nil
	})
}

// sort sorts the registrations by their ready replicas.
func (c *Survey) sort(ctx context.Context, i *Installation) {
	ready := map[string]int{}
	for _, r := range i.Registrations {
		ready[r.Name] = -1
		if deployment, err := c.Deployment(ctx, r); err == nil {
			ready[r.Name] = int(deployment.Status.ReadyReplicas)
		}
	}
	slices.SortStableFunc(i.Registrations, func(a, b *admissionregistrationv1.MutatingWebhookConfiguration) int {
		return cmp.Compare(ready[b.Name], ready[a.Name])
	})
	for _, r := range i.Registrations {
		i.Ready = append(i.Ready, ready[r.Name])
	}
}

// Guard returns the problem with the guard of a registration, or of the policies that inject if
// registration is nil. It returns "" if the guard is in place.
func (c *Survey) Guard(ctx context.Context, registration *admissionregistrationv1.MutatingWebhookConfiguration) (problem string, err error) {
	if registration == nil {
		injecting, err := c.Injecting(ctx)
		if injecting == nil {
			return "", err
		}
		return injecting.Problem, err
	}
	all, err := c.Policies(ctx)
	if err != nil {
		return "", err
	}
	return all.Guard(registration), nil
}

// Settings returns the settings of the webhook, or of the policies if only they inject. allowed
// contains fields of the webhook's own pods: a pod with these fields passes the policies of the
// cluster, too.
func (c *Survey) Settings(ctx context.Context) (s *annotations.Settings, allowed map[string]any, err error) {
	installation, err := c.Installation(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case installation.Absent():
		return nil, nil, fmt.Errorf("lanyard is not installed: no MutatingWebhookConfiguration has the webhook %s", PodWebhook)
	case len(installation.Registrations) == 0:
		s, err = PolicySettings(&installation.Policies.Source)
		return s, nil, err
	}
	o, allowed, err := c.Options(ctx, installation.Registrations[0])
	if err == nil {
		s, err = o.Settings(annotations.CommonAPIServerAudiences())
	}
	return s, allowed, err
}

// PolicySettings returns the settings of policies with this source.
func PolicySettings(source *policies.Source) (*annotations.Settings, error) {
	s, err := settings.Load(source.Config, source.ReservedAudiences)
	if err != nil {
		return nil, err
	}
	if s, err = policies.Choose(s, source.Providers); err != nil {
		return nil, fmt.Errorf("providers: %w", err)
	}
	return s, nil
}

// Leftover is a policy of a removed installation that still denies requests.
type Leftover struct {
	// Kind is the kind in the form that kubectl accepts.
	Kind, Name string
	// DeniesPods reports whether it denies pods rather than other requests.
	DeniesPods bool
}

// Remove returns the command that removes leftovers.
func Remove(left []Leftover) string {
	command := []string{"kubectl delete"}
	for _, l := range left {
		command = append(command, l.Kind+"/"+l.Name)
	}
	return strings.Join(command, " ")
}

// guards are the name suffixes of policies that deny pods without credentials.
var guards = []string{GuardPods, GuardInjected, policies.DenyPods("")}

// fences are the name suffixes of the other policies.
var fences = []string{FenceMarks, FenceServiceAccounts, FenceRegistration, policies.KeepMarks(""), policies.LimitServiceAccounts("")}

// Leftovers returns Lanyard's policies that belong to no installation.
func (c *Survey) Leftovers(ctx context.Context) ([]Leftover, error) {
	installation, err := c.Installation(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.Policies(ctx)
	if all == nil || err != nil {
		return nil, err
	}
	owners := []string{}
	for _, r := range installation.Registrations {
		owners = append(owners, r.Name)
	}
	if p := installation.Policies; p != nil {
		owners = append(owners, p.Prefix())
	}
	suffixes := slices.Concat(guards, fences)
	var found []Leftover
	for i := range all.Bindings {
		b := &all.Bindings[i]
		at := slices.IndexFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(b.Spec.PolicyName, suffix) })
		if at < 0 || !slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) || !isOurs(all.Policies[b.Spec.PolicyName]) {
			continue
		}
		owner := strings.TrimSuffix(b.Spec.PolicyName, suffixes[at])
		if !slices.Contains(owners, owner) {
			found = append(found, Leftover{Kind: "validatingadmissionpolicybinding", Name: b.Name, DeniesPods: at < len(guards)})
		}
	}
	return found, nil
}

// isOurs reports whether a policy mentions Lanyard or has the label of its manifests, because
// another program may use the same name.
func isOurs(policy *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	if policy == nil {
		return false
	}
	text, err := json.Marshal(policy.Spec)
	return policy.Labels["app.kubernetes.io/component"] == "registration" || err == nil && strings.Contains(string(text), strings.TrimSuffix(annotations.Prefix, "/"))
}
