// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultProvider is the value of GCPWorkloadIdentityProvider that stands for
// the cluster's.
const DefaultProvider = "default"

// Default audiences, where neither the account nor the cluster says another.
// Google has none: a provider's full resource name is what it accepts.
const (
	DefaultAWSAudience   = "sts.amazonaws.com"
	DefaultAzureAudience = "api://AzureADTokenExchange"
)

// Defaults are the cluster's settings behind an account's annotations. An
// empty string is a setting that the cluster does not make.
type Defaults struct {
	// TokenExpirationSeconds is the lifetime where neither pod nor account
	// says one.
	TokenExpirationSeconds int64
	// AWSRegion is the region where an account names none.
	AWSRegion string
	// AzureTenantID is the tenant where an account names none.
	AzureTenantID string
	// GCPWorkloadIdentityProvider is the bare resource name of the provider
	// where an account names none.
	GCPWorkloadIdentityProvider string
	// AWSAudience, AzureAudience and GCPAudience are the audiences where an
	// account names none. Without GCPAudience, it is the provider's full
	// resource name, https form.
	AWSAudience, AzureAudience, GCPAudience string
	// ReservedAudiences are the apiserver's own, which no token may have.
	ReservedAudiences []string
}

// Identity is what a service account asks for, complete and valid: annotations
// first, then the cluster's defaults. A nil provider takes no part. At least
// one is not nil.
type Identity struct {
	AWS   *AWS
	Azure *Azure
	GCP   *GCP
	Plain *Plain
	// TokenExpirationSeconds is the account's own wish, 0 without one.
	TokenExpirationSeconds int64
}

// AWS is an IAM role to assume with a web identity.
type AWS struct {
	RoleARN  string
	Region   string // may be empty
	Audience string
}

// Azure is an application or managed identity of Microsoft Entra ID.
type Azure struct {
	ClientID string // GUID, lower case
	TenantID string // GUID or domain
	Audience string
}

// GCP is an identity of a workload identity pool, or a service account that it
// impersonates.
type GCP struct {
	WorkloadIdentityProvider string // projects/NUMBER/locations/...
	ServiceAccount           string // e-mail; empty for direct federation
	Project                  string // project id; may be empty
	Audience                 string
}

// Plain is a token for anything that trusts the cluster's issuer.
type Plain struct {
	Audience string
}

// Names lists what the account asks to be, one string a provider: the role's
// ARN, the client ID, the e-mail or else the provider's resource name, the
// audience of a plain token. They are what a namespace's allowed-identities is
// held against.
func (i *Identity) Names() []string {
	var names []string
	if i.AWS != nil {
		names = append(names, i.AWS.RoleARN)
	}
	if i.Azure != nil {
		names = append(names, i.Azure.ClientID)
	}
	if i.GCP != nil {
		names = append(names, cmp.Or(i.GCP.ServiceAccount, i.GCP.WorkloadIdentityProvider))
	}
	if i.Plain != nil {
		names = append(names, i.Plain.Audience)
	}
	return names
}

