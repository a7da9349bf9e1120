// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reason is the vocabulary of Lanyard's decisions. Admission warnings,
// audit annotations, log lines and metric labels use the same words, so that one
// search finds all four.
package reason

// Reason is why an admission ended as it did, or why one container was left out.
// The set is closed: a Reason never contains text from a user.
type Reason string

// Reasons of a whole admission.
const (
	// Injected: the patch adds an identity to the pod.
	Injected Reason = "injected"
	// AlreadyInjected: the pod has all additions; the patch is empty.
	AlreadyInjected Reason = "already_injected"
	// NoIdentity: the ServiceAccount does not ask for an identity.
	NoIdentity Reason = "no_identity"
	// IdentityRequired: the ServiceAccount has the label identity: required, but does not
	// ask for an identity yet.
	IdentityRequired Reason = "identity_required"
	// OptedOut: the pod has inject: "false", or leaves its only provider to a peer.
	OptedOut Reason = "opted_out"
	// MirrorPod: the pod mirrors a static pod. The ServiceAccount admission plugin
	// denies a mirror pod with a ServiceAccount token.
	MirrorPod Reason = "mirror_pod"
	// NoContainer: the pod has no container to inject into. As a finding: the pod's
	// annotations leave out all of its containers.
	NoContainer Reason = "no_container"
	// InvalidAnnotation: an annotation of the ServiceAccount, the namespace or the
	// pod is malformed, unknown or without effect.
	InvalidAnnotation Reason = "invalid_annotation"
	// IdentityNotAllowed: allowed-identities of the namespace does not allow the identity.
	IdentityNotAllowed Reason = "identity_not_allowed"
	// ForeignInjection: the pod has Lanyard's marks for another identity, as a
	// copied manifest does.
	ForeignInjection Reason = "foreign_injection"
	// InvalidMountPath: a container has the token mount path in another spelling,
	// or a device there.
	InvalidMountPath Reason = "invalid_mount_path"
	// VolumeNameTaken: the pod uses both names of the token volume for something
	// else. As a reason of a container: the pod uses the name of a copy's volume for
	// something else.
	VolumeNameTaken Reason = "volume_name_taken"
	// TooLarge: the pod has more containers, or would get more, than an API server
	// stores; or the identities of a ServiceAccount do not fit into a container.
	TooLarge Reason = "too_large"
	// ServiceAccountNotFound: the pod's ServiceAccount does not exist.
	ServiceAccountNotFound Reason = "serviceaccount_not_found"
	// LookupFailed: the ServiceAccount or the namespace could not be read.
	LookupFailed Reason = "lookup_failed"
	// Overloaded: other requests used all of the memory that they may use.
	Overloaded Reason = "overloaded"
	// InvalidReview: the request is not an AdmissionReview of the expected kind, or
	// its object cannot be read.
	InvalidReview Reason = "invalid_review"
	// InternalError: a fault of the program itself.
	InternalError Reason = "internal_error"
	// Labeled: the identity label of the ServiceAccount was added, removed or found
	// correct.
	Labeled Reason = "labeled"
	// Mapped: annotations of a mapping were added to the ServiceAccount, with the
	// identity label.
	Mapped Reason = "mapped"
	// Adopted: the ServiceAccount's annotations of a peer were translated to Lanyard's,
	// with the identity label.
	Adopted Reason = "adopted"
	// Valid: the annotations of the ServiceAccount are valid.
	Valid Reason = "valid"
)

// Reasons of one container, in addition to the reason of the admission.
const (
	// MountPathTaken: another mount is at the path of the token or of a copy, or blocks
	// it.
	MountPathTaken Reason = "mount_path_taken"
	// EnvironmentTaken: the container points to credentials of its own.
	EnvironmentTaken Reason = "environment_taken"
	// EnvironmentShadowed: the container sets a variable that SDKs may prefer to
	// the injected identity, or sets one that they need to an empty value.
	EnvironmentShadowed Reason = "environment_shadowed"
	// EnvironmentIncomplete: the ServiceAccount asks for a token alone, and the container does
	// not set the variable with the identity, without which SDKs fail.
	EnvironmentIncomplete Reason = "environment_incomplete"
	// PodNameUnusable: the name of the pod cannot be the value of a variable that the
	// ServiceAccount asks for, so the variable has its default.
	PodNameUnusable Reason = "pod_name_unusable"
	// NotVerified: the ServiceAccount of the pod has the annotation verify, but the pod does
	// not get the container that verifies.
	NotVerified Reason = "not_verified"
	// ContainerNotSelected: the pod's annotation containers or skip-containers
	// leaves it out.
	ContainerNotSelected Reason = "container_not_selected"
	// ContainerNotFound: one of those annotations names a container that the pod
	// does not have.
	ContainerNotFound Reason = "container_not_found"
	// VolumeMissing: the running pod has no volume for this identity, and its
	// volumes cannot change.
	VolumeMissing Reason = "volume_missing"
)

// All returns every reason. Tests compare the documentation with it.
func All() []Reason {
	return []Reason{
		Injected, AlreadyInjected, NoIdentity, IdentityRequired, OptedOut, MirrorPod, NoContainer,
		InvalidAnnotation, IdentityNotAllowed, ForeignInjection, InvalidMountPath, VolumeNameTaken, TooLarge,
		ServiceAccountNotFound, LookupFailed, Overloaded, InvalidReview, InternalError,
		Labeled, Mapped, Adopted, Valid,
		MountPathTaken, EnvironmentTaken, EnvironmentShadowed, EnvironmentIncomplete, PodNameUnusable,
		NotVerified, ContainerNotSelected, ContainerNotFound, VolumeMissing,
	}
}

// Error denies an object for Reason.
type Error struct {
	Reason Reason
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Fault means that no decision could be made, because nothing is known about the
// object's ServiceAccount. The object is not denied: the API server
// applies the failure policy, and the guard denies pods that need credentials.
type Fault struct {
	Reason Reason
	Err    error
}

// Error implements error.
func (f *Fault) Error() string { return string(f.Reason) + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }
