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

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// ClusterDefault is the value of an annotation that stands for the cluster's
// default.
const ClusterDefault = "default"

// Defaults are the settings of the cluster that apply where an annotation is not
// set.
type Defaults struct {
	// TokenExpirationSeconds is the lifetime if neither pod nor ServiceAccount
	// sets one.
	TokenExpirationSeconds int64
	// Parameters are the values of the providers' parameters and audiences, by the
	// annotation key without the prefix, such as "aws-region". They may have
	// variables, see For.
	Parameters map[string]string
	// AllowedIdentities are the globs for namespaces without a policy of their own.
	// provider.NamespaceVariable stands for the namespace's name. Nil allows everything. See
	// ParseDefaultAllowedIdentities.
	AllowedIdentities []string
	// TokenMountPath is where the token volume is mounted. No copy of a token may be
	// there.
	TokenMountPath string
	// TokenPathPrefixes are the directories below which a copy of a token may be, each
	// with a slash at the end. Nil stands for provider.TokenPathPrefixes.
	TokenPathPrefixes []string
	// ReservedAudiences are the audiences of the API server. No token may have one.
	ReservedAudiences []string
}

// For returns the defaults for one ServiceAccount: with its names in place of
// provider.NamespaceVariable and provider.ServiceAccountVariable.
func (d *Defaults) For(namespace, name string) *Defaults {
	result := *d
	result.Parameters = make(map[string]string, len(d.Parameters))
	for key, value := range d.Parameters {
		result.Parameters[key] = provider.ExpandNames(value, namespace, name)
	}
	return &result
}

// Identity holds the identities of a ServiceAccount, complete and valid. Its annotations
// take precedence over the cluster's defaults.
type Identity struct {
	// Providers has at least one element; sorted by name.
	Providers []provider.Identity
	// TokenExpirationSeconds is the ServiceAccount's own, 0 if it has none.
	TokenExpirationSeconds int64
}

// Principals lists who the ServiceAccount asks to be, at least one name for each
// provider. A namespace's allowed-identities is compared with them.
func (i *Identity) Principals() []string {
	names := make([]string, 0, len(i.Providers))
	for j := range i.Providers {
		names = i.Providers[j].AppendPrincipals(names)
	}
	return names
}

// minExpirationSeconds returns the shortest lifetime that all providers can use.
func (i *Identity) minExpirationSeconds() int64 {
	least := int64(MinTokenExpirationSeconds)
	for j := range i.Providers {
		least = max(least, i.Providers[j].Definition.MinExpirationSeconds)
	}
	return least
}

