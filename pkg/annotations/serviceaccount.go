// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ClusterDefault is the value of an annotation that stands for the cluster's
// default.
const ClusterDefault = "default"

// ServiceAccount contains the valid identities that a ServiceAccount asks for, including the
// cluster's defaults.
type ServiceAccount struct {
	// Identities contains one identity for each requested provider, in the order of
	// Settings.Providers. It is never empty.
	Identities []Identity
	// TokenExpirationSeconds is the ServiceAccount's own, 0 if it has none.
	TokenExpirationSeconds int64
	// Verify is VerifyWait or VerifyWarn if its pods present their tokens to the clouds before they
	// start; otherwise it is empty.
	Verify string
}

// Principals lists the names that a namespace must allow, at least one for each provider.
func (a *ServiceAccount) Principals() []string {
	names := make([]string, 0, len(a.Identities))
	for i := range a.Identities {
		names = a.Identities[i].appendPrincipals(names)
	}
	return names
}

// minExpirationSeconds returns the shortest lifetime that all providers can use.
func (a *ServiceAccount) minExpirationSeconds() int64 {
	least := int64(MinTokenExpirationSeconds)
	for i := range a.Identities {
		least = max(least, a.Identities[i].Provider.MinExpirationSeconds)
	}
	return least
}

// ParseServiceAccount reads the annotations of the ServiceAccount with this name. It returns
// nil and no error if the ServiceAccount asks for no identity. It reports all mistakes at
// once, unknown keys first. If there are mistakes, the result is nil.
//
// The webhook adds the annotations of mappings, and the annotations that it translates from
// other webhooks, when a ServiceAccount is written. ParseServiceAccount does not.
func (s *Settings) ParseServiceAccount(namespace, name string, annotations map[string]string) (*ServiceAccount, field.ErrorList) {
	p := serviceAccountParser{parser{Settings: s, annotations: annotations}, namespace, name}
	if unknown := s.UnknownOnServiceAccount(annotations); len(unknown) > 0 {
		p.denyUnknown(unknown, slices.Concat(s.ServiceAccountKeys(), s.ProfileKeys()), "is not an annotation of a ServiceAccount")
	}
	tokens, err := s.tokens(annotations)
	if err != nil {
		p.invalid(Tokens, err)
	}
	var account ServiceAccount
	asked := s.Asked(annotations)
	for _, d := range s.Providers {
		alone := slices.Contains(tokens, d.Name)
		switch {
		case alone && identifies(d, annotations):
			p.invalid(Tokens, fmt.Errorf("must not name %s together with %s", d.Name, d.AsksBy()))
		case slices.Contains(asked, d):
			account.Identities = append(account.Identities, p.identity(d, alone))
		default:
			p.denyWithoutIdentity(d)
		}
	}
	p.checkCopies(account.Identities)
	account.TokenExpirationSeconds = p.expiration(account.minExpirationSeconds())
	p.parse(Audience, func(v string) (string, error) {
		return ParseAudience(v, s.MaxAudienceBytes(), s.ReservedAudiences)
	})
	account.Verify = p.parse(Verify, parseVerify)
	if len(account.Identities) == 0 {
		if len(p.errs) == 0 {
			p.denyUseless(TokenExpirationSeconds, "an identity")
			p.denyUseless(Verify, "an identity")
		}
		return nil, p.errs
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return &account, nil
}

func parseVerify(value string) (string, error) {
	if value != VerifyWait && value != VerifyWarn {
		return "", fmt.Errorf("must be %s or %s", VerifyWait, VerifyWarn)
	}
	return value, nil
}

// CheckVerify returns an error if the ServiceAccount asks for Verify and the cluster has no
// image for it. It applies only to writes: the cluster may have had an image before.
func (s *Settings) CheckVerify(account *ServiceAccount) *field.Error {
	if account.Verify == "" || s.VerifyImage != "" {
		return nil
	}
	return field.Forbidden(at(Verify), fmt.Sprintf("has value %q, but the cluster has no image that verifies: set verifiedStart.enabled in the chart, "+
		"or --verify-image to the image of lanyard-webhook, or remove the annotation", account.Verify)).WithOrigin(Verify)
}

// Doubts returns reasons why SDKs cannot use identities of the ServiceAccount, each with the
// annotation, or nil if there are none.
func (a *ServiceAccount) Doubts() []string {
	var doubts []string
	for i := range a.Identities {
		identity := &a.Identities[i]
		if identity.Provider.Doubt == nil {
			continue
		}
		if parameter, why := identity.Provider.Doubt(identity.Values); why != "" {
			doubts = append(doubts, fmt.Sprintf("%s: %s", Key(identity.Provider, parameter), why))
		}
		for _, profile := range identity.Profiles {
			values := maps.Clone(identity.Values)
			values[identity.Provider.Profiles.Parameter] = profile.Identity
			if _, why := identity.Provider.Doubt(values); why != "" {
				doubts = append(doubts, fmt.Sprintf("%s: %s", ProfileKey(identity.Provider, identity.Provider.Profiles.Parameter, profile.Name), why))
			}
		}
	}
	return doubts
}

type serviceAccountParser struct {
	parser
	namespace, name string
}

// clusterValue returns the cluster's value of a parameter, or of the "audience", for this
// ServiceAccount.
func (p *serviceAccountParser) clusterValue(d *Provider, parameter string) string {
	return ExpandNames(p.Parameters[d.Key(parameter)], p.namespace, p.name)
}

// identity parses the ServiceAccount's identity at one provider. With tokenAlone, all
// parameters are optional.
func (p *serviceAccountParser) identity(d *Provider, tokenAlone bool) Identity {
	identity := Identity{Provider: d, Values: Values{}, TokenAlone: tokenAlone}
	for _, parameter := range d.Parameters {
		if tokenAlone && parameter.Identity {
			continue
		}
		parameter.Required = parameter.Required && !tokenAlone
		if value := p.parameter(Key(d, parameter.Name), d, &parameter); value != "" {
			identity.Values[parameter.Name] = value
		}
	}
	identity.Audience = p.audience(d, identity.Values)
	if tokenAlone {
		p.denyProfiles(d)
	} else {
		identity.Profiles = p.profiles(d)
	}
	return identity
}

// checkCopies reports the copies of tokens whose directory is outside of the prefixes, or
// cannot be mounted next to the other directories of Lanyard.
func (p *serviceAccountParser) checkCopies(identities []Identity) {
	mounted := map[string]string{} // the mount's content, by the directory
	if p.TokenMountPath != "" {
		mounted[p.TokenMountPath] = "the tokens of Lanyard"
	}
	for i := range identities {
		file := identities[i].CopyPath()
		if file == "" {
			continue
		}
		key, dir := Key(identities[i].Provider, TokenPathParameter), path.Dir(file)
		if err := checkTokenPath(file, p.TokenPathPrefixes); err != nil {
			p.invalid(key, err)
		}
		for _, other := range slices.Sorted(maps.Keys(mounted)) {
			if pathsOverlap(dir, other) {
				p.invalid(key, fmt.Errorf("must not be in a directory at, above or below %s, where %s are", other, mounted[other]))
			}
		}
		mounted[dir] = "those of " + key
	}
}

// parameter returns the value of a parameter: the value of the annotation at key, or the
// cluster's.
func (p *serviceAccountParser) parameter(key string, d *Provider, parameter *Parameter) string {
	value, found := p.annotations[key]
	cluster := p.clusterValue(d, parameter.Name)
	if found && !parameter.ClusterOnly && !(value == ClusterDefault && parameter.HasDefault(cluster)) {
		return p.parse(key, func(value string) (string, error) {
			if parameter.Expand != nil {
				value = parameter.Expand(value, func(name string) string { return p.clusterValue(d, name) })
			}
			return parameter.Read(value)
		})
	}
	value = cmp.Or(cluster, parameter.Default)
	switch {
	case value == "" && parameter.Required:
		p.add(key, field.Required(at(key), parameter.Missing(key)))
	case value != "" && parameter.Template:
		if _, err := parameter.Read(value); err != nil { // the names may be too long
			p.add(key, field.Required(at(key), fmt.Sprintf("the cluster's default %q %v", value, err)))
		}
	}
	return value
}

// audience returns the audience of one provider's token: from its own
// annotation, the ServiceAccount's audience or the cluster's, in this order. An
// audience of the API server is denied, wherever it comes from.
func (p *serviceAccountParser) audience(d *Provider, values Values) string {
	grammar := func(value string) (string, error) {
		return ParseAudience(value, d.MaxAudienceBytes, p.ReservedAudiences)
	}
	key := Key(d, "audience")
	for _, key := range []string{key, Audience} {
		if _, found := p.annotations[key]; found {
			return p.parse(key, grammar)
		}
	}
	audience := p.clusterValue(d, "audience")
	if audience == "" {
		audience, _ = values.Expand(d.DefaultAudience)
	}
	if _, err := grammar(audience); err != nil {
		p.add(key, field.Required(at(key), fmt.Sprintf("the cluster's default %q %v", audience, err)))
	}
	return audience
}

// denyWithoutIdentity adds an error for each key of the provider, because none asks for an
// identity.
func (p *serviceAccountParser) denyWithoutIdentity(d *Provider) {
	for _, key := range full(d.Keys()) {
		p.denyUseless(key, d.AsksBy())
	}
	p.denyProfiles(d)
}

// denyUseless adds an error for a key that is set without the keys that it needs.
func (p *serviceAccountParser) denyUseless(key, needs string) {
	if value, found := p.annotations[key]; found {
		p.add(key, field.Forbidden(at(key), fmt.Sprintf("has value %q but no effect without %s", shown(value), needs)))
	}
}
