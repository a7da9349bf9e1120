// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// want returns the contents of testdata/trust.yaml.
func want() trust.Trust {
	const (
		host     = "oidc.example.test/cluster"
		provider = "arn:aws:iam::123456789012:oidc-provider/" + host
		pool     = "projects/123456789/locations/global/workloadIdentityPools/pool"
	)
	return trust.Trust{
		AWS: trust.AWS{
			OpenIDConnectProviders: []trust.OpenIDConnectProvider{{ARN: provider, URL: host, ClientIDList: []string{"sts.amazonaws.com"}}},
			Roles: []trust.Role{{ARN: "arn:aws:iam::123456789012:role/reader", MaxSessionDuration: 7200, AssumeRolePolicyDocument: trust.Policy{
				Version: "2012-10-17",
				Statement: []trust.Statement{
					{
						Sid: "Cart", Effect: "Allow", Principal: trust.Principal{Federated: trust.Strings{provider}},
						Action: trust.Strings{"sts:AssumeRoleWithWebIdentity"},
						Condition: map[string]map[string]trust.Strings{
							"StringEquals": {host + ":aud": {"sts.amazonaws.com"}},
							"StringLike":   {host + ":sub": {"system:serviceaccount:shop:*", "system:serviceaccount:till:cart"}},
						},
					},
					{Effect: "Deny", Principal: trust.Principal{Federated: trust.Strings{provider}}, Action: trust.Strings{"sts:TagSession", "sts:AssumeRole"}},
				},
			}}},
		},
		Entra: trust.Entra{Tenants: []trust.Tenant{{TenantID: "11111111-2222-4333-8444-555555555555", Applications: []trust.Application{{
			AppID: "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee",
			FederatedIdentityCredentials: []trust.FederatedIdentityCredential{{
				Name: "cart", Issuer: "https://" + host, Subject: "system:serviceaccount:shop:cart", Audiences: []string{"api://AzureADTokenExchange"}}},
			PasswordCredentials: []trust.PasswordCredential{{SecretText: "s3cret"}},
		}}}}},
		Google: trust.Google{
			WorkloadIdentityPoolProviders: []trust.WorkloadIdentityPoolProvider{{
				Name: pool + "/providers/cluster", OIDC: trust.OIDC{IssuerURI: "https://" + host, AllowedAudiences: []string{"openshift"}},
				AttributeMapping: map[string]string{"google.subject": "assertion.sub"}}},
			ServiceAccounts: []trust.ServiceAccount{{Email: "cart@proj.iam.gserviceaccount.com", Policy: trust.IAMPolicy{Bindings: []trust.Binding{{
				Role: "roles/iam.workloadIdentityUser", Members: []string{"principal://iam.googleapis.com/" + pool + "/subject/system:serviceaccount:shop:cart"}}}}}},
		},
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/trust.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := trust.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want(), got); diff != "" {
		t.Errorf("trust (-want +got):\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]trust.Trust{"a whole file": want(), "an empty file": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := yaml.Marshal(written)
			if err != nil {
				t.Fatal(err)
			}
			read, err := trust.Parse(file)
			if err != nil {
				t.Fatalf("%v:\n%s", err, file)
			}
			if diff := cmp.Diff(written, read); diff != "" {
				t.Errorf("trust (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRejectsUnknownFields(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ file, want string }{
		"invalid YAML":                          {"{", "trust file"},
		"an unknown cloud":                      {"oracle: {}", "oracle"},
		"an unknown field of a provider":        {"aws: {openIDConnectProviders: [{thumbprintList: []}]}", "thumbprintList"},
		"an unknown field of a role":            {"aws: {roles: [{arn: the-role, path: /}]}", `role "the-role": json: unknown field "path"`},
		"an unknown field of a trust policy":    {"aws: {roles: [{arn: the-role, assumeRolePolicyDocument: {Statements: []}}]}", `role "the-role": trust policy: json: unknown field "Statements"`},
		"an unknown field of a statement":       {"aws: {roles: [{arn: the-role, assumeRolePolicyDocument: {Statement: [{}, {NotAction: x}]}}]}", `role "the-role": trust policy: statement 1: json: unknown field "NotAction"`},
		"an unknown field of a principal":       {"aws: {roles: [{arn: the-role, assumeRolePolicyDocument: {Statement: [{Principal: {Service: x}}]}}]}", `statement 0: json: unknown field "Service"`},
		"an action that is a map":               {"aws: {roles: [{arn: the-role, assumeRolePolicyDocument: {Statement: [{Action: {}}]}}]}", "want a string or a list of strings"},
		"an unknown field of a credential":      {"entra: {tenants: [{applications: [{federatedIdentityCredentials: [{claimsMatchingExpression: x}]}]}]}", "claimsMatchingExpression"},
		"an unknown field of a binding":         {"google: {serviceAccounts: [{policy: {bindings: [{condition: {}}]}}]}", "condition"},
		"an unknown field of a Google provider": {"google: {workloadIdentityPoolProviders: [{oidc: {keys: x}}]}", "keys"},
		"a duplicate key":                       {"aws: {}\naws: {}", "aws"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := trust.Parse([]byte(test.file)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
