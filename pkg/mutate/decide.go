// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Decision is the result of Decide for a pod that is allowed.
type Decision struct {
	// Patch contains the additions to the pod. It is nil if nothing is missing.
	Patch *Patch
	// Reason is the decision in one word.
	Reason reason.Reason
	// Findings are about single containers, in the order of the containers.
	Findings []Finding
	// Mistake is a mistake in the pod's annotations that has no effect, because its ServiceAccount
	// asks for no identity. It is nil if there is none.
	Mistake *reason.Error
	// Identities are the identities of the pod, even if no container gets them. Callers must not
	// change them.
	Identities []annotations.Identity
}

// maxTexts limits the texts about one pod, which may have very many containers.
const maxTexts = 32

// Texts returns all findings as strings, for an audit log, and the warnings for the author of the
// pod, which leave out the containers that the author excluded.
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

// Decide decides about a new pod of the ServiceAccount, which is nil if it does not exist. The
// namespace contains the policy for identities. It may be nil, which means a namespace without
// annotations. The error is a *reason.Error: the pod must be denied.
//
// Decide is Choose, Prepare and Choice.Decide, one after another.
func Decide(s *annotations.Settings, serviceAccount, namespace *annotations.Object, pod *Pod) (*Decision, error) {
	return (&decider{settings: s, serviceAccount: serviceAccount, namespace: namespace}).decide(pod, nil)
}

// DecideEphemeral is Decide for an update that adds ephemeral containers to a running pod.
// old is the pod before the update.
func DecideEphemeral(s *annotations.Settings, serviceAccount, namespace *annotations.Object, pod, old *Pod) (*Decision, error) {
	return (&decider{settings: s, serviceAccount: serviceAccount, namespace: namespace}).decide(pod, old)
}

// Injector returns a function for package injected, which decides about many pods of one
// ServiceAccount. Instead of a patch, the function makes its additions to the pod itself. old is nil
// for a new pod, or the pod before an update that adds ephemeral containers. The other parameters
// are those of Decide, and must not change.
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

// Choice is what a pod itself asks for: whether, where and how long, but never who it is.
// A program that looks up objects decides in three steps: Choose, Prepare and Decide. It
// needs the ServiceAccount after the first step, and the Namespace after the second.
type Choice struct {
	annotations.Pod
	settings  *annotations.Settings
	namespace string
	pod, old  *Pod
	mistakes  field.ErrorList // in the annotations of the pod
}

// Choose returns the choice of a pod in the namespace, or the decision if the pod alone decides: a
// mirror pod, and a pod that opts out. old is the pod before an update that adds ephemeral
// containers, or nil for a new pod.
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

// name returns the namespace and the name of the pod, for messages.
func (c *Choice) name() string { return c.namespace + "/" + c.pod.read.ShownName() }

// Prepared is what all pods of a ServiceAccount get that ask for the same. It does not change, and
// may be used concurrently.
type Prepared struct {
	annotations map[string]string // of the ServiceAccount
	account     *annotations.ServiceAccount
	identities  []annotations.Identity // without the one that is left to a peer
	injection   *encodedInjection
}

// key contains what the result of Prepare depends on besides the settings and the annotations of
// the ServiceAccount: names, and the pod's own choice.
type key struct {
	namespace, serviceAccount string
	expirationSeconds         int64
	windows                   bool
	leftToPeer                string
}

func (c *Choice) key() key {
	return key{c.namespace, c.pod.read.ServiceAccountName, c.TokenExpirationSeconds, c.pod.read.Windows, c.LeftToPeer}
}

// Prepare prepares what the pods of the ServiceAccount get. It returns nil if the
// ServiceAccount asks for no identity, or only for one that the pod leaves to a peer. The
// error is a *reason.Error.
func (c *Choice) Prepare(serviceAccount *annotations.Object) (*Prepared, error) {
	account, err := Account(c.settings, serviceAccount)
	if err != nil || account == nil {
		return nil, err
	}
	expiration, errs := c.settings.Expiration(&c.Pod, account)
	if len(errs) > 0 {
		return nil, invalid("pod", c.name(), errs)
	}
	identities := slices.DeleteFunc(slices.Clone(account.Identities), func(i annotations.Identity) bool { return i.Provider.Name == c.LeftToPeer })
	if len(identities) == 0 {
		return nil, nil
	}
	injection := newInjection(provider.NewInjection(identities, &provider.Subject{
		Namespace: serviceAccount.Namespace, ServiceAccount: serviceAccount.Name, MountPath: c.settings.TokenMountPath,
		TokenExpirationSeconds: expiration, Windows: c.pod.read.Windows,
	}))
	injection.verify, injection.verifyImage = account.Verify, c.settings.VerifyImage
	return &Prepared{annotations: serviceAccount.Annotations, account: account, identities: identities, injection: injection}, nil
}

// Decide returns the decision. prepared is the result of Prepare. If it is nil, the
// namespace does not matter. The error is a *reason.Error.
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
	result, err := c.inject(prepared.injection)
	if denied, ok := errors.AsType[*reason.Error](err); ok {
		err = &reason.Error{Reason: denied.Reason, Err: fmt.Errorf("pod %q: %w", c.name(), denied.Err)}
	}
	if err != nil {
		return nil, err
	}
	if c.Insists && c.old == nil && result.Reason != reason.Injected && result.Reason != reason.AlreadyInjected {
		return nil, c.insists("none of its containers can be injected: " + cause(&result))
	}
	return &Decision{Patch: result.Patch, Reason: result.Reason, Findings: result.Findings, Identities: prepared.identities}, nil
}

func (c *Choice) inject(injection *encodedInjection) (result, error) {
	if c.old != nil {
		return addEphemeral(c.pod, c.old, &c.Pod, injection)
	}
	return create(c.pod, &c.Pod, injection)
}

// withoutIdentity decides about a pod that gets no identity.
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

// checkRequired denies a new pod that asks for no identity if the pod insists, or if its
// ServiceAccount has the label for it. The rule of the label is the guard's: a pod without
// a container that needs the token mount is created, and so is a pod that leaves a provider
// to a peer.
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

// cause returns why the pod of a result is not injected.
func cause(result *result) string {
	if len(result.Findings) == 0 {
		return string(result.Reason)
	}
	return result.Findings[0].String()
}
