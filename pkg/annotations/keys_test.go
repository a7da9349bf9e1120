// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func newKeys(tb testing.TB) *annotations.Keys {
	tb.Helper()
	keys, err := annotations.NewKeys(annotations.DefaultPrefix)
	if err != nil {
		tb.Fatal(err)
	}
	return &keys
}

func TestNewKeysMakesThePublicKeys(t *testing.T) {
	t.Parallel()
	want := annotations.Keys{
		Prefix:                      "lanyard.dev/",
		AWSRoleARN:                  "lanyard.dev/aws-role-arn",
		AWSRegion:                   "lanyard.dev/aws-region",
		AzureClientID:               "lanyard.dev/azure-client-id",
		AzureTenantID:               "lanyard.dev/azure-tenant-id",
		GCPWorkloadIdentityProvider: "lanyard.dev/gcp-workload-identity-provider",
		GCPServiceAccount:           "lanyard.dev/gcp-service-account",
		GCPProject:                  "lanyard.dev/gcp-project",
		Audience:                    "lanyard.dev/audience",
		AWSAudience:                 "lanyard.dev/aws-audience",
		AzureAudience:               "lanyard.dev/azure-audience",
		GCPAudience:                 "lanyard.dev/gcp-audience",
		TokenExpirationSeconds:      "lanyard.dev/token-expiration-seconds",
		Inject:                      "lanyard.dev/inject",
		Containers:                  "lanyard.dev/containers",
		SkipContainers:              "lanyard.dev/skip-containers",
		Injected:                    "lanyard.dev/injected",
		IdentityHash:                "lanyard.dev/identity-hash",
		GCPCredentials:              "lanyard.dev/gcp-credentials",
		AllowedIdentities:           "lanyard.dev/allowed-identities",
		IdentityLabel:               "lanyard.dev/identity",
		Probe:                       "lanyard.dev/probe",
	}
	if diff := cmp.Diff(want, *newKeys(t)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestNewKeysPutsThePrefixBeforeEveryKey(t *testing.T) {
	t.Parallel()
	keys, err := annotations.NewKeys("identity.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	other := reflect.ValueOf(keys)
	usual := reflect.ValueOf(*newKeys(t))
	for i := range other.NumField() {
		got := strings.Replace(other.Field(i).String(), "identity.example.com/", annotations.DefaultPrefix, 1)
		if want := usual.Field(i).String(); got != want {
			t.Errorf("%s: got %q, want the prefix and the name in %q", other.Type().Field(i).Name, other.Field(i), want)
		}
	}
}

func TestNewKeysHoldsThePrefixToItsGrammar(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a.", 126) + "a" // 253 characters
	tests := map[string]struct {
		prefix string
		valid  bool
	}{
		"a domain and a slash":                          {"lanyard.dev/", true},
		"a single label":                                {"lanyard/", true},
		"a domain of 253 characters":                    {longest + "/", true},
		"a domain of 254 characters is too long":        {"a" + longest + "/", false},
		"nothing at all":                                {"", false},
		"a slash alone":                                 {"/", false},
		"no slash at the end":                           {"lanyard.dev", false},
		"two slashes at the end":                        {"lanyard.dev//", false},
		"a slash in the middle":                         {"lanyard.dev/x/", false},
		"a capital letter":                              {"Lanyard.dev/", false},
		"an underscore":                                 {"lanyard_dev/", false},
		"an empty label":                                {"lanyard..dev/", false},
		"a space":                                       {"lanyard.dev /", false},
		"a line break after the slash":                  {"lanyard.dev/\n", false},
		"a character that JSON pointers have to escape": {"lanyard~dev/", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := annotations.NewKeys(tt.prefix)
			if got := err == nil; got != tt.valid {
				t.Errorf("NewKeys(%q): got error %v, want valid %t", tt.prefix, err, tt.valid)
			}
			if err != nil && keys != (annotations.Keys{}) {
				t.Errorf("NewKeys(%q): got keys beside the error", tt.prefix)
			}
		})
	}
}

func TestNewKeysSaysWhatAPrefixIs(t *testing.T) {
	t.Parallel()
	_, err := annotations.NewKeys("lanyard.dev")
	if err == nil {
		t.Fatal("got no error")
	}
	want := `annotation prefix: got "lanyard.dev", want a DNS subdomain followed by a slash, such as "lanyard.dev/"`
	if got := err.Error(); got != want {
		t.Errorf("message:\n got %s\nwant %s", got, want)
	}
}

func TestAskForIdentity(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"no annotations at all ask for nothing":           {nil, false},
		"an AWS role asks":                                {map[string]string{"lanyard.dev/aws-role-arn": "x"}, true},
		"an Azure client asks":                            {map[string]string{"lanyard.dev/azure-client-id": "x"}, true},
		"a Google provider asks":                          {map[string]string{"lanyard.dev/gcp-workload-identity-provider": "x"}, true},
		"a Google service account asks":                   {map[string]string{"lanyard.dev/gcp-service-account": "x"}, true},
		"an audience asks":                                {map[string]string{"lanyard.dev/audience": "x"}, true},
		"an empty value asks as well, if wrongly":         {map[string]string{"lanyard.dev/aws-role-arn": ""}, true},
		"a region only says more about a role":            {map[string]string{"lanyard.dev/aws-region": "x"}, false},
		"a tenant only says more about a client":          {map[string]string{"lanyard.dev/azure-tenant-id": "x"}, false},
		"a project only says more about a Google account": {map[string]string{"lanyard.dev/gcp-project": "x"}, false},
		"an AWS audience only says more about a role":     {map[string]string{"lanyard.dev/aws-audience": "x"}, false},
		"an Azure audience only says more about a client": {map[string]string{"lanyard.dev/azure-audience": "x"}, false},
		"a Google audience only says more":                {map[string]string{"lanyard.dev/gcp-audience": "x"}, false},
		"a lifetime only says more about tokens":          {map[string]string{"lanyard.dev/token-expiration-seconds": "3600"}, false},
		"another domain's key is not looked at":           {map[string]string{"example.com/aws-role-arn": "x"}, false},
		"a key without the domain is not looked at":       {map[string]string{"aws-role-arn": "x"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := newKeys(t).AskForIdentity(tt.annotations); got != tt.want {
				t.Errorf("AskForIdentity(%v) = %t, want %t", tt.annotations, got, tt.want)
			}
		})
	}
}
