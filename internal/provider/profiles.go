// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"regexp"
)

// Profiles are further identities of a ServiceAccount, each with a name by which a
// program selects it. They are in the credential file.
type Profiles struct {
	// Parameter names the parameter that each profile has a value of. The annotation
	// key of the profile's value is the parameter's key, a dot and the profile's name.
	Parameter string
	// Source is the parameter that names the source profile, whose credentials replace
	// the token in the request for the profile. Its annotation key has the form of
	// Parameter's key.
	Source string
	// Selector is the variable by which a container selects a profile.
	Selector string
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
	// MaxProfiles is the most that it may have.
	MaxProfiles = 16
	// MaxProfilesBytes limits their annotations, with short values in their full form,
	// keys and values together.
	MaxProfilesBytes = 4 << 10
)

// profileName matches names that are valid at the end of an annotation key, which may
// have 63 characters, and that every AWS SDK reads as they are.
var profileName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,42}[A-Za-z0-9])?$`)

// ParseProfileName checks the name of a profile.
func ParseProfileName(name string) error {
	switch {
	case name == DefaultProfile:
		return errors.New(`must not be "default", which is the ServiceAccount's own identity`)
	case !profileName.MatchString(name):
		return errors.New(`must be 1 to 44 of a-z, A-Z, 0-9, ".", "_" and "-", with a letter or a digit at both ends`)
	}
	return nil
}
