// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	roleARN  = "arn:aws:iam::111122223333:role/logs"
	clientID = "01234567-89ab-cdef-0123-456789abcdef"
	tenantID = "fedcba98-7654-3210-fedc-ba9876543210"
	email    = "reader@my-project.iam.gserviceaccount.com"

	providerName = "projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-k8s"
)

// messages returns the errors as users read them.
func messages(errs field.ErrorList) []string {
	var messages []string
	for _, err := range errs {
		messages = append(messages, err.Error())
	}
	return messages
}

// prefixed adds the prefix to short keys.
func prefixed(short map[string]string) map[string]string {
	full := map[string]string{}
	for key, value := range short {
		full["lanyard.dev/"+key] = value
	}
	return full
}

// clusterSettings are the settings of a cluster with every default.
func clusterSettings(tb testing.TB) *annotations.Settings {
	tb.Helper()
	s := settingsWith(tb,
		"aws-region", "eu-west-1",
		"azure-tenant-id", "contoso.onmicrosoft.com",
		"azure-authority-host", "https://login.microsoftonline.us/",
		"gcp-workload-identity-provider", providerName,
		"aws-audience", "aws.cluster",
		"azure-audience", "azure.cluster",
		"gcp-audience", "gcp.cluster",
	)
	s.ReservedAudiences = []string{"https://kubernetes.default.svc"}
	return s
}

// newIdentity returns an identity with the values, which are given as a name and
// a value each.
func newIdentity(name, audience string, values ...string) annotations.Identity {
	i := slices.IndexFunc(provider.Builtin(), func(d *annotations.Provider) bool { return d.Name == name })
	identity := annotations.Identity{Provider: provider.Builtin()[i], Audience: audience, Values: annotations.Values{}}
	for pair := range slices.Chunk(values, 2) {
		identity.Values[pair[0]] = pair[1]
	}
	return identity
}

// settingsWith returns settings with the parameters, which are given as a key and a value
// each.
func settingsWith(tb testing.TB, parameters ...string) *annotations.Settings {
	tb.Helper()
	s := newSettings(tb)
	s.TokenExpirationSeconds, s.Parameters = 3600, map[string]string{}
	for pair := range slices.Chunk(parameters, 2) {
		s.Parameters[pair[0]] = pair[1]
	}
	return s
}

func TestParseServiceAccount(t *testing.T) {
	t.Parallel()
	parse := func(t *testing.T, c *serviceAccountCase) {
		given := expanded("lanyard.dev/", c.Annotations)
		given["example.com/aws-role-arn"] = "not Lanyard's"
		before := maps.Clone(given)
		s := settingsWith(t)
		s.Parameters = expanded("", c.Defaults)
		if c.FullCluster {
			s = clusterSettings(t)
		}
		account, errs := s.ParseServiceAccount("team", "loki", given)
		c.result(account, messages(errs))
		if diff := cmp.Diff(before, given); diff != "" {
			t.Errorf("the annotations were changed (-before +after):\n%s", diff)
		}
	}
	check(t, "serviceaccount-accepted.yaml", func(t *testing.T, c *serviceAccountCase) {
		if parse(t, c); len(c.Errors) > 0 {
			t.Errorf("got %q, want no error", c.Errors)
		}
	})
	check(t, "serviceaccount-denied.yaml", func(t *testing.T, c *serviceAccountCase) {
		if parse(t, c); len(c.Errors) == 0 || len(c.Identities) > 0 {
			t.Errorf("got %q and the identities %v, want errors only", c.Errors, c.Identities)
		}
	})
}

// The API server's audiences are denied wherever they come from, including defaults.
func TestParseServiceAccountDeniesAReservedAudienceByDefault(t *testing.T) {
	t.Parallel()
	const reserved = "https://kubernetes.default.svc"
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		settings    annotations.Settings
	}{
		"the cluster's audience for AWS": {
			map[string]string{"aws-role-arn": roleARN},
			annotations.Settings{Parameters: map[string]string{"aws-audience": reserved}, ReservedAudiences: []string{reserved}},
		},
		"the cluster's audience for Azure": {
			map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID},
			annotations.Settings{Parameters: map[string]string{"azure-audience": reserved}, ReservedAudiences: []string{reserved}},
		},
		"the cluster's audience for Google": {
			map[string]string{"gcp-workload-identity-provider": providerName},
			annotations.Settings{Parameters: map[string]string{"gcp-audience": reserved}, ReservedAudiences: []string{reserved}},
		},
		"AWS's own audience, in a cluster whose API server has it too": {
			map[string]string{"aws-role-arn": roleARN},
			annotations.Settings{ReservedAudiences: []string{"sts.amazonaws.com"}},
		},
		"the provider's name, in a cluster whose API server has it too": {
			map[string]string{"gcp-workload-identity-provider": providerName},
			annotations.Settings{ReservedAudiences: []string{"https://iam.googleapis.com/" + providerName}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.settings.Providers = newSettings(t).Providers
			account, errs := tt.settings.ParseServiceAccount("team", "loki", prefixed(tt.annotations))
			if account != nil || len(errs) != 1 || !strings.Contains(errs[0].Detail, "is an audience of the Kubernetes API server") {
				t.Errorf("got %+v and %v, want an error that names the API server", account, errs)
			}
		})
	}
}

