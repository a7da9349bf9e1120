// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// EphemeralContainers is the subresource that kubectl debug updates.
const EphemeralContainers = "ephemeralcontainers"

// maxFindings bounds what is said about one pod's containers, of which its
// author may write very many.
const maxFindings = 32

// Recorder counts injections.
type Recorder interface {
	// RecordInjection counts a pod that a provider's identity was added to.
	RecordInjection(provider string)
}

// Pods decides about pods that are created, and about ephemeral containers
// that are added to running ones.
type Pods struct {
	Cluster
	// Recorder counts.
	Recorder Recorder

	cache cache
	pods  sync.Pool // of *mutate.Pod, for the memory of those that were read
}

// Decide implements admission.Decider.
func (p *Pods) Decide(ctx context.Context, request *admission.Request) admission.Response {
	if pod, ok := request.Read.(*mutate.Pod); ok {
		// Nothing of the pod is in the answer: what it says was copied.
		defer p.pods.Put(pod)
	}
	response, refused := p.decide(ctx, request)
	if refused != nil {
		return refused.response()
	}
	return response
}

// decidesAbout says whether the request is one of the two that pods can be
// changed by: everything else of a pod that Lanyard adds to is immutable.
func (p *Pods) decidesAbout(r *admission.Request) bool {
	if r.Group != "" || r.Version != "v1" || r.Resource != "pods" {
		return false
	}
	return r.SubResource == "" && r.Operation == admission.Create ||
		r.SubResource == EphemeralContainers && r.Operation == admission.Update
}

func (p *Pods) decide(ctx context.Context, request *admission.Request) (admission.Response, *refusal) {
	if !p.decidesAbout(request) {
		return admission.Response{}, unexpected(request, "CREATE of v1 pods or UPDATE of v1 pods/ephemeralcontainers")
	}
	pod, refused := p.pod(request)
	if refused != nil {
		return admission.Response{}, refused
	}
	if pod.Mirror {
		return admission.Response{Reason: reason.MirrorPod}, nil
	}
	// Malformed annotations of the pod matter only to a pod that is injected,
	// but one that opts out is left alone before anything is looked up.
	selection, errs := annotations.ParsePod(p.Keys, pod.Annotations)
	if selection.OptOut {
		return admission.Response{Reason: reason.OptedOut}, nil
	}
	account, refused := p.account(ctx, request.Namespace, pod.ServiceAccountName)
	if refused != nil {
		return admission.Response{}, refused
	}
	if len(account.Annotations) == 0 {
		return p.bare(request, pod, errs), nil
	}
	addition, refused := p.addition(ctx, request, pod, &selection, account.Annotations)
	switch {
	case refused != nil:
		return admission.Response{}, refused
	case addition == nil:
		return p.bare(request, pod, errs), nil
	case len(errs) > 0:
		return admission.Response{}, invalid("pod", request.Namespace+"/"+pod.Name(), errs)
	}
	return p.inject(request, pod, &selection, addition)
}

// bare is the answer for a pod of an account without an identity.
func (p *Pods) bare(request *admission.Request, pod *mutate.Pod, errs field.ErrorList) admission.Response {
	response := admission.Response{Reason: reason.NoIdentity}
	if len(errs) > 0 {
		response.Warnings = []string{warning("%s: pod %q: %v", reason.InvalidAnnotation, request.Namespace+"/"+pod.Name(), errs.ToAggregate())}
	}
	return response
}

