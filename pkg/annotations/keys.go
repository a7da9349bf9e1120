// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annotations holds every annotation and label of Lanyard, how its
// value is read and what is allowed in it. It is a leaf: it knows the words
// that users write and nothing of what is made of them.
package annotations

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultPrefix stands before every key.
const DefaultPrefix = "lanyard.dev/"

// Values of Lanyard's labels.
const (
	// LabelEnabled is the value of Keys.IdentityLabel on a service account
	// that asks for an identity.
	LabelEnabled = "enabled"
	// LabelDisabled is the value of Keys.Inject, as a label, on a namespace
	// that opts out.
	LabelDisabled = "disabled"
)

// MirrorPodKey marks a pod that mirrors a static pod of a kubelet. It is the
// Kubernetes API's own (corev1.MirrorPodAnnotationKey).
const MirrorPodKey = "kubernetes.io/config.mirror"

// Keys are the full keys, prefix included, under one prefix. Make them with
// NewKeys.
type Keys struct {
	// Prefix ends in a slash.
	Prefix string

	// On a ServiceAccount.

	// AWSRoleARN is the ARN of the IAM role that the account's pods assume.
	AWSRoleARN string
	// AWSRegion is the AWS region, over the cluster's default.
	AWSRegion string
	// AzureClientID is the GUID of the application or managed identity.
	AzureClientID string
	// AzureTenantID is the tenant's GUID or domain, over the cluster's default.
	AzureTenantID string
	// GCPWorkloadIdentityProvider is the provider's resource name, or
	// "default" for the cluster's.
	GCPWorkloadIdentityProvider string
	// GCPServiceAccount is the e-mail of a Google service account to
	// impersonate. Without it, federation is direct.
	GCPServiceAccount string
	// GCPProject is the project id that clients work in.
	GCPProject string
	// Audience asks for a plain token on its own; beside a provider it is the
	// one audience of all the account's tokens.
	Audience string
	// AWSAudience, AzureAudience and GCPAudience are one provider's audience,
	// over Audience.
	AWSAudience, AzureAudience, GCPAudience string
	// TokenExpirationSeconds is the tokens' requested lifetime, also on a pod,
	// where it is over the account's.
	TokenExpirationSeconds string

	// On a Pod.

	// Inject is "false" on a pod that opts out.
	Inject string
	// Containers names the containers to inject into, and no others.
	Containers string
	// SkipContainers names the containers to leave out.
	SkipContainers string

	// Written on the Pod by Lanyard.

	// Injected lists the providers whose tokens the pod's volume carries.
	Injected string
	// IdentityHash identifies what was injected.
	IdentityHash string
	// GCPCredentials holds the external_account JSON that the pod's volume
	// projects as gcp/credentials.json.
	GCPCredentials string

	// On a Namespace.

	// AllowedIdentities bounds what the namespace's accounts may ask for.
	AllowedIdentities string

	// IdentityLabel is the label on a ServiceAccount that asks for an identity.
	IdentityLabel string

	// Probe is a label: "true" on the pod of a dry run that must fail if the webhook
	// cannot be called.
	Probe string
}

// NewKeys makes the keys under prefix: a DNS subdomain and a slash, as
// Kubernetes wants of the prefix of an annotation key.
func NewKeys(prefix string) (Keys, error) {
	domain, found := strings.CutSuffix(prefix, "/")
	if problems := validation.IsDNS1123Subdomain(domain); !found || len(problems) > 0 {
		return Keys{}, fmt.Errorf("annotation prefix: got %q, want a DNS subdomain followed by a slash, such as %q", prefix, DefaultPrefix)
	}
	return Keys{
		Prefix: prefix,

		AWSRoleARN:                  prefix + "aws-role-arn",
		AWSRegion:                   prefix + "aws-region",
		AzureClientID:               prefix + "azure-client-id",
		AzureTenantID:               prefix + "azure-tenant-id",
		GCPWorkloadIdentityProvider: prefix + "gcp-workload-identity-provider",
		GCPServiceAccount:           prefix + "gcp-service-account",
		GCPProject:                  prefix + "gcp-project",
		Audience:                    prefix + "audience",
		AWSAudience:                 prefix + "aws-audience",
		AzureAudience:               prefix + "azure-audience",
		GCPAudience:                 prefix + "gcp-audience",
		TokenExpirationSeconds:      prefix + "token-expiration-seconds",

		Inject:         prefix + "inject",
		Containers:     prefix + "containers",
		SkipContainers: prefix + "skip-containers",

		Injected:       prefix + "injected",
		IdentityHash:   prefix + "identity-hash",
		GCPCredentials: prefix + "gcp-credentials",

		AllowedIdentities: prefix + "allowed-identities",
		IdentityLabel:     prefix + "identity",
		Probe:             prefix + "probe",
	}, nil
}

// serviceAccount lists the keys that a person may write on a ServiceAccount.
func (k *Keys) serviceAccount() []string {
	return []string{
		k.AWSRoleARN, k.AWSRegion, k.AWSAudience,
		k.AzureClientID, k.AzureTenantID, k.AzureAudience,
		k.GCPWorkloadIdentityProvider, k.GCPServiceAccount, k.GCPProject, k.GCPAudience,
		k.Audience, k.TokenExpirationSeconds,
	}
}

// pod lists the keys that may stand on a Pod: a person's, then Lanyard's own.
func (k *Keys) pod() []string {
	return []string{
		k.Inject, k.Containers, k.SkipContainers, k.TokenExpirationSeconds,
		k.Injected, k.IdentityHash, k.GCPCredentials,
	}
}

// identity lists the keys each of which asks for an identity by itself.
func (k *Keys) identity() []string {
	return []string{
		k.AWSRoleARN, k.AzureClientID, k.GCPWorkloadIdentityProvider, k.GCPServiceAccount, k.Audience,
	}
}

// MaxServiceAccountBytes is more than the annotations of any valid service
// account have, keys and values together: what is over it is malformed, and
// need not be kept to know that.
func (k *Keys) MaxServiceAccountBytes() int {
	size := 0
	for _, key := range k.serviceAccount() {
		size += len(key)
	}
	return size + maxRoleARN + maxRegion + 2*len("00000000-0000-0000-0000-000000000000") + maxDomain +
		maxGCPName + 2*maxGCPIdentity + maxAWSAudience + maxAzureAudience + maxGCPAudience + maxAudience
}

// AskForIdentity says whether a service account with these annotations asks
// for an identity, well formed or not. It is what decides about IdentityLabel.
func (k *Keys) AskForIdentity(annotations map[string]string) bool {
	for _, key := range k.identity() {
		if _, found := annotations[key]; found {
			return true
		}
	}
	return false
}

// IsIdentity says whether the key asks for an identity by itself.
func (k *Keys) IsIdentity(key string) bool { return slices.Contains(k.identity(), key) }
