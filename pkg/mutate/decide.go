// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Decision is the decision about a pod that is allowed.
type Decision struct {
	// Patch contains the additions to the pod. It is nil if the pod needs no change.
	Patch *Patch
	// Reason is the decision in one word.
	Reason reason.Reason
	// Findings are about single containers, in the order of the containers.
	Findings []Finding
	// Mistake is a harmless mistake in the annotations of a pod whose ServiceAccount asks for
	// no identity, or nil.
	Mistake *reason.Error
	// Identities are the identities of the pod, even if no container gets them. Callers must not
	// change them.
	Identities []annotations.Identity
}

// maxTexts limits the messages about one pod, which may have very many containers.
const maxTexts = 32

// Texts formats all findings for an audit log, and as warnings for the author of the pod,
// without the containers that the author excluded.
func (d *Decision) Texts() (findings, warnings []string) {
	if d.Mistake != nil {
		warnings = append(warnings, d.Mistake.Error())
	}
	for i, f := range d.Findings {
		if i == maxTexts {
			more := fmt.Sprintf("and %d more", len(d.Findings)-i)
			return append(findings, more), append(warnings, more)
		}
		findings = append(findings, f.String())
		if f.Reason != reason.ContainerNotSelected {
			warnings = append(warnings, f.String())
		}
	}
	return findings, warnings
}

// Apply applies the patch to the JSON of the pod.
func (d *Decision) Apply(pod []byte) ([]byte, error) { return rawjson.Apply(pod, d.Patch.Bytes()) }

// Decide decides about a new pod. serviceAccount is nil if it does not exist. The namespace
// contains the policy for identities, and may be nil if it has no annotations. The error is a
// *reason.Error, for which the pod must be denied.
//
// Decide calls Choose, Prepare and Choice.Decide.
func Decide(s *annotations.Settings, serviceAccount, namespace *annotations.Object, pod *Pod) (*Decision, error) {
	return (&decider{settings: s, serviceAccount: serviceAccount, namespace: namespace}).decide(pod, nil)
}

// DecideEphemeral is like Decide for an update that adds ephemeral containers to a running
// pod. old is the pod before the update.
func DecideEphemeral(s *annotations.Settings, serviceAccount, namespace *annotations.Object, pod, old *Pod) (*Decision, error) {
	return (&decider{settings: s, serviceAccount: serviceAccount, namespace: namespace}).decide(pod, old)
}

// Injector returns a function that decides about many pods of one ServiceAccount, for package
// injected. The function modifies the pod instead of returning a patch. old is nil for a new
// pod, or the pod before an update that adds ephemeral containers. The other parameters are
// those of Decide, and must not change.
func Injector(s *annotations.Settings, serviceAccount, namespace *annotations.Object) func(p, old *pod.Pod) (*Decision, error) {
	return (&decider{settings: s, serviceAccount: serviceAccount, namespace: namespace}).inject
}

// decider decides about pods of one ServiceAccount.
type decider struct {
	settings                  *annotations.Settings
	serviceAccount, namespace *annotations.Object
	cache                     Cache
}

func (d *decider) inject(p, old *pod.Pod) (*Decision, error) {
	into := Pod{read: *p}
	var before *Pod
	if old != nil {
		before = &Pod{read: *old}
	}
	decision, err := d.decide(&into, before)
	if err != nil {
		return nil, err
	}
	if decision.Patch != nil {
		err = into.changes.addTo(p)
	}
	decision.Patch = nil
	return decision, err
}

// decide is Decide for a new pod, and DecideEphemeral if old is not nil.
func (d *decider) decide(pod, old *Pod) (*Decision, error) {
	var in string
	if d.serviceAccount != nil {
		in = d.serviceAccount.Namespace
	}
	choice, decision := Choose(d.settings, in, pod, old)
	name := choice.ServiceAccountName()
	switch {
	case decision != nil:
		return decision, nil
	case d.serviceAccount == nil:
		return nil, &reason.Error{Reason: reason.ServiceAccountNotFound, Err: fmt.Errorf("serviceaccount %q does not exist", name)}
	case name != d.serviceAccount.Name:
		return nil, &reason.Error{Reason: reason.InvalidReview, Err: fmt.Errorf("pod: spec.serviceAccountName: got %q, want %q", name, d.serviceAccount.Name)}
	}
	prepared, err := d.cache.Prepare(&choice, d.serviceAccount)
	if err != nil {
		return nil, err
	}
	return choice.Decide(d.serviceAccount, prepared, d.namespace)
}

// Choice contains what a pod itself asks for: whether and where to inject, and the lifetime
// of tokens, but no identity. A program that looks up objects on demand decides in three
// steps: Choose, then Prepare with the ServiceAccount, then Choice.Decide with the Namespace.
type Choice struct {
	annotations.Pod
	settings  *annotations.Settings
	namespace string
	pod, old  *Pod
	mistakes  field.ErrorList // in the annotations of the pod
}

