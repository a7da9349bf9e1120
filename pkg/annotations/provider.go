// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Provider describes a receiver of tokens, such as a cloud: the annotations by which a
// ServiceAccount asks for an identity, and what its pods get. Built-in and custom providers
// have the same form.
type Provider struct {
	// Name is the prefix of the provider's annotation keys and flags. The annotation
	// "injected" and the metrics contain it.
	Name string
	// Parameters are set by a ServiceAccount or the cluster for an identity.
	// A provider in which no parameter asks for an identity is plain: a ServiceAccount
	// asks for it by the annotation "audience", if it asks for no other provider.
	Parameters []Parameter
	// PrincipalParameters lists the parameters that can name the identity. The first that is
	// set does, or else the audience.
	PrincipalParameters []string
	// DefaultAudience is the audience of a token if neither the ServiceAccount nor
	// the cluster sets one. It is a template.
	DefaultAudience string
	// MaxAudienceBytes is the longest audience that the provider accepts.
	MaxAudienceBytes int
	// MinExpirationSeconds is the shortest lifetime of a token that the provider's
	// SDKs can use. Zero stands for the minimum of Kubernetes.
	MinExpirationSeconds int64
	// TokenPath is the path of the token, relative to the volume.
	TokenPath string
	// CopyVolume is the name of the volume with a copy of the token, or empty if the provider
	// has no TokenPathParameter. It is the name that another webhook uses, so that this
	// webhook finds the volume if it is called as well.
	CopyVolume string
	// CredentialFile is a second file in the volume, or nil if there is none.
	CredentialFile *CredentialFile
	// Profiles lets a ServiceAccount have several identities, or is nil.
	Profiles *Profiles
	// Variables are set in each container, in this order.
	Variables []Variable
	// Shadows are variables that some of the provider's SDKs prefer to the injected
	// identity.
	Shadows []Shadow
	// Synonyms are variables that SDKs read instead of the variables of a Group, by the name
	// of the group. A container that sets one of them gets none of the group.
	Synonyms map[string][]string
	// Doubt, if set, says why SDKs cannot use an identity with these values, and names the
	// parameter. It returns "" if they can.
	Doubt func(Values) (parameter, why string)
	// TokenAlone reports whether a ServiceAccount can ask for the token without an
	// identity, by the annotation "tokens". The variables without a value of an
	// identity then make sense by themselves.
	TokenAlone bool
	// TokenAloneNeeds, if set, names the variable with the identity, without which SDKs fail
	// if they find the provider's other variables. A ServiceAccount that asks only for the
	// token gives these only to containers that set the named variable themselves.
	TokenAloneNeeds string
	// Derive, if set, adds values that are computed from others.
	Derive func(Values)
	// Trust is the text of a custom provider about its trust configuration: a template with
	// TrustValues. Only the command line shows it.
	Trust string
}

// TrustKeysFile is the value in Trust that names the file with the public keys of the
// cluster. It is not set if the provider can read the issuer.
const TrustKeysFile = "keys-file"

// TrustHas reports whether Trust has the value.
func (d *Provider) TrustHas(name string) bool { return strings.Contains(d.Trust, "{"+name+"}") }

// TrustValues returns the names of the values that Trust may have.
func (d *Provider) TrustValues() []string {
	names := []string{"issuer", "audience", "subject", TrustKeysFile, "namespace", "serviceaccount"}
	for i := range d.Parameters {
		names = append(names, d.Parameters[i].Name)
	}
	return names
}

// Key returns the annotation key of a parameter without the prefix. Key("audience") is the
// key of the audience; a plain provider uses the key that applies to all providers.
func (d *Provider) Key(parameter string) string {
	if d.Plain() {
		return parameter
	}
	return d.Name + "-" + parameter
}

// Keys lists the annotation keys, without the prefix, that a ServiceAccount may have for
// the provider: of the parameters, then of the audience, unless the provider is plain. The
// keys of profiles are not there.
func (d *Provider) Keys() []string {
	keys := make([]string, 0, len(d.Parameters)+1)
	for i := range d.Parameters {
		if p := &d.Parameters[i]; !p.ClusterOnly {
			keys = append(keys, d.Key(p.Name))
		}
	}
	if d.Plain() {
		return keys // the audience is the ServiceAccount's
	}
	return append(keys, d.Key("audience"))
}

// ProfileKeys returns the annotation keys of profiles, without the prefix and the name of the
// profile at the end.
func (d *Provider) ProfileKeys() []string {
	if d.Profiles == nil {
		return nil
	}
	return []string{d.Key(d.Profiles.Parameter) + ".", d.Key(d.Profiles.Source) + "."}
}

