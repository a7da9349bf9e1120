// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injector handles the requests about pods and ServiceAccounts: it looks up the
// objects in the cluster, and passes them to the pure packages, which decide.
package injector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Getter gets the Lanyard annotations of an object. For a Namespace, namespace is empty. If
// the object does not exist, the error satisfies apierrors.IsNotFound.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (annotations.Object, error)
}

// Config contains the values that every decision needs.
type Config struct {
	*annotations.Settings
	// ServiceAccounts and Namespaces are the objects of the cluster.
	ServiceAccounts, Namespaces Getter
}

// serviceAccount returns a ServiceAccount. If it cannot be read, the error is a
// *reason.Fault.
func (c *Config) serviceAccount(ctx context.Context, namespace, name string) (annotations.Object, error) {
	object, err := c.ServiceAccounts.Get(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return annotations.Object{}, &reason.Fault{Reason: reason.ServiceAccountNotFound, Err: err}
	case err != nil:
		return annotations.Object{}, &reason.Fault{Reason: reason.LookupFailed, Err: err}
	}
	return object, nil
}

// namespace returns a Namespace. If it cannot be read, the error is a *reason.Error.
func (c *Config) namespace(ctx context.Context, name string) (annotations.Object, error) {
	object, err := c.Namespaces.Get(ctx, "", name)
	if err != nil {
		return annotations.Object{}, &reason.Error{Reason: reason.LookupFailed, Err: fmt.Errorf("%w; try again when lanyard-webhook reaches the API server", err)}
	}
	return object, nil
}

// ephemeralContainers is the subresource that kubectl debug updates.
const ephemeralContainers = "ephemeralcontainers"

// InjectionRecorder counts injections and findings.
type InjectionRecorder interface {
	// RecordInjection counts a pod that got the identity of a provider.
	RecordInjection(provider string)
	// RecordFinding counts a finding about a container, or about a whole pod.
	RecordFinding(reason string)
}

// PodMutator injects identities into new pods, and into ephemeral containers that
// are added to running ones.
type PodMutator struct {
	Config
	// Recorder may be nil.
	Recorder InjectionRecorder

	cache mutate.Cache
}

// Read implements admission.Decider.
func (p *PodMutator) Read(s *rawjson.Scanner, pod *mutate.Pod) error {
	text, decoder := s.State()
	return pod.ReadNext(text, decoder, p.Settings)
}

// Decide implements admission.Decider. It performs the steps of mutate.Decide, and looks up
// an object only if the next step needs it.
func (p *PodMutator) Decide(ctx context.Context, request *admission.Request[mutate.Pod]) (admission.Response, error) {
	if !isExpected(&request.Attributes) {
		return admission.Response{}, request.Unexpected("CREATE of v1 pods or UPDATE of v1 pods/ephemeralcontainers")
	}
	var old *mutate.Pod
	if request.SubResource == ephemeralContainers {
		old = request.OldObject
	}
	choice, decision := mutate.Choose(p.Settings, request.Namespace, request.Object, old)
	if decision == nil {
		var err error
		if decision, err = p.decide(ctx, request.Namespace, &choice); err != nil {
			return admission.Response{}, err
		}
	}
	if p.Recorder != nil {
		p.record(decision)
	}
	return response(decision), nil
}

// record counts the injections and the findings of a decision.
func (p *PodMutator) record(d *mutate.Decision) {
	for i := range d.Identities {
		if d.Patch != nil {
			p.Recorder.RecordInjection(d.Identities[i].Provider.Name)
		}
	}
	for i := range d.Findings {
		p.Recorder.RecordFinding(string(d.Findings[i].Reason))
	}
}

// isExpected reports whether the request is one of the two that can add containers to a pod.
func isExpected(r *admission.Attributes) bool {
	if r.Group != "" || r.Version != "v1" || r.Resource != "pods" {
		return false
	}
	return r.SubResource == "" && r.Operation == admission.Create ||
		r.SubResource == ephemeralContainers && r.Operation == admission.Update
}

// decide looks up the ServiceAccount, and the Namespace if the ServiceAccount asks for an
// identity.
func (p *PodMutator) decide(ctx context.Context, namespace string, choice *mutate.Choice) (*mutate.Decision, error) {
	account, err := p.serviceAccount(ctx, namespace, choice.ServiceAccountName())
	if err != nil {
		return nil, err
	}
	prepared, err := p.cache.Prepare(choice, &account)
	if err != nil {
		return nil, err
	}
	var policy annotations.Object
	if prepared != nil {
		if policy, err = p.namespace(ctx, namespace); err != nil {
			return nil, err
		}
	}
	return choice.Decide(&account, prepared, &policy)
}

// response returns the response of a decision.
func response(d *mutate.Decision) admission.Response {
	findings, warnings := d.Texts()
	r := admission.Response{Reason: d.Reason, Findings: findings, Warnings: warnings}
	if d.Patch != nil {
		r.Patch = d.Patch
	}
	return r
}