// addition gives what the account's annotations add to the pod, nil where they
// ask for no identity.
func (p *Pods) addition(ctx context.Context, request *admission.Request, pod *mutate.Pod, selection *annotations.Pod, values map[string]string) (*mutate.Addition, *refusal) {
	key := cacheKey{request.Namespace, pod.ServiceAccountName, selection.TokenExpirationSeconds, pod.Windows}
	if known := p.cache.get(key, values); known != nil {
		return known.addition, p.checkPolicy(ctx, request.Namespace, pod.ServiceAccountName, known.identity)
	}
	identity, refused := p.identity(ctx, request.Namespace, pod.ServiceAccountName, values)
	if refused != nil || identity == nil {
		return nil, refused
	}
	expiration, errs := annotations.Expiration(p.Keys, selection, identity, p.Defaults)
	if len(errs) > 0 {
		return nil, invalid("pod", request.Namespace+"/"+pod.Name(), errs)
	}
	addition := mutate.NewAddition(provider.New(p.Settings, identity, &provider.Subject{
		Namespace: request.Namespace, ServiceAccount: pod.ServiceAccountName,
		TokenExpirationSeconds: expiration, Windows: pod.Windows,
	}), p.Keys)
	p.cache.put(key, &cached{annotations: values, identity: identity, addition: addition})
	return addition, nil
}

func (p *Pods) inject(request *admission.Request, pod *mutate.Pod, selection *annotations.Pod, addition *mutate.Addition) (admission.Response, *refusal) {
	result, refused := p.mutate(request, pod, selection, addition)
	if refused != nil {
		return admission.Response{}, refused
	}
	response := admission.Response{Patch: result.Patch, PatchParts: result.PatchParts, Reason: result.Reason}
	for i, finding := range result.Findings {
		if i == maxFindings {
			more := fmt.Sprintf("and %d more", len(result.Findings)-i)
			response.Findings = append(response.Findings, more)
			response.Warnings = append(response.Warnings, warning("%s", more))
			break
		}
		response.Findings = append(response.Findings, finding.String())
		// What the pod's author asked for needs no warning.
		if finding.Reason != reason.ContainerNotSelected {
			response.Warnings = append(response.Warnings, warning("%v", finding))
		}
	}
	if result.Patch != nil {
		for _, name := range result.Providers {
			p.Recorder.RecordInjection(name)
		}
	}
	return response, nil
}

func (p *Pods) mutate(request *admission.Request, pod *mutate.Pod, selection *annotations.Pod, addition *mutate.Addition) (result mutate.Result, refused *refusal) {
	if _, refused := checked(pod, pod.ReadDetails(p.Keys)); refused != nil {
		return result, refused
	}
	var err error
	if request.SubResource == EphemeralContainers {
		old, refused := checked(mutate.ParsePod(request.OldObject, p.Keys))
		if refused != nil {
			return result, refused
		}
		result, err = mutate.AddEphemeral(pod, old, selection, addition, request.Room)
	} else {
		result, err = mutate.Create(pod, selection, addition, request.Room)
	}
	if err == nil {
		return result, nil
	}
	why := reason.TooLarge
	if conflict, ok := errors.AsType[*mutate.ConflictError](err); ok {
		why = conflict.Reason
	}
	return result, &refusal{why, http.StatusBadRequest, fmt.Errorf("pod %q: %w", request.Namespace+"/"+pod.Name(), err)}
}

// ReadObject implements admission.ObjectReader.
func (p *Pods) ReadObject(s *jsonscan.Scanner) (any, error) {
	pod, _ := p.pods.Get().(*mutate.Pod)
	if pod == nil {
		pod = new(mutate.Pod)
	}
	return pod, pod.Read(s, p.Keys)
}

// pod gives the request's pod, which is read already if it came over HTTP.
func (p *Pods) pod(request *admission.Request) (*mutate.Pod, *refusal) {
	if request.ReadErr != nil {
		return checked(nil, request.ReadErr)
	}
	if pod, ok := request.Read.(*mutate.Pod); ok {
		return pod, nil
	}
	return checked(mutate.ParsePod(request.Object, p.Keys))
}

// checked refuses what is no pod.
func checked(pod *mutate.Pod, err error) (*mutate.Pod, *refusal) {
	switch {
	case errors.Is(err, mutate.ErrTooLarge):
		return nil, &refusal{reason.TooLarge, http.StatusBadRequest, err}
	case err != nil:
		return nil, &refusal{reason.InvalidReview, http.StatusBadRequest, err}
	}
	return pod, nil
}