// ParseServiceAccount reads the annotations of a ServiceAccount, with the defaults
// for it, see Defaults.For. It returns nil and no error if none of Lanyard's keys
// is set. It reports all mistakes at once, unknown keys first. If there are mistakes,
// the identity is nil.
func ParseServiceAccount(keys *Keys, annotations map[string]string, defaults *Defaults) (*Identity, field.ErrorList) {
	p := serviceAccountParser{parser{keys: keys, annotations: annotations}, defaults}
	if unknown := keys.UnknownOnServiceAccount(annotations); len(unknown) > 0 {
		p.denyUnknown(unknown, slices.Concat(keys.ServiceAccount(), keys.Profiles()), "is not an annotation of a ServiceAccount")
	}
	tokens, err := keys.tokens(annotations)
	if err != nil {
		p.invalid(keys.Tokens, err)
	}
	var identity Identity
	asked := keys.Asked(annotations)
	for _, d := range keys.Providers {
		alone := slices.Contains(tokens, d.Name)
		switch {
		case alone && keys.identifies(d, annotations):
			p.invalid(keys.Tokens, fmt.Errorf("must not name %s together with %s", d.Name, keys.Identity(d)))
		case slices.Contains(asked, d):
			identity.Providers = append(identity.Providers, p.identity(d, alone))
		case !d.Plain():
			p.denyWithoutIdentity(d)
		}
	}
	p.checkCopies(identity.Providers)
	identity.TokenExpirationSeconds = p.expiration(identity.minExpirationSeconds())
	p.parse(keys.Audience, func(v string) (string, error) {
		return ParseAudience(v, keys.MaxAudienceBytes(), defaults.ReservedAudiences)
	})
	if len(identity.Providers) == 0 {
		if len(p.errs) == 0 {
			p.denyUseless(keys.TokenExpirationSeconds, "an identity")
		}
		return nil, p.errs
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return &identity, nil
}

type serviceAccountParser struct {
	parser
	defaults *Defaults
}

// identity reads the ServiceAccount's identity of one provider. With tokenAlone, the
// identity is incomplete, and the program may bring everything else as well.
func (p *serviceAccountParser) identity(d *provider.Definition, tokenAlone bool) provider.Identity {
	identity := provider.Identity{Definition: d, Values: provider.Values{}, TokenAlone: tokenAlone}
	for _, parameter := range d.Parameters {
		if tokenAlone && parameter.Identity {
			continue
		}
		parameter.Required = parameter.Required && !tokenAlone
		if value := p.parameter(p.keys.Parameter(d, parameter.Name), d, &parameter); value != "" {
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
func (p *serviceAccountParser) checkCopies(identities []provider.Identity) {
	mounted := map[string]string{} // the mount's content, by the directory
	if p.defaults.TokenMountPath != "" {
		mounted[p.defaults.TokenMountPath] = "the tokens of Lanyard"
	}
	for i := range identities {
		file := identities[i].CopyPath()
		if file == "" {
			continue
		}
		key, dir := p.keys.Parameter(identities[i].Definition, provider.TokenPathParameter), path.Dir(file)
		if err := provider.CheckTokenPath(file, p.defaults.TokenPathPrefixes); err != nil {
			p.invalid(key, err)
		}
		for _, other := range slices.Sorted(maps.Keys(mounted)) {
			if provider.PathsOverlap(dir, other) {
				p.invalid(key, fmt.Errorf("must not be in a directory at, above or below %s, where %s are", other, mounted[other]))
				break
			}
		}
		mounted[dir] = "those of " + key
	}
}

// parameter returns the value of a parameter: the value of the annotation at key, or the
// cluster's.
func (p *serviceAccountParser) parameter(key string, d *provider.Definition, parameter *provider.Parameter) string {
	value, found := p.annotations[key]
	cluster := p.defaults.Parameters[d.Key(parameter.Name)]
	if found && !parameter.ClusterOnly && !(value == ClusterDefault && parameter.HasDefault(cluster)) {
		return p.parse(key, func(value string) (string, error) {
			if parameter.Expand != nil {
				value = parameter.Expand(value, func(name string) string { return p.defaults.Parameters[d.Key(name)] })
			}
			return parameter.Read(value)
		})
	}
	value = cmp.Or(cluster, parameter.Default)
	switch {
	case value == "" && parameter.Required:
		p.errs = append(p.errs, field.Required(at(key), parameter.Missing()))
	case value != "" && parameter.Template:
		if _, err := parameter.Read(value); err != nil { // the names may be too long
			p.errs = append(p.errs, field.Required(at(key), fmt.Sprintf("the cluster's default %q %v", value, err)))
		}
	}
	return value
}

// audience returns the audience of one provider's token: from its own
// annotation, the ServiceAccount's audience or the cluster's, in this order. An
// audience of the API server is denied, whichever of them has it.
func (p *serviceAccountParser) audience(d *provider.Definition, values provider.Values) string {
	grammar := func(value string) (string, error) {
		return ParseAudience(value, d.MaxAudienceBytes, p.defaults.ReservedAudiences)
	}
	key := p.keys.Parameter(d, "audience")
	for _, key := range []string{key, p.keys.Audience} {
		if _, found := p.annotations[key]; found {
			return p.parse(key, grammar)
		}
	}
	audience := p.defaults.Parameters[d.Key("audience")]
	if audience == "" {
		audience, _ = values.Expand(d.DefaultAudience)
	}
	if _, err := grammar(audience); err != nil {
		p.errs = append(p.errs, field.Required(at(key), fmt.Sprintf("the cluster's default %q %v", audience, err)))
	}
	return audience
}

// denyWithoutIdentity reports the provider's keys that have no effect, because
// none of them asks for an identity.
func (p *serviceAccountParser) denyWithoutIdentity(d *provider.Definition) {
	for _, key := range p.keys.full(d.Keys()) {
		if _, found := p.annotations[key]; found {
			p.denyUseless(key, p.keys.Identity(d))
		}
	}
	p.denyProfiles(d)
}

// denyUseless reports a key that is set without the keys that it needs.
func (p *serviceAccountParser) denyUseless(key, needs string) {
	if value, found := p.annotations[key]; found {
		p.errs = append(p.errs, field.Forbidden(at(key), fmt.Sprintf("has value %q but no effect without %s", shown(value), needs)))
	}
}
