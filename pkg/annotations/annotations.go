// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annotations defines the annotation keys of Lanyard and parses the annotations of a
// ServiceAccount: the identities that it asks for, or why Lanyard would deny it. Operators
// can use it to write and validate annotations.
//
// Unstable before v1: a minor version may change the API. Keys and the meaning of their
// values do not change after a release.
package annotations

// Prefix starts every key.
const Prefix = "lanyard.dev/"

// The keys of a ServiceAccount. docs/reference/annotations.md describes the values.
const (
	AWSRoleARN       = Prefix + "aws-role-arn"       // with a dot and a name after it: the role of an AWS profile
	AWSSourceProfile = Prefix + "aws-source-profile" // always with a dot and the name of a profile after it
	AWSRegion        = Prefix + "aws-region"
	AWSSessionName   = Prefix + "aws-session-name" // "pod" is the only value
	AWSAudience      = Prefix + "aws-audience"
	AWSTokenPath     = Prefix + "aws-token-path"

	AzureClientID  = Prefix + "azure-client-id"
	AzureTenantID  = Prefix + "azure-tenant-id"
	AzureAudience  = Prefix + "azure-audience"
	AzureTokenPath = Prefix + "azure-token-path"

	GCPWorkloadIdentityProvider = Prefix + "gcp-workload-identity-provider"
	GCPServiceAccount           = Prefix + "gcp-service-account"
	GCPProject                  = Prefix + "gcp-project"
	GCPAudience                 = Prefix + "gcp-audience"
	GCPTokenPath                = Prefix + "gcp-token-path"

	Audience               = Prefix + "audience"
	TokenPathKey           = Prefix + "token-path" // of the plain token
	Tokens                 = Prefix + "tokens"
	TokenExpirationSeconds = Prefix + "token-expiration-seconds" // also of a pod
	Verify                 = Prefix + "verify"                   // VerifyWait or VerifyWarn
)

// The keys of other objects.
const (
	Inject            = Prefix + "inject" // of a pod: "false" opts out, "true" insists; and the label of a namespace
	Containers        = Prefix + "containers"
	SkipContainers    = Prefix + "skip-containers"
	Injected          = Prefix + "injected"           // Lanyard writes it on a pod
	Denied            = Prefix + "denied"             // the policies write it on a pod that is not created
	AllowedIdentities = Prefix + "allowed-identities" // of a namespace
	Adopted           = Prefix + "adopted"            // of a ServiceAccount: Lanyard lists in it the annotations that follow those of another webhook
	Probe             = Prefix + "probe"              // the label of a pod that is created only if the webhook answers
	PoliciesSource    = Prefix + "policies"           // of a policy that injects: the input of "lanyard policies"
	IdentityLabel     = Prefix + "identity"           // Lanyard writes it on a ServiceAccount or a pod, or a user with IdentityRequired
)

// MirrorPod is the annotation of a pod that mirrors a static pod of a kubelet
// (corev1.MirrorPodAnnotationKey).
const MirrorPod = "kubernetes.io/config.mirror"

// Values of Verify: what happens to a pod whose tokens a cloud rejects.
const (
	VerifyWait = "wait" // its containers do not start
	VerifyWarn = "warn" // they start after two minutes
)

// Values of Lanyard's labels.
const (
	// IdentityEnabled is the value of IdentityLabel on a ServiceAccount that asks for an
	// identity. Lanyard sets and removes it.
	IdentityEnabled = "enabled"
	// IdentityRequired is the value of IdentityLabel that a user sets on a ServiceAccount:
	// its pods are denied until the ServiceAccount asks for an identity. Lanyard never
	// changes this value.
	IdentityRequired = "required"
	// IdentityInjected is the value of IdentityLabel on an injected pod, so that the guard
	// need not look up the ServiceAccount. Only Lanyard may write it: the guard denies a pod
	// with this value if a container lacks its token.
	IdentityInjected = "injected"
	// LabelDisabled is the value of the label Inject on a namespace that opts out. OptOut
	// means the same.
	LabelDisabled = "disabled"
	// OptOut is the value of Inject, as an annotation or a label, on a pod that opts out.
	OptOut = "false"
	// Insist is the value of Inject, as an annotation or a label, on a pod that is denied if
	// it is not injected.
	Insist = "true"
	// LabelProbe is the value of Probe on a probe pod.
	LabelProbe = "true"
)