func TestPrincipals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		identities []annotations.Identity
		want       []string
	}{
		"only one provider": {[]annotations.Identity{newIdentity("aws", "x", "role-arn", roleARN)}, []string{roleARN}},
		"several, in their order": {
			[]annotations.Identity{
				newIdentity("aws", "x", "role-arn", roleARN), newIdentity("azure", "x", "client-id", clientID),
				newIdentity("gcp", "x", "service-account", email), newIdentity("token", "vault"),
			},
			[]string{roleARN, clientID, email, "vault"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := annotations.ServiceAccount{Identities: tt.identities}
			if diff := cmp.Diff(tt.want, account.Principals()); diff != "" {
				t.Errorf("principals (-want +got):\n%s", diff)
			}
		})
	}
}

// Administrators write a policy in their own spelling. Each spelling that an
// annotation accepts must match it.
func TestPolicyAllowsAnIdentityInEverySpelling(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		allowed     string
	}{
		"a client ID in capital letters on the ServiceAccount": {map[string]string{"azure-client-id": strings.ToUpper(clientID)}, clientID},
		"a client ID in capital letters in the policy":         {map[string]string{"azure-client-id": clientID}, strings.ToUpper(clientID)},
		"a provider's full name on the ServiceAccount": {
			map[string]string{"gcp-workload-identity-provider": "//iam.googleapis.com/" + providerName}, providerName,
		},
		"the word default on the ServiceAccount": {map[string]string{"gcp-workload-identity-provider": "default"}, providerName},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := clusterSettings(t)
			account, errs := s.ParseServiceAccount("team", "loki", prefixed(tt.annotations))
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			policy, errs := s.ParseNamespace("team", prefixed(map[string]string{"allowed-identities": tt.allowed}))
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if denied, found := policy.Denied(account.Principals()); found {
				t.Errorf("%s is denied by %q", denied, tt.allowed)
			}
		})
	}
}

func TestDefaultStandsForTheDefaultOfTheCluster(t *testing.T) {
	t.Parallel()
	s := clusterSettings(t)
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		want        string            // in the error, if any
	}{
		"an identity with a cluster's default": {annotations: map[string]string{"gcp-workload-identity-provider": "default"}},
		"an identity without a flag":           {map[string]string{"azure-client-id": "default"}, "must be a client ID"},
		"another identity without a flag":      {map[string]string{"gcp-service-account": "default"}, "must be the e-mail"},
		"a parameter that may be left out":     {map[string]string{"aws-role-arn": roleARN, "aws-region": "default"}, "must be an AWS region"},
		"another spelling":                     {map[string]string{"gcp-workload-identity-provider": "Default"}, "must be projects/NUMBER"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account, errs := s.ParseServiceAccount("team", "loki", prefixed(tt.annotations))
			if tt.want == "" {
				if len(errs) > 0 || account.Identities[0].Values["workload-identity-provider"] != providerName {
					t.Errorf("got %+v and %v, want the cluster's default", account, errs)
				}
				return
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Detail, tt.want) {
				t.Errorf("got %v, want one error with %q", errs, tt.want)
			}
		})
	}
}

func TestAValueOverMaxBytesIsDenied(t *testing.T) {
	t.Parallel()
	s := clusterSettings(t)
	valid, _ := longestServiceAccount(t, s)
	for _, d := range s.Providers {
		for i := range d.Parameters {
			p, key := &d.Parameters[i], annotations.Key(d, d.Parameters[i].Name)
			if p.ClusterOnly {
				continue
			}
			t.Run(key, func(t *testing.T) {
				t.Parallel()
				given := maps.Clone(valid)
				if d.Plain() {
					given = map[string]string{annotations.Audience: "openshift"}
				}
				given[key] = strings.Repeat("a", p.MaxBytes+1)
				account, errs := s.ParseServiceAccount("team", "loki", given)
				want := field.Invalid(field.NewPath("metadata", "annotations").Key(key), "", fmt.Sprintf("must have at most %d bytes", p.MaxBytes))
				if account != nil || len(errs) != 1 || errs[0].Field != want.Field || errs[0].Detail != want.Detail {
					t.Errorf("got %+v and %v, want the error %v", account, errs, want)
				}
			})
		}
	}
}

// The parser does not know the keys of parameters that only the cluster sets.
func TestASettingOfTheClusterIsNotAnAnnotation(t *testing.T) {
	t.Parallel()
	s := clusterSettings(t)
	found := false
	for _, d := range s.Providers {
		for i := range d.Parameters {
			if !d.Parameters[i].ClusterOnly {
				continue
			}
			found = true
			key := annotations.Key(d, d.Parameters[i].Name)
			given := map[string]string{annotations.Audience: "x", key: "https://login.example.com/"}
			if account, errs := s.ParseServiceAccount("team", "loki", given); account != nil || len(errs) != 1 || errs[0].Type != field.ErrorTypeForbidden {
				t.Errorf("%s: got %+v and %v, want one error", key, account, errs)
			}
		}
	}
	if !found {
		t.Error("no parameter is only the cluster's, so this test is not needed")
	}
}

func TestMessagesAreShort(t *testing.T) {
	t.Parallel()
	given := map[string]string{"lanyard.dev/aws-role-arn": strings.Repeat("a", 100_000)}
	for i := range 1000 {
		given[fmt.Sprintf("lanyard.dev/unknown-%d", i)] = strings.Repeat("b", 200)
	}
	_, errs := clusterSettings(t).ParseServiceAccount("team", "loki", given)
	if size := len(errs.ToAggregate().Error()); len(errs) > 10 || size > 8192 {
		t.Errorf("got %d errors of %d bytes, want at most 10 of 8192", len(errs), size)
	}
}