// IdentityKeys lists the keys, without the prefix, that ask for an identity of the provider.
func (d *Provider) IdentityKeys() []string {
	if d.Plain() {
		return []string{"audience"}
	}
	var keys []string
	for i := range d.Parameters {
		if p := &d.Parameters[i]; p.Identity {
			keys = append(keys, d.Key(p.Name))
		}
	}
	return keys
}

// Parameter returns the parameter of this name, or nil if there is none.
func (d *Provider) Parameter(name string) *Parameter {
	i := slices.IndexFunc(d.Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Parameters[i]
}

// AsksBy describes how a ServiceAccount asks for an identity of the provider.
func (d *Provider) AsksBy() string {
	if d.Plain() {
		return Audience + " as the only identity"
	}
	return strings.Join(full(d.IdentityKeys()), " or ")
}

// OwnsKey reports whether an annotation key, without the prefix, is one of Keys or of a
// profile.
func (d *Provider) OwnsKey(key string) bool {
	return slices.Contains(d.Keys(), key) || startsWithAny(key, d.ProfileKeys())
}

func startsWithAny(text string, starts []string) bool {
	return slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(text, start) })
}

// Parameter is a property of an identity, such as a role or a region. Its annotation key is
// PREFIX/PROVIDER-NAME.
type Parameter struct {
	// Name is the part of the annotation key after the provider's name.
	Name string
	// Identity reports whether a ServiceAccount with this annotation asks for an
	// identity of the provider.
	Identity bool
	// Required reports whether every identity needs a value.
	Required bool
	// ClusterOnly reports whether only the cluster can set it, and no annotation.
	ClusterOnly bool
	// Allowed reports whether a namespace must allow the value, in addition to the name of
	// the identity.
	Allowed bool
	// Example is a valid value; empty for a parameter without an example.
	Example string
	// MaxBytes is the length of the longest value.
	MaxBytes int
	// Grammar is the grammar of the values.
	Grammar Grammar
	// Parse replaces Grammar, if set: it checks a value and returns its canonical spelling.
	// Its error completes the sentence "VALUE ...", as in "must be a GUID". Policies of the
	// API server cannot have such a parameter, unless only the cluster sets it.
	Parse func(value string) (string, error)
	// Expand, if set, returns the full form of a short value, such as the ARN for the name of
	// a role, and any other value unchanged. cluster returns the values of ClusterOnly
	// parameters.
	Expand func(value string, cluster func(parameter string) string) string
	// Template reports whether the cluster's default may have NamespaceVariable and
	// ServiceAccountVariable. See ReadTemplate.
	Template bool
	// Flag names the flag that sets the cluster's default, and Usage describes
	// it. Without a flag the cluster has no default.
	Flag, Usage string
	// Default is the default of the flag itself.
	Default string
}

// Read checks the length and the grammar of a value, whether it is from an
// annotation or a flag, and returns its canonical spelling.
func (p *Parameter) Read(value string) (string, error) {
	if len(value) > p.MaxBytes {
		return "", fmt.Errorf("must have at most %d bytes", p.MaxBytes)
	}
	if p.Parse != nil {
		return p.Parse(value)
	}
	return p.Grammar.parse(value)
}

// Grammar is the form of a parameter's values. It is data, so that policies of the API server
// can check the same grammar.
type Grammar struct {
	// Prefixes are optional prefixes of a value, which the canonical spelling omits.
	Prefixes []string
	// Checks are made in order, with the value without its prefix.
	Checks []Check
	// LowerGUIDs reports whether a GUID has lower case in the canonical spelling, so that one
	// identity has one spelling.
	LowerGUIDs bool
}

// Check is one condition for a value.
type Check struct {
	// AnyOf contains patterns for the whole value. One of them must match.
	AnyOf []*regexp.Regexp
	// NoneOf contains patterns for a part of the value. None of them may match.
	NoneOf []*regexp.Regexp
	// Want completes the sentence "VALUE ...", as in "must be a GUID".
	Want string
}

// Matching returns the grammar of the values that match the pattern. want completes the
// sentence "VALUE ...".
func Matching(pattern *regexp.Regexp, want string) Grammar {
	return Grammar{Checks: []Check{{AnyOf: []*regexp.Regexp{pattern}, Want: want}}}
}

func (g *Grammar) parse(value string) (string, error) {
	for _, prefix := range g.Prefixes {
		if rest, found := strings.CutPrefix(value, prefix); found {
			value = rest
			break
		}
	}
	for i := range g.Checks {
		if !g.Checks[i].accepts(value) {
			return "", errors.New(g.Checks[i].Want)
		}
	}
	if g.LowerGUIDs && texts.IsGUID(value) {
		value = strings.ToLower(value)
	}
	return value, nil
}

