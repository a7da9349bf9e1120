// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// ephemeralContainers is the subresource that kubectl debug updates.
const ephemeralContainers = "ephemeralcontainers"

// InjectionRecorder counts injections.
type InjectionRecorder interface {
	// RecordInjection counts a pod that got the identity of a provider.
	RecordInjection(provider string)
}

// PodMutator injects identities into new pods, and into ephemeral containers that
// are added to running ones.
type PodMutator struct {
	Config
	// Recorder may be nil.
	Recorder InjectionRecorder

	cache injectionCache
}

// Read implements admission.Decider.
func (p *PodMutator) Read(s *jsonscan.Scanner, pod *mutate.Pod) (cost int, err error) {
	return pod.Read(s, p.Settings.Settings)
}

// Decide implements admission.Decider.
func (p *PodMutator) Decide(ctx context.Context, request *admission.Request[mutate.Pod]) (admission.Response, error) {
	if !isExpected(&request.Attributes) {
		return admission.Response{}, request.Unexpected("CREATE of v1 pods or UPDATE of v1 pods/ephemeralcontainers")
	}
	pod := request.Object
	if pod.Mirror {
		return admission.Response{Reason: reason.MirrorPod}, nil
	}
	selection, errs := p.ParsePod(pod.Annotations, pod.InjectLabel)
	if selection.OptOut {
		return admission.Response{Reason: reason.OptedOut}, nil
	}
	injection, err := p.injection(ctx, request, &selection)
	if err != nil {
		return admission.Response{}, err
	}
	if injection == nil {
		response := admission.Response{Reason: reason.NoIdentity}
		if selection.LeftToPeer != "" {
			response.Reason = reason.OptedOut
		}
		if len(errs) > 0 { // which only matters for a pod with an identity
			response.Warnings = []string{invalid("pod", request.Namespace+"/"+pod.Name(), errs).Error()}
		}
		return response, nil
	}
	if len(errs) > 0 {
		return admission.Response{}, invalid("pod", request.Namespace+"/"+pod.Name(), errs)
	}
	return p.inject(request, &selection, injection)
}

// isExpected reports whether the request is one of the two that can add
// containers to a pod. No other request can change Lanyard's additions.
func isExpected(r *admission.Attributes) bool {
	if r.Group != "" || r.Version != "v1" || r.Resource != "pods" {
		return false
	}
	return r.SubResource == "" && r.Operation == admission.Create ||
		r.SubResource == ephemeralContainers && r.Operation == admission.Update
}

// injection returns the injection for the pod's ServiceAccount, or nil if it asks
// for no identity.
func (p *PodMutator) injection(ctx context.Context, request *admission.Request[mutate.Pod], selection *annotations.Pod) (*mutate.Injection, error) {
	namespace, pod := request.Namespace, request.Object
	name := pod.ServiceAccountName
	object, err := p.serviceAccount(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	entry, err := p.entry(cacheKey{namespace, name, selection.TokenExpirationSeconds, pod.Windows, selection.LeftToPeer}, pod, selection, object.Annotations)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		return nil, p.checkRequired(request, selection, object.Label)
	}
	return entry.injection, p.checkPolicy(ctx, namespace, name, entry.identity)
}

// checkRequired denies a new pod that asks for no identity if the pod insists, or if its
// ServiceAccount has the label for it. The rule of the label is the guard's: a pod without
// a container that needs the token mount is created, and so is a pod that leaves a provider
// to a peer.
func (p *PodMutator) checkRequired(request *admission.Request[mutate.Pod], selection *annotations.Pod, label string) error {
	if request.Operation != admission.Create || selection.LeftToPeer != "" {
		return nil
	}
	if selection.Insists {
		return p.insists(request, fmt.Sprintf("no annotation of serviceaccount %q asks for an identity: annotate the ServiceAccount. Controllers retry automatically",
			request.Namespace+"/"+request.Object.ServiceAccountName))
	}
	if label != annotations.IdentityRequired {
		return nil
	}
	lacks, err := request.Object.LacksMount(selection, p.TokenMountPath)
	if err != nil || !lacks {
		return err
	}
	return &reason.Error{Reason: reason.IdentityRequired, Err: fmt.Errorf(
		"serviceaccount %q has the label %s=%s, but no annotation asks for an identity yet: annotate the ServiceAccount. Controllers retry automatically. "+
			"To create the pod without credentials, annotate it with %s: %q",
		request.Namespace+"/"+request.Object.ServiceAccountName, annotations.IdentityLabel, annotations.IdentityRequired, annotations.Inject, annotations.OptOut)}
}

