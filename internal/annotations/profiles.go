// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// anyProfile stands for the name of a profile in the keys that Profiles lists.
const anyProfile = "PROFILE"

// Profiles lists the keys about profiles that a user may set on a ServiceAccount, with
// anyProfile in place of the name.
func (k *Keys) Profiles() []string {
	var keys []string
	for _, d := range k.Providers {
		for _, start := range k.full(d.ProfileKeys()) {
			keys = append(keys, start+anyProfile)
		}
	}
	return keys
}

// Profile returns the annotation key of a parameter of a profile.
func (k *Keys) Profile(d *provider.Definition, parameter, profile string) string {
	return k.Parameter(d, parameter) + "." + profile
}

// ProfilesWith lists the names of the profiles that have the parameter, sorted.
func (k *Keys) ProfilesWith(d *provider.Definition, parameter string, annotations map[string]string) []string {
	var names []string
	prefix := k.Profile(d, parameter, "")
	for key := range annotations {
		if name, found := strings.CutPrefix(key, prefix); found {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// denyProfiles reports the keys of profiles of a ServiceAccount without an identity of
// its own: a program that selects no profile would be without credentials.
func (p *serviceAccountParser) denyProfiles(d *provider.Definition) {
	if d.Profiles == nil {
		return
	}
	for _, parameter := range []string{d.Profiles.Parameter, d.Profiles.Source} {
		for i, name := range p.keys.ProfilesWith(d, parameter, p.annotations) {
			if i == maxShownKeys {
				break
			}
			p.denyUseless(p.keys.Profile(d, parameter, name), p.keys.Parameter(d, d.Profiles.Parameter))
		}
	}
}

// profiles reads the profiles of one provider, sorted by name.
func (p *serviceAccountParser) profiles(d *provider.Definition) []provider.Profile {
	if d.Profiles == nil {
		return nil
	}
	names := p.keys.ProfilesWith(d, d.Profiles.Parameter, p.annotations)
	sources := p.keys.ProfilesWith(d, d.Profiles.Source, p.annotations)
	all := at(p.keys.Profile(d, d.Profiles.Parameter, anyProfile))
	if most := max(len(names), len(sources)); most > provider.MaxProfiles {
		p.errs = append(p.errs, field.TooMany(all, most, provider.MaxProfiles))
		return nil
	}
	for _, name := range sources {
		if !slices.Contains(names, name) {
			p.denyUseless(p.keys.Profile(d, d.Profiles.Source, name), p.keys.Profile(d, d.Profiles.Parameter, name))
		}
	}
	var profiles []provider.Profile
	size := 0
	for _, name := range names {
		profile := p.profile(d, name, names)
		size += len(p.keys.Profile(d, d.Profiles.Parameter, name)) + len(profile.Identity)
		if profile.Source != "" {
			size += len(p.keys.Profile(d, d.Profiles.Source, name)) + len(profile.Source)
		}
		profiles = append(profiles, profile)
	}
	if size > provider.MaxProfilesBytes {
		p.errs = append(p.errs, field.Invalid(all, fmt.Sprintf("%d bytes", size), fmt.Sprintf(
			"all profiles together must have at most %d bytes, keys and values, with short values in their full form", provider.MaxProfilesBytes)))
	}
	return profiles
}

// profile reads one profile. names are the names of all profiles.
func (p *serviceAccountParser) profile(d *provider.Definition, name string, names []string) provider.Profile {
	key := p.keys.Profile(d, d.Profiles.Parameter, name)
	if err := provider.ParseProfileName(name); err != nil {
		p.errs = append(p.errs, field.Forbidden(at(key), fmt.Sprintf("the name of a profile is %q; it %v", shown(name), err)))
	}
	i := slices.IndexFunc(d.Parameters, func(parameter provider.Parameter) bool { return parameter.Name == d.Profiles.Parameter })
	return provider.Profile{Name: name, Identity: p.parameter(key, d, &d.Parameters[i]), Source: p.source(d, name, names)}
}

// source reads the name of the profile whose credentials a profile is asked for with.
func (p *serviceAccountParser) source(d *provider.Definition, profile string, names []string) string {
	key := p.keys.Profile(d, d.Profiles.Source, profile)
	source, found := p.annotations[key]
	if !found {
		return ""
	}
	if source != provider.DefaultProfile && !slices.Contains(names, source) {
		known := strings.Join(slices.Concat([]string{provider.DefaultProfile}, names), ", ")
		p.invalid(key, fmt.Errorf("must be a profile of this ServiceAccount: %s", texts.Cut(known, maxListBytes)))
		return ""
	}
	chain := []string{profile}
	for next := source; next != "" && next != provider.DefaultProfile; next = p.annotations[p.keys.Profile(d, d.Profiles.Source, next)] {
		circle := slices.Contains(chain, next)
		chain = append(chain, next)
		if circle {
			p.invalid(key, fmt.Errorf("must not lead in a circle: %s", texts.Cut(strings.Join(chain, " -> "), maxListBytes)))
			return ""
		}
	}
	return source
}
