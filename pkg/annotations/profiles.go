// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// anyProfile stands for the name of a profile in the keys that ProfileKeys lists.
const anyProfile = "PROFILE"

// ProfileKeys lists the keys about profiles that a user may set on a ServiceAccount, with
// anyProfile instead of the name.
func (s *Settings) ProfileKeys() []string {
	var keys []string
	for _, d := range s.Providers {
		for _, start := range full(d.ProfileKeys()) {
			keys = append(keys, start+anyProfile)
		}
	}
	return keys
}

// ProfileKey returns the annotation key of a parameter of a profile.
func ProfileKey(d *Provider, parameter, profile string) string {
	return Key(d, parameter) + "." + profile
}

// ProfilesWith lists the names of the profiles that have the parameter, sorted.
func ProfilesWith(d *Provider, parameter string, annotations map[string]string) []string {
	var names []string
	prefix := ProfileKey(d, parameter, "")
	for key := range annotations {
		if name, found := strings.CutPrefix(key, prefix); found {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// denyProfiles reports the profile keys of a ServiceAccount that has no identity of its
// own: a program that selects no profile would be without credentials.
func (p *serviceAccountParser) denyProfiles(d *Provider) {
	if d.Profiles == nil {
		return
	}
	for _, parameter := range []string{d.Profiles.Parameter, d.Profiles.Source} {
		for i, name := range ProfilesWith(d, parameter, p.annotations) {
			if i == maxShownKeys {
				break
			}
			p.denyUseless(ProfileKey(d, parameter, name), Key(d, d.Profiles.Parameter))
		}
	}
}

// profiles reads the profiles of one provider, sorted by name.
func (p *serviceAccountParser) profiles(d *Provider) []Profile {
	if d.Profiles == nil {
		return nil
	}
	names := ProfilesWith(d, d.Profiles.Parameter, p.annotations)
	sources := ProfilesWith(d, d.Profiles.Source, p.annotations)
	all := at(ProfileKey(d, d.Profiles.Parameter, anyProfile))
	if most := max(len(names), len(sources)); most > MaxProfiles {
		p.errs = append(p.errs, field.TooMany(all, most, MaxProfiles))
		return nil
	}
	for _, name := range sources {
		if !slices.Contains(names, name) {
			p.denyUseless(ProfileKey(d, d.Profiles.Source, name), ProfileKey(d, d.Profiles.Parameter, name))
		}
	}
	var profiles []Profile
	size := 0
	for _, name := range names {
		profile := p.profile(d, name, names)
		size += len(ProfileKey(d, d.Profiles.Parameter, name)) + len(profile.Identity)
		if profile.Source != "" {
			size += len(ProfileKey(d, d.Profiles.Source, name)) + len(profile.Source)
		}
		profiles = append(profiles, profile)
	}
	if size > MaxProfilesBytes {
		p.errs = append(p.errs, field.Invalid(all, fmt.Sprintf("%d bytes", size), fmt.Sprintf(
			"all profiles together must have at most %d bytes, keys and values, with short values in their full form", MaxProfilesBytes)))
	}
	return profiles
}

// profile reads one profile. names are the names of all profiles.
func (p *serviceAccountParser) profile(d *Provider, name string, names []string) Profile {
	key := ProfileKey(d, d.Profiles.Parameter, name)
	if err := parseProfileName(name); err != nil {
		p.add(key, field.Forbidden(at(key), fmt.Sprintf("the name of a profile is %q; it %v", shown(name), err)))
	}
	return Profile{Name: name, Identity: p.parameter(key, d, d.Parameter(d.Profiles.Parameter)), Source: p.source(d, name, names)}
}

// source returns the source profile of a profile.
func (p *serviceAccountParser) source(d *Provider, profile string, names []string) string {
	key := ProfileKey(d, d.Profiles.Source, profile)
	source, found := p.annotations[key]
	if !found {
		return ""
	}
	if source != DefaultProfile && !slices.Contains(names, source) {
		known := strings.Join(slices.Concat([]string{DefaultProfile}, names), ", ")
		p.invalid(key, fmt.Errorf("must be a profile of this ServiceAccount: %s", texts.Cut(known, maxListBytes)))
		return ""
	}
	chain := []string{profile}
	for next := source; next != "" && next != DefaultProfile; next = p.annotations[ProfileKey(d, d.Profiles.Source, next)] {
		circle := slices.Contains(chain, next)
		chain = append(chain, next)
		if circle {
			p.invalid(key, fmt.Errorf("must not lead in a circle: %s", texts.Cut(strings.Join(chain, " -> "), maxListBytes)))
			return ""
		}
	}
	return source
}