// Choose returns the choice of a pod in the namespace, or a decision if no object is needed:
// for a mirror pod, or a pod that opts out. old is the pod before an update that adds
// ephemeral containers, or nil for a new pod.
func Choose(s *annotations.Settings, namespace string, pod, old *Pod) (Choice, *Decision) {
	c := Choice{settings: s, namespace: namespace, pod: pod, old: old}
	if pod.read.Mirror {
		return c, &Decision{Reason: reason.MirrorPod}
	}
	if c.Pod, c.mistakes = s.ParsePod(pod.read.Annotations, pod.read.InjectLabel); c.OptOut {
		return c, &Decision{Reason: reason.OptedOut}
	}
	return c, nil
}

// ServiceAccountName returns the name of the pod's ServiceAccount.
func (c *Choice) ServiceAccountName() string { return c.pod.read.ServiceAccountName }

// name formats the namespace and name of the pod for messages.
func (c *Choice) name() string { return c.namespace + "/" + c.pod.read.ShownName() }

// Decide returns the decision. prepared is the result of Prepare. The namespace is ignored if
// prepared is nil. The error is a *reason.Error.
func (c *Choice) Decide(serviceAccount *annotations.Object, prepared *Prepared, namespace *annotations.Object) (*Decision, error) {
	if prepared == nil {
		return c.withoutIdentity(serviceAccount)
	}
	if err := CheckPolicy(c.settings, serviceAccount, prepared.account, namespace); err != nil {
		return nil, err
	}
	if len(c.mistakes) > 0 {
		return nil, invalid("pod", c.name(), c.mistakes)
	}
	decision, err := c.inject(prepared.injection)
	if denied, ok := errors.AsType[*reason.Error](err); ok {
		err = &reason.Error{Reason: denied.Reason, Err: fmt.Errorf("pod %q: %w", c.name(), denied.Err)}
	}
	if err != nil {
		return nil, err
	}
	if c.Insists && c.old == nil && decision.Reason != reason.Injected && decision.Reason != reason.AlreadyInjected {
		return nil, c.insists("none of its containers can be injected: " + decision.cause())
	}
	decision.Identities = prepared.identities
	return &decision, nil
}

func (c *Choice) inject(injection *encodedInjection) (Decision, error) {
	if c.old != nil {
		return addEphemeral(c.pod, c.old, &c.Pod, injection)
	}
	return create(c.pod, &c.Pod, injection)
}

// withoutIdentity returns the decision about a pod that gets no identity.
func (c *Choice) withoutIdentity(serviceAccount *annotations.Object) (*Decision, error) {
	if err := c.checkRequired(serviceAccount); err != nil {
		return nil, err
	}
	d := &Decision{Reason: reason.NoIdentity}
	if c.LeftToPeer != "" {
		d.Reason = reason.OptedOut
	}
	if len(c.mistakes) > 0 {
		d.Mistake = invalid("pod", c.name(), c.mistakes)
	}
	return d, nil
}

// checkRequired denies a new pod without an identity if the pod insists, or if its
// ServiceAccount is labelled as required. For the label, the rule is the guard's: it allows
// pods in which no container needs the token mount, and pods that leave a provider to a peer.
func (c *Choice) checkRequired(serviceAccount *annotations.Object) error {
	if c.old != nil || c.LeftToPeer != "" {
		return nil
	}
	name := serviceAccount.Namespace + "/" + serviceAccount.Name
	if c.Insists {
		return c.insists(fmt.Sprintf("no annotation of serviceaccount %q asks for an identity: annotate the ServiceAccount. Controllers retry automatically", name))
	}
	if serviceAccount.Label != annotations.IdentityRequired {
		return nil
	}
	lacks, err := lacksMount(c.pod, &c.Pod, c.settings.TokenMountPath)
	if err != nil || !lacks {
		return err
	}
	return &reason.Error{Reason: reason.IdentityRequired, Err: fmt.Errorf(
		"serviceaccount %q has the label %s=%s, but no annotation asks for an identity yet: annotate the ServiceAccount. Controllers retry automatically. "+
			"To create the pod without credentials, annotate it with %s: %q",
		name, annotations.IdentityLabel, annotations.IdentityRequired, annotations.Inject, annotations.OptOut)}
}

// insists returns the error for a pod that insists and is not injected.
func (c *Choice) insists(why string) error {
	return &reason.Error{Reason: reason.IdentityRequired, Err: fmt.Errorf("pod %q has %s: %q, but %s. To create the pod without credentials, remove %[2]s",
		c.name(), annotations.Inject, annotations.Insist, why)}
}

// cause returns the reason why the pod is not injected.
func (d *Decision) cause() string {
	if len(d.Findings) == 0 {
		return string(d.Reason)
	}
	return d.Findings[0].String()
}
