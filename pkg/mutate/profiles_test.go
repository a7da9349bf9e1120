// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// configFile is the path of the file with the profiles.
const configFile = "/lanyard/aws/config"

// withProfiles returns the injection of AWS with a profile.
func withProfiles() *provider.Injection {
	return provider.NewInjection([]annotations.Identity{{
		Provider: provider.Builtin()[0], Audience: "aud",
		Values:   annotations.Values{"role-arn": "arn:aws:iam::111122223333:role/r", "region": "eu-central-1"},
		Profiles: []annotations.Profile{{Name: "audit", Identity: "arn:aws:iam::111122223333:role/audit"}},
	}}, &provider.Subject{Namespace: "ns", ServiceAccount: "sa", MountPath: mountPath, TokenExpirationSeconds: 3600})
}

// withoutAWS returns the variables that a container gets of withProfiles, except these.
func withoutAWS(names ...string) []variableSpec {
	all := append(slices.Clone(variables["aws"]), variableSpec{Name: "AWS_CONFIG_FILE", Value: configFile})
	return slices.DeleteFunc(all, func(v variableSpec) bool { return slices.Contains(names, v.Name) })
}

// The variables of the ServiceAccount's own role, which some SDKs prefer to a profile.
var direct = []string{"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_SESSION_NAME"}

func TestAContainerChoosesItsProfile(t *testing.T) {
	t.Parallel()
	but := func(more ...string) []variableSpec { return withoutAWS(slices.Concat(direct, more)...) }
	shadowed := func(name string) []string {
		return []string{`environment_shadowed: container "main": it sets ` + name + `, which SDKs may prefer to the injected aws identity`}
	}
	const taken = `environment_taken: container "main": it sets AWS_WEB_IDENTITY_TOKEN_FILE itself and keeps its own aws credentials`
	for sentence, test := range map[string]struct {
		env   string
		added []variableSpec
		finds []string
	}{
		"a container that selects none has the own role and the profiles":  {``, withoutAWS(), nil},
		"a container that selects a profile has nothing that is preferred": {set("AWS_PROFILE", "audit"), but(), nil},
		"a profile, and no role of its own":                                {set("AWS_PROFILE", "audit") + "," + set("AWS_ROLE_ARN", ""), but(), nil},
		"the name of a profile from a ConfigMap":                           {from("AWS_PROFILE"), but(), nil},
		"an empty name selects none, with the usual warning":               {set("AWS_PROFILE", ""), withoutAWS(), shadowed("AWS_PROFILE")},
		"the last of two names is empty":                                   {set("AWS_PROFILE", "audit") + "," + set("AWS_PROFILE", ""), withoutAWS(), shadowed("AWS_PROFILE")},
		"Lanyard's own file with a profile":                                {set("AWS_PROFILE", "audit") + "," + set("AWS_CONFIG_FILE", configFile), but("AWS_CONFIG_FILE"), nil},
		"a file of its own stays":                                          {set("AWS_CONFIG_FILE", own), withoutAWS("AWS_CONFIG_FILE"), shadowed("AWS_CONFIG_FILE")},
		"a profile of a file of its own is not Lanyard's":                  {set("AWS_PROFILE", own) + "," + set("AWS_CONFIG_FILE", own), withoutAWS("AWS_CONFIG_FILE"), shadowed("AWS_PROFILE, AWS_CONFIG_FILE")},
		"a profile of a file from a Secret is not Lanyard's":               {set("AWS_PROFILE", own) + "," + from("AWS_CONFIG_FILE"), withoutAWS("AWS_CONFIG_FILE"), shadowed("AWS_PROFILE, AWS_CONFIG_FILE")},
		"a role of its own, which the file would override in some SDKs":    {set("AWS_ROLE_ARN", own), withoutAWS("AWS_ROLE_ARN", "AWS_CONFIG_FILE"), nil},
		"a session name of its own, which the file would override":         {set("AWS_ROLE_SESSION_NAME", own), withoutAWS("AWS_ROLE_SESSION_NAME", "AWS_CONFIG_FILE"), nil},
		"Lanyard's role is not its own":                                    {set("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/r"), withoutAWS("AWS_ROLE_ARN"), nil},
		"a role of its own and a profile":                                  {set("AWS_ROLE_ARN", own) + "," + set("AWS_PROFILE", "audit"), but(), nil},
		"a token file of its own is its own identity, profile or not":      {set("AWS_WEB_IDENTITY_TOKEN_FILE", own) + "," + set("AWS_PROFILE", "audit"), nil, []string{taken}},
		"static keys shadow a profile as well":                             {set("AWS_ACCESS_KEY_ID", own) + "," + set("AWS_PROFILE", "audit"), but(), shadowed("AWS_ACCESS_KEY_ID")},
		"a credentials file of its own is a warning, as without profiles":  {set("AWS_SHARED_CREDENTIALS_FILE", own), withoutAWS(), shadowed("AWS_SHARED_CREDENTIALS_FILE")},
		"a region of its own stays":                                        {set("AWS_REGION", own) + "," + set("AWS_PROFILE", "audit"), but("AWS_REGION", "AWS_DEFAULT_REGION"), nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"containers":[{"name":"main","env":[` + test.env + `]}]}}`
			patched, result := createTwice(t, pod, withProfiles())
			before, after := decode(t, pod).Spec.Containers[0], decode(t, patched).Spec.Containers[0]
			if diff := cmp.Diff(slices.Concat(before.Env, test.added), after.Env); diff != "" {
				t.Errorf("env (-want +got):\n%s", diff)
			}
			checkFindings(t, test.finds, result.Findings)
		})
	}
}