// insists returns the error for a pod that insists and is not injected.
func (p *PodMutator) insists(request *admission.Request[mutate.Pod], why string) error {
	return &reason.Error{Reason: reason.IdentityRequired, Err: fmt.Errorf("pod %q has %s: %q, but %s. To create the pod without credentials, remove %[2]s",
		request.Namespace+"/"+request.Object.Name(), annotations.Inject, annotations.Insist, why)}
}

// cause returns why the pod of a result is not injected.
func cause(result *mutate.Result) string {
	if len(result.Findings) == 0 {
		return string(result.Reason)
	}
	return result.Findings[0].String()
}

// entry returns the cache entry of a ServiceAccount with these annotations, or nil if
// they ask for no identity.
func (p *PodMutator) entry(key cacheKey, pod *mutate.Pod, selection *annotations.Pod, values map[string]string) (*cacheEntry, error) {
	if len(values) == 0 {
		return nil, nil
	}
	if entry := p.cache.get(key, values); entry != nil {
		return entry, nil
	}
	entry, err := p.newEntry(key, pod, selection, values)
	if entry != nil {
		p.cache.put(key, entry)
	}
	return entry, err
}

// newEntry makes a cache entry from the annotations of a ServiceAccount. It
// returns nil if they ask for no identity, or only for one that the pod leaves to a peer.
func (p *PodMutator) newEntry(key cacheKey, pod *mutate.Pod, selection *annotations.Pod, values map[string]string) (*cacheEntry, error) {
	identity, err := p.identity(key.namespace, key.serviceAccount, values)
	if err != nil || identity == nil {
		return nil, err
	}
	expiration, errs := p.Expiration(selection, identity)
	if len(errs) > 0 {
		return nil, invalid("pod", key.namespace+"/"+pod.Name(), errs)
	}
	identities := slices.DeleteFunc(slices.Clone(identity.Identities), func(i annotations.Identity) bool { return i.Provider.Name == key.leftToPeer })
	if len(identities) == 0 {
		return nil, nil
	}
	injection := provider.NewInjection(identities, &provider.Subject{
		Namespace: key.namespace, ServiceAccount: key.serviceAccount, MountPath: p.TokenMountPath,
		TokenExpirationSeconds: expiration, Windows: key.windows,
	})
	return &cacheEntry{annotations: values, identity: identity, injection: mutate.NewInjection(injection)}, nil
}

// maxFindings limits the findings in one response: a pod may have very many
// containers.
const maxFindings = 32

func (p *PodMutator) inject(request *admission.Request[mutate.Pod], selection *annotations.Pod, injection *mutate.Injection) (admission.Response, error) {
	var result mutate.Result
	var err error
	if request.SubResource == ephemeralContainers {
		result, err = mutate.AddEphemeral(request.Object, request.OldObject, selection, injection)
	} else {
		result, err = mutate.Create(request.Object, selection, injection)
	}
	if denied, ok := errors.AsType[*reason.Error](err); ok {
		return admission.Response{}, &reason.Error{Reason: denied.Reason, Err: fmt.Errorf("pod %q: %w", request.Namespace+"/"+request.Object.Name(), denied.Err)}
	}
	if err != nil {
		return admission.Response{}, err
	}
	if selection.Insists && request.Operation == admission.Create && result.Reason != reason.Injected && result.Reason != reason.AlreadyInjected {
		return admission.Response{}, p.insists(request, "none of its containers can be injected: "+cause(&result))
	}
	response := admission.Response{Patch: result.Patch, Reason: result.Reason}
	for i, finding := range result.Findings {
		if i == maxFindings {
			more := fmt.Sprintf("and %d more", len(result.Findings)-i)
			response.Findings = append(response.Findings, more)
			response.Warnings = append(response.Warnings, more)
			break
		}
		response.Findings = append(response.Findings, finding.String())
		// The author of the pod asked for this, so it needs no warning.
		if finding.Reason != reason.ContainerNotSelected {
			response.Warnings = append(response.Warnings, finding.String())
		}
	}
	if p.Recorder != nil && !result.Patch.Empty() {
		for _, name := range injection.Providers() {
			p.Recorder.RecordInjection(name)
		}
	}
	return response, nil
}
