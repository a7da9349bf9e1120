// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"fmt"
	"regexp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// An operator validates the annotations of a ServiceAccount before it writes them. Its
// provider has one parameter, a role name in lower-case letters.
func Example() {
	settings, err := annotations.NewSettings([]*annotations.Provider{{
		Name: "example", DefaultAudience: "example.com", MaxAudienceBytes: 256, TokenPath: "example/token",
		PrincipalParameters: []string{"role"},
		Parameters: []annotations.Parameter{{
			Name: "role", Identity: true, Required: true, MaxBytes: 63,
			Grammar: annotations.Matching(regexp.MustCompile(`^[a-z]+$`), "must be the name of a role, such as app"),
		}},
	}})
	if err != nil {
		panic(err)
	}
	settings.ReservedAudiences = append(annotations.CommonAPIServerAudiences(), "https://issuer.example.com")

	const key = annotations.Prefix + "example-role"
	account, _ := settings.ParseServiceAccount("team", "app", map[string]string{key: "app"})
	for _, identity := range account.Identities {
		fmt.Println(identity.Provider.Name, identity.Principal(), identity.Audience)
	}
	_, mistakes := settings.ParseServiceAccount("team", "app", map[string]string{key: "App"})
	for _, mistake := range mistakes {
		fmt.Println(mistake)
	}
	// Output:
	// example app example.com
	// metadata.annotations[lanyard.dev/example-role]: Invalid value: "App": must be the name of a role, such as app
}
