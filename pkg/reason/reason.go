// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reason is the one vocabulary of Lanyard's decisions. The same word
// stands in the admission warning, the audit annotation, the log line and the
// metric label, so that one search finds all four.
package reason

// Reason says why an admission ended as it did, or why one container was left
// out. The set is closed: a Reason is never made from what a user wrote.
type Reason string

// Reasons of a whole admission.
const (
	// Injected: the patch gives the pod an identity.
	Injected Reason = "injected"
	// AlreadyInjected: the pod holds all that it would get; there is no patch.
	AlreadyInjected Reason = "already_injected"
	// NoIdentity: the service account asks for none.
	NoIdentity Reason = "no_identity"
	// OptedOut: the pod says inject: "false".
	OptedOut Reason = "opted_out"
	// MirrorPod: the pod mirrors a static pod, which may hold no service
	// account token (the ServiceAccount admission plugin refuses it).
	MirrorPod Reason = "mirror_pod"
	// NoContainer: there is no container to inject into.
	NoContainer Reason = "no_container"
	// InvalidAnnotation: an annotation of the service account, the namespace
	// or the pod is malformed.
	InvalidAnnotation Reason = "invalid_annotation"
	// IdentityNotAllowed: the namespace's allowed-identities leaves it out.
	IdentityNotAllowed Reason = "identity_not_allowed"
	// ForeignInjection: the pod carries Lanyard's marks for another identity,
	// as a copied manifest does.
	ForeignInjection Reason = "foreign_injection"
	// VolumeNameTaken: both names of the token volume are the user's.
	VolumeNameTaken Reason = "volume_name_taken"
	// TooLarge: the pod has more containers, or would get more, than an
	// apiserver stores.
	TooLarge Reason = "too_large"
	// ServiceAccountNotFound: the pod's service account does not exist.
	ServiceAccountNotFound Reason = "serviceaccount_not_found"
	// LookupFailed: the service account or the namespace could not be read.
	LookupFailed Reason = "lookup_failed"
	// Overloaded: there was no room for a large review beside other large ones.
	Overloaded Reason = "overloaded"
	// InvalidReview: the request is no admission review of the expected kind.
	InvalidReview Reason = "invalid_review"
	// InternalError: a fault of the program itself.
	InternalError Reason = "internal_error"
	// Labeled: the service account gets its identity label, or loses it.
	Labeled Reason = "labeled"
	// Valid: the service account's annotations are as they should be.
	Valid Reason = "valid"
)

// Reasons of one container, beside the admission's own.
const (
	// MountPathTaken: something else is mounted at the token mount path.
	MountPathTaken Reason = "mount_path_taken"
	// EnvironmentTaken: the container sets a credential variable itself.
	EnvironmentTaken Reason = "environment_taken"
	// EnvironmentShadowed: the container sets a variable that SDKs may prefer
	// to the injected identity.
	EnvironmentShadowed Reason = "environment_shadowed"
	// ContainerNotSelected: the pod's containers or skip-containers annotation
	// leaves it out.
	ContainerNotSelected Reason = "container_not_selected"
	// ContainerNotFound: one of those annotations names no container.
	ContainerNotFound Reason = "container_not_found"
	// VolumeMissing: the running pod has no volume for this identity, and a
	// running pod can get none.
	VolumeMissing Reason = "volume_missing"
)

// All lists every reason, for whoever has to know the values of a metric label
// beforehand.
func All() []Reason {
	return []Reason{
		Injected, AlreadyInjected, NoIdentity, OptedOut, MirrorPod, NoContainer,
		InvalidAnnotation, IdentityNotAllowed, ForeignInjection, VolumeNameTaken, TooLarge,
		ServiceAccountNotFound, LookupFailed, Overloaded, InvalidReview, InternalError,
		Labeled, Valid,
		MountPathTaken, EnvironmentTaken, EnvironmentShadowed,
		ContainerNotSelected, ContainerNotFound, VolumeMissing,
	}
}