// ParseServiceAccount reads the annotations of a service account. It gives nil
// and no error for an account with none of Lanyard's keys. All mistakes are
// reported at once, unknown keys first; with one, there is no identity.
func ParseServiceAccount(keys *Keys, annotations map[string]string, defaults *Defaults) (*Identity, field.ErrorList) {
	p := parser{keys: keys, annotations: annotations, defaults: defaults}
	p.refuseUnknown(keys.serviceAccount(), serviceAccountHint)
	identity := Identity{AWS: p.aws(), Azure: p.azure(), GCP: p.gcp()}
	identity.TokenExpirationSeconds = p.expiration()
	if !keys.AskForIdentity(annotations) {
		if len(p.errs) == 0 {
			p.needs("an identity", keys.TokenExpirationSeconds)
		}
		return nil, p.errs
	}
	if audience, found := annotations[keys.Audience]; found {
		p.parse(keys.Audience, func(v string) (string, error) { return ParseAudience(v, defaults.ReservedAudiences) })
		if identity.AWS == nil && identity.Azure == nil && identity.GCP == nil {
			identity.Plain = &Plain{Audience: audience}
		}
	}
	if identity.Azure != nil && identity.TokenExpirationSeconds != 0 && identity.TokenExpirationSeconds < MinAzureTokenExpirationSeconds {
		p.invalid(keys.TokenExpirationSeconds, errExpiration)
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return &identity, nil
}

// Bounds of what a message repeats: messages are logged, and the annotations of
// an object may be 256 KiB together.
const (
	maxShownBytes = 1024
	maxShownKeys  = 8
)

// shown is the value as a message repeats it.
func shown(value string) string {
	if len(value) <= maxShownBytes {
		return value
	}
	return value[:maxShownBytes] + "..."
}

// parser reads one object's annotations and gathers what is wrong with them.
type parser struct {
	keys        *Keys
	annotations map[string]string
	defaults    *Defaults
	errs        field.ErrorList
}

var annotationsPath = field.NewPath("metadata", "annotations")

// invalid reports the value of key, once: several providers may read it.
func (p *parser) invalid(key string, err error) {
	path := annotationsPath.Key(key)
	if slices.ContainsFunc(p.errs, func(e *field.Error) bool { return e.Field == path.String() }) {
		return
	}
	p.errs = append(p.errs, field.Invalid(path, shown(p.annotations[key]), err.Error()))
}

// parse reads the value of key with a grammar. Without the key it gives "".
func (p *parser) parse(key string, grammar func(string) (string, error)) string {
	value, found := p.annotations[key]
	if !found {
		return ""
	}
	parsed, err := grammar(value)
	if err != nil {
		p.invalid(key, err)
	}
	return parsed
}

// audience gives one provider's audience: its own annotation, the account's,
// the cluster's, in this order. Not even the cluster's may be the apiserver's.
func (p *parser) audience(key string, limit int, fallback string) string {
	grammar := func(value string) (string, error) { return parseAudience(value, limit, p.defaults.ReservedAudiences) }
	if _, found := p.annotations[key]; found {
		return p.parse(key, grammar)
	}
	if _, found := p.annotations[p.keys.Audience]; found {
		return p.parse(p.keys.Audience, grammar)
	}
	if _, err := grammar(fallback); err != nil {
		p.errs = append(p.errs, field.Required(annotationsPath.Key(key), fmt.Sprintf("the cluster's default %q %v", fallback, err)))
	}
	return fallback
}

// needs reports each of keys that stands without what gives it a meaning.
func (p *parser) needs(what string, keys ...string) {
	for _, key := range keys {
		if _, found := p.annotations[key]; found {
			p.errs = append(p.errs, field.Forbidden(annotationsPath.Key(key),
				fmt.Sprintf("has value %q but no effect without %s", shown(p.annotations[key]), what)))
		}
	}
}

func (p *parser) aws() *AWS {
	k := p.keys
	if _, found := p.annotations[k.AWSRoleARN]; !found {
		p.needs(k.AWSRoleARN, k.AWSRegion, k.AWSAudience)
		return nil
	}
	return &AWS{
		RoleARN:  p.parse(k.AWSRoleARN, ParseAWSRoleARN),
		Region:   cmp.Or(p.parse(k.AWSRegion, ParseAWSRegion), p.defaults.AWSRegion),
		Audience: p.audience(k.AWSAudience, maxAWSAudience, cmp.Or(p.defaults.AWSAudience, DefaultAWSAudience)),
	}
}

func (p *parser) azure() *Azure {
	k := p.keys
	if _, found := p.annotations[k.AzureClientID]; !found {
		p.needs(k.AzureClientID, k.AzureTenantID, k.AzureAudience)
		return nil
	}
	azure := Azure{
		ClientID: p.parse(k.AzureClientID, ParseAzureClientID),
		TenantID: p.parse(k.AzureTenantID, ParseAzureTenantID),
		Audience: p.audience(k.AzureAudience, maxAzureAudience, cmp.Or(p.defaults.AzureAudience, DefaultAzureAudience)),
	}
	if _, found := p.annotations[k.AzureTenantID]; !found {
		azure.TenantID = p.defaults.AzureTenantID
		if azure.TenantID == "" {
			p.errs = append(p.errs, field.Required(annotationsPath.Key(k.AzureTenantID),
				fmt.Sprintf("%s is set, and the cluster has no --azure-default-tenant-id", k.AzureClientID)))
		}
	}
	return &azure
}

func (p *parser) gcp() *GCP {
	k := p.keys
	provider, hasProvider := p.annotations[k.GCPWorkloadIdentityProvider]
	_, hasServiceAccount := p.annotations[k.GCPServiceAccount]
	if !hasProvider && !hasServiceAccount {
		p.needs(k.GCPWorkloadIdentityProvider, k.GCPProject, k.GCPAudience)
		return nil
	}
	var gcp GCP
	if hasProvider && provider != DefaultProvider {
		gcp.WorkloadIdentityProvider = p.parse(k.GCPWorkloadIdentityProvider, ParseGCPWorkloadIdentityProvider)
	} else if gcp.WorkloadIdentityProvider = p.defaults.GCPWorkloadIdentityProvider; gcp.WorkloadIdentityProvider == "" {
		p.errs = append(p.errs, field.Required(annotationsPath.Key(k.GCPWorkloadIdentityProvider),
			"the cluster has no --gcp-default-workload-identity-provider"))
	}
	gcp.ServiceAccount = p.parse(k.GCPServiceAccount, func(value string) (email string, err error) {
		email, gcp.Project, err = ParseGCPServiceAccount(value)
		return email, err
	})
	gcp.Project = cmp.Or(p.parse(k.GCPProject, ParseGCPProject), gcp.Project)
	gcp.Audience = p.audience(k.GCPAudience, maxGCPAudience,
		cmp.Or(p.defaults.GCPAudience, "https://iam.googleapis.com/"+gcp.WorkloadIdentityProvider))
	return &gcp
}

func (p *parser) expiration() int64 {
	value, found := p.annotations[p.keys.TokenExpirationSeconds]
	if !found {
		return 0
	}
	seconds, err := ParseTokenExpirationSeconds(value)
	if err != nil {
		p.invalid(p.keys.TokenExpirationSeconds, err)
	}
	return seconds
}

const (
	serviceAccountHint = "is no annotation of a service account"
	podHint            = "is no annotation of a pod, which can never choose an identity: that is its service account's alone"
	namespaceHint      = "is no annotation of a namespace"
)

// refuseUnknown reports the keys under the prefix that are not known: a slip
// of the pen would otherwise pass in silence, and the pod run without its
// identity.
func (p *parser) refuseUnknown(known []string, hint string) {
	var unknown []string
	for key := range p.annotations {
		if strings.HasPrefix(key, p.keys.Prefix) && !slices.Contains(known, key) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown) // a map has no order, a message needs one
	for i, key := range unknown {
		if i == maxShownKeys {
			p.errs = append(p.errs, field.TooMany(annotationsPath, len(unknown), 0))
			break
		}
		detail := fmt.Sprintf("has value %q and %s", shown(p.annotations[key]), hint)
		if key == p.keys.GCPCredentials {
			detail = hint // a credential file is not repeated
		}
		if i == 0 {
			detail += "; known are " + strings.Join(known, ", ")
		}
		p.errs = append(p.errs, field.Forbidden(annotationsPath.Key(key), detail))
	}
}