func (c *Check) accepts(value string) bool {
	matches := func(pattern *regexp.Regexp) bool { return pattern.MatchString(value) }
	return slices.ContainsFunc(c.AnyOf, matches) && !slices.ContainsFunc(c.NoneOf, matches)
}

// HasDefault reports whether the annotation value "default" stands for the cluster's value.
func (p *Parameter) HasDefault(cluster string) bool {
	return p.Identity && (p.Flag != "" || cluster != "")
}

// Missing returns the error for a Required parameter without a value.
func (p *Parameter) Missing(key string) string {
	why := "the cluster has no default"
	if p.Flag != "" {
		why += " (--" + p.Flag + ")"
	}
	if p.ClusterOnly {
		return why
	}
	return "set " + key + " to a value: " + why
}

// Variables of a cluster's default. They stand for the names of the ServiceAccount
// and its namespace.
const (
	NamespaceVariable      = "{namespace}"
	ServiceAccountVariable = "{serviceaccount}"
)

// ExpandNames replaces the variables of a cluster's default.
func ExpandNames(template, namespace, serviceAccount string) string {
	if !strings.Contains(template, "{") { // as most defaults: a Replacer takes longer
		return template
	}
	return strings.NewReplacer(NamespaceVariable, namespace, ServiceAccountVariable, serviceAccount).Replace(template)
}

// ReadTemplate checks a cluster's default that may contain variables. Joined names must not
// give two ServiceAccounts the same value: "a-b" and "c" joined are the same as "a" and
// "b-c".
func (p *Parameter) ReadTemplate(template string) (string, error) {
	value := ExpandNames(template, "namespace", "serviceaccount")
	read, err := p.Read(value)
	switch {
	case err != nil:
		return "", err
	case strings.ContainsAny(value, "{}"):
		return "", fmt.Errorf("must have no braces except in %s and %s", NamespaceVariable, ServiceAccountVariable)
	case joinsNames.MatchString(template):
		return "", fmt.Errorf("must have a character other than a-z, 0-9 and - between %s and %s, so that no two ServiceAccounts have the same value", NamespaceVariable, ServiceAccountVariable)
	case value == template:
		return read, nil // in its one spelling
	}
	return template, nil
}

// joinsNames matches two variables that are separated only by characters that both names may
// contain. Names of namespaces contain no dot.
var joinsNames = regexp.MustCompile(`\{(namespace|serviceaccount)\}[a-z0-9-]*\{(namespace|serviceaccount)\}`)

// CredentialFile is a file in the volume. Its content is an annotation of the
// pod, which the volume projects through the downward API.
type CredentialFile struct {
	// Annotation is the annotation key without the prefix.
	Annotation string
	// Path is relative to the volume.
	Path string
	// Content returns the text of the file, or "" for no file.
	Content func(Values, []Profile) string
	// Read parses such a file, also one that another program wrote, and returns its values,
	// with the path of the token as token-file, or nil if there are none. Read itself is nil
	// if the file never contains an identity.
	Read func(text string) Values
}

// Shadow is a variable that SDKs prefer to the injected identity.
type Shadow struct {
	// Name is the variable's name.
	Name string
	// Unless lists harmless values.
	Unless []string
}

// Harms reports whether SDKs may ignore the injected identity in a container that sets the variable
// to this value, or takes the value from a Secret or another object.
func (s *Shadow) Harms(value string, derived bool) bool {
	return derived || !slices.Contains(s.Unless, value)
}

// Variable is an environment variable of a container.
type Variable struct {
	// Name is the variable's name.
	Name string
	// Value is a template. If one of the values in it is empty, the variable is
	// left out.
	Value string
	// Credential reports whether the variable points to a token or a credential
	// file. A container that points it somewhere else has its own credential.
	Credential bool
	// Needed reports whether SDKs do not find the identity if the variable is empty.
	Needed bool
	// Group, if set, names variables that go together: a container that sets one
	// of them gets none of the others.
	Group string
	// Direct reports whether the variable belongs to the ServiceAccount's own identity, which
	// SDKs may prefer to a profile. A container that selects a profile does not get it.
	Direct bool
	// Profiles reports whether the variable points to the file with the profiles.
	Profiles bool
	// PodName, if set, names a parameter that replaces Value with the name of the pod.
	// NewInjection clears it if the parameter has no value. If the name is not valid
	// (PodNameFits), the pod gets Value.
	PodName string
}

