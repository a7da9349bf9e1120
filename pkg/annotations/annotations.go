// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annotations has the annotation keys of Lanyard, and reads the annotations of a
// ServiceAccount: which identities it asks for, or why Lanyard would deny it. Operators
// use it to write annotations, and to check them before the API server does.
//
// Unstable before v1: a minor version may change the API. Keys and the meaning of their
// values do not change after a release.
package annotations

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Prefix starts every key. A cluster can have another prefix.
const Prefix = "lanyard.dev/"

// The keys of a ServiceAccount. docs/reference/annotations.md has the form of the values.
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
	Tokens                 = Prefix + "tokens"
	TokenExpirationSeconds = Prefix + "token-expiration-seconds" // also of a pod
)

// The keys of other objects.
const (
	Inject            = Prefix + "inject" // of a pod: "false" opts out, "true" insists; and the label of a namespace
	Containers        = Prefix + "containers"
	SkipContainers    = Prefix + "skip-containers"
	Injected          = Prefix + "injected"           // Lanyard writes it on a pod
	Denied            = Prefix + "denied"             // the policies write it on a pod that is not created
	AllowedIdentities = Prefix + "allowed-identities" // of a namespace
	PoliciesSource    = Prefix + "policies"           // of a policy that injects: the input of "lanyard policies"
	IdentityLabel     = Prefix + "identity"           // Lanyard writes it on a ServiceAccount or a pod, or a user with IdentityRequired
)

// IdentityRequired is the value of IdentityLabel on a ServiceAccount whose pods must wait
// until it asks for an identity. Lanyard never changes it.
const IdentityRequired = annotations.LabelRequired

// IdentityInjected is the value of IdentityLabel on an injected pod. Only Lanyard may write
// it: the API server denies a pod with it if a container lacks its token.
const IdentityInjected = annotations.LabelInjected

// Options are the settings of a cluster. The zero value has the defaults of
// lanyard-webhook.
type Options struct {
	// Config is the content of the configuration file of lanyard-webhook: settings by the
	// names of the flags, custom providers and identity mappings. Settings about
	// lanyard-webhook itself, such as ports, have no effect.
	Config []byte
	// ReservedAudiences are audiences of the API server in addition to the common
	// audiences. No token may have one. Add the issuer of the cluster.
	ReservedAudiences []string
}

// Parser reads annotations. It may be used concurrently. Make it with New.
type Parser struct{ settings *settings.Settings }

// New returns a Parser for a cluster with these settings.
func New(o Options) (*Parser, error) {
	s, err := options.Embedded(o.Config, o.ReservedAudiences)
	if err != nil {
		return nil, err
	}
	return &Parser{s}, nil
}

// Identity is an identity that a ServiceAccount asks for.
type Identity struct {
	// Provider is the name of the provider, such as aws.
	Provider string
	// Principals name the identity, and then the identities of its profiles: a role, a
	// client ID, an e-mail. The annotation AllowedIdentities is compared with them.
	Principals []string
	// Audience is the audience of the token.
	Audience string
	// Parameters are the values of the provider's parameters in their canonical spelling,
	// such as region. They include the defaults of the cluster.
	Parameters map[string]string
}

// Parse returns the identities that the ServiceAccount asks for, sorted by provider, or
// all mistakes in its annotations. It returns neither for a ServiceAccount without
// annotations of Lanyard. The webhook adds the annotations of identity mappings, and of
// other programs, when a ServiceAccount is written: Parse does not.
func (p *Parser) Parse(serviceAccount metav1.Object) ([]Identity, field.ErrorList) {
	s := p.settings
	parsed, errs := annotations.ParseServiceAccount(s.Keys, serviceAccount.GetAnnotations(), s.Defaults.For(serviceAccount.GetNamespace(), serviceAccount.GetName()))
	if parsed == nil || len(errs) > 0 {
		return nil, errs
	}
	identities := make([]Identity, 0, len(parsed.Providers))
	for i := range parsed.Providers {
		identity := &parsed.Providers[i]
		identities = append(identities, Identity{
			Provider: identity.Definition.Name, Principals: identity.AppendPrincipals(nil),
			Audience: identity.Audience, Parameters: maps.Clone(identity.Values),
		})
	}
	return identities, nil
}