// PodNameField is the field of a pod that a variable with PodName asks for.
const PodNameField = "metadata.name"

// IsOwnCredential reports whether a container that sets the variable to this value, or takes
// it from another object, has its own credential. want is Lanyard's value, and copied is the
// path of the copy of the token, or "".
func (v *Variable) IsOwnCredential(value []byte, derived bool, want, copied string) bool {
	return v.Credential && (derived || len(value) == 0 || string(value) != want && string(value) != copied)
}

// Plain reports whether the provider has no identities, only a token with the audience that
// the ServiceAccount sets.
func (d *Provider) Plain() bool {
	return !slices.ContainsFunc(d.Parameters, func(p Parameter) bool { return p.Identity })
}

// Values are the values of an identity by the names of the parameters. When
// templates are expanded there are also:
//
//	namespace, serviceaccount   names of the pod's ServiceAccount
//	token-file, credential-file absolute paths, as a container sees them; the second
//	                            one is empty if there is no file
type Values map[string]string

// placeholder matches the name of a value in braces.
var placeholder = regexp.MustCompile(`\{[a-z0-9-]+\}`)

// Expand fills in a template. It reports false if a value in it is empty.
func (v Values) Expand(template string) (text string, complete bool) {
	complete = true
	text = placeholder.ReplaceAllStringFunc(template, func(name string) string {
		value := v[strings.Trim(name, "{}")]
		complete = complete && value != ""
		return value
	})
	return text, complete
}

// Identity is a ServiceAccount's identity at one provider, complete and valid.
type Identity struct {
	// Provider is the provider.
	Provider *Provider
	// Values contains the values of the parameters that are set, including the
	// cluster's defaults.
	Values Values
	// Profiles are further identities, sorted by name.
	Profiles []Profile
	// Audience is the audience of the token. It is never empty.
	Audience string
	// TokenAlone reports whether the ServiceAccount asks only for the token, because the
	// program configures the identity.
	TokenAlone bool
}

// appendPrincipals appends everything that a namespace must allow: the names of the identity
// and its profiles, and the values of Allowed parameters.
func (i *Identity) appendPrincipals(names []string) []string {
	names = append(names, i.Principal())
	for j := range i.Profiles {
		names = append(names, i.Profiles[j].Identity)
	}
	for j := range i.Provider.Parameters {
		if p := &i.Provider.Parameters[j]; p.Allowed && i.Values[p.Name] != "" {
			names = append(names, i.Values[p.Name])
		}
	}
	return names
}

// Principal returns the name of the identity: a role, a client ID, an e-mail, or
// "tokens:" and the provider's name for a token without an identity.
func (i *Identity) Principal() string {
	if i.TokenAlone {
		return "tokens:" + i.Provider.Name
	}
	for _, name := range i.Provider.PrincipalParameters {
		if value := i.Values[name]; value != "" {
			return value
		}
	}
	return i.Audience
}

// Profiles are further identities of a ServiceAccount, each with a name by which a
// program selects it. They are in the credential file.
type Profiles struct {
	// Parameter names the parameter that each profile sets. The annotation key is the
	// parameter's key, a dot and the profile's name.
	Parameter string
	// Source is the parameter that names the source profile, whose credentials SDKs use
	// instead of the token. Its annotation key has the same form.
	Source string
	// Selectors are the variables by which a container selects a profile.
	Selectors []string
}

// Profile is one identity of a ServiceAccount that has several, complete and valid.
type Profile struct {
	// Name is not DefaultProfile.
	Name string
	// Identity is the value of Profiles.Parameter, such as the ARN of a role.
	Identity string
	// Source is the name of another profile, or DefaultProfile; empty for the token.
	Source string
}

// DefaultProfile is the profile of the ServiceAccount's own identity.
const DefaultProfile = "default"

// Limits of the profiles of one ServiceAccount.
const (
	// MaxProfiles is the maximum number of profiles.
	MaxProfiles = 16
	// MaxProfilesBytes limits their annotations, with short values in their full form,
	// keys and values together.
	MaxProfilesBytes = 4 << 10
)

// profileName matches names that are valid at the end of an annotation key, which may
// have 63 characters, and that every AWS SDK reads as they are.
var profileName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,42}[A-Za-z0-9])?$`)

// parseProfileName checks the name of a profile.
func parseProfileName(name string) error {
	switch {
	case name == DefaultProfile:
		return errors.New(`must not be "default", which is the ServiceAccount's own identity`)
	case !profileName.MatchString(name):
		return errors.New(`must be 1 to 44 of a-z, A-Z, 0-9, ".", "_" and "-", with a letter or a digit at both ends`)
	}
	return nil
}
