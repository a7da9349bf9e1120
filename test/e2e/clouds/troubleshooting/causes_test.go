// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package troubleshooting compares docs/troubleshooting with other software. It causes the
// errors of cloud-denies.md at the emulated clouds. It contains only tests.
package troubleshooting

import (
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// cause breaks one part of an attempt. want is the error on the page.
type cause struct {
	want   string
	change func(t *testing.T, a *attempt)
}

// causes are by cloud.
func causes() map[string]map[string]cause {
	return map[string]map[string]cause{"AWS": awsCauses(), "Azure": entraCauses(), "Google": googleCauses()}
}

func awsCauses() map[string]cause {
	return map[string]cause{
		"another audience":     {"InvalidIdentityToken (Incorrect token audience)", func(_ *testing.T, a *attempt) { a.audience = "api://AzureADTokenExchange" }},
		"no provider":          {"InvalidIdentityToken (No OpenIDConnect provider)", otherIssuer},
		"a role elsewhere":     {"InvalidIdentityToken (No OpenIDConnect provider)", func(_ *testing.T, a *attempt) { a.role = "arn:aws:iam::444455556666:role/cart" }},
		"an unpublished key":   {"InvalidIdentityToken (verification key)", unpublishedKey},
		"unreadable keys":      {"IDPCommunicationError", func(_ *testing.T, a *attempt) { a.down = true }},
		"an expired token":     {"ExpiredTokenException", expiredToken},
		"no role":              {"AccessDenied (AssumeRoleWithWebIdentity)", func(_ *testing.T, a *attempt) { a.role += "-2" }},
		"another subject":      {"AccessDenied (AssumeRoleWithWebIdentity)", func(_ *testing.T, a *attempt) { a.awsCondition("sub", "system:serviceaccount:shop:other") }},
		"a wildcard in Equals": {"AccessDenied (AssumeRoleWithWebIdentity)", func(_ *testing.T, a *attempt) { a.awsCondition("sub", "system:serviceaccount:shop:*") }},
		"another condition":    {"AccessDenied (AssumeRoleWithWebIdentity)", func(_ *testing.T, a *attempt) { a.awsCondition("aud", "vault") }},
		"a long session":       {"ValidationError (MaxSessionDuration)", func(_ *testing.T, a *attempt) { a.duration = "7200" }},
	}
}

func entraCauses() map[string]cause {
	return map[string]cause{
		"another issuer":   {"AADSTS700211", func(_ *testing.T, a *attempt) { a.entraRecord().Issuer = "https://other.example.com" }},
		"a trailing slash": {"AADSTS700211", func(_ *testing.T, a *attempt) { a.entraRecord().Issuer += "/" }},
		"another subject":  {"AADSTS700213", func(_ *testing.T, a *attempt) { a.entraRecord().Subject = "system:serviceaccount:shop:other" }},
		"upper case": {"AADSTS7002138", func(_ *testing.T, a *attempt) {
			a.entraRecord().Subject = strings.Replace(issuertest.Subject, "cart", "Cart", 1)
		}},
		"another audience":   {"AADSTS700212", func(_ *testing.T, a *attempt) { a.audience = "sts.amazonaws.com" }},
		"no record":          {"AADSTS70025", func(_ *testing.T, a *attempt) { a.entraClient().FederatedIdentityCredentials = nil }},
		"no client":          {"AADSTS700016", func(_ *testing.T, a *attempt) { a.client = tenant }},
		"no tenant":          {"AADSTS90002", func(_ *testing.T, a *attempt) { a.tenant = client }},
		"an expired token":   {"AADSTS700024", expiredToken},
		"an unpublished key": {"AADSTS7000272", unpublishedKey},
		"an elliptic key": {"AADSTS5002738", func(_ *testing.T, a *attempt) {
			a.sign = func(published []issuertest.Key) issuertest.Key { return published[1] }
		}},
		"unreadable keys": {"AADSTS90061", func(_ *testing.T, a *attempt) { a.down = true }},
	}
}

func googleCauses() map[string]cause {
	return map[string]cause{
		"another audience":   {"invalid_grant (audience in ID Token)", func(_ *testing.T, a *attempt) { a.audience = "sts.amazonaws.com" }},
		"allowed audiences":  {"invalid_grant (audience in ID Token)", func(_ *testing.T, a *attempt) { a.googleProvider().OIDC.AllowedAudiences = []string{"vault"} }},
		"another issuer":     {"invalid_grant (issuer in ID Token)", func(_ *testing.T, a *attempt) { a.googleProvider().OIDC.IssuerURI = "https://other.example.com" }},
		"a trailing slash":   {"invalid_grant (issuer in ID Token)", func(_ *testing.T, a *attempt) { a.googleProvider().OIDC.IssuerURI += "/" }},
		"an unpublished key": {"invalid_grant (credential's issuer)", unpublishedKey},
		"unreadable keys":    {"invalid_grant (credential's issuer)", func(_ *testing.T, a *attempt) { a.down = true }},
		"an old token": {"invalid_grant (stale to sign-in)", func(_ *testing.T, a *attempt) {
			expired := time.Now().Add(-time.Hour)
			a.claims["iat"], a.claims["exp"] = expired.Add(-time.Hour).Unix(), expired.Unix()
		}},
		"a long name": {"invalid_grant (google.subject)", func(_ *testing.T, a *attempt) {
			a.claims["sub"] = "system:serviceaccount:" + strings.Repeat("n", 53) + ":" + strings.Repeat("s", 53)
		}},
		"no provider":     {"invalid_target", func(_ *testing.T, a *attempt) { a.provider += "-2" }},
		"another member":  {"PERMISSION_DENIED (getAccessToken)", func(_ *testing.T, a *attempt) { a.trust.Google.ServiceAccounts[0].Policy.Bindings[0].Members[0] += "2" }},
		"no account":      {"PERMISSION_DENIED (getAccessToken)", func(_ *testing.T, a *attempt) { a.account = "other@my-project.iam.gserviceaccount.com" }},
		"a project by ID": {"PERMISSION_DENIED (The caller does not have permission)", func(_ *testing.T, a *attempt) { a.lookUpProject = true }},
	}
}

func otherIssuer(_ *testing.T, a *attempt) { a.claims["iss"] = "https://other.example.com" }

func expiredToken(_ *testing.T, a *attempt) { a.claims["exp"] = time.Now().Add(-time.Minute).Unix() }

func unpublishedKey(t *testing.T, a *attempt) {
	t.Helper()
	a.sign = func([]issuertest.Key) issuertest.Key { return issuertest.RSA(t, "key-9") }
}

// awsCondition changes a condition of the role's trust policy.
func (a *attempt) awsCondition(claim, value string) {
	statement := a.trust.AWS.Roles[0].AssumeRolePolicyDocument.Statement[0]
	statement.Condition["StringEquals"][issuerName+":"+claim] = trust.Strings{value}
}

func (a *attempt) entraClient() *trust.Application { return &a.trust.Entra.Tenants[0].Applications[0] }

func (a *attempt) entraRecord() *trust.FederatedIdentityCredential {
	return &a.entraClient().FederatedIdentityCredentials[0]
}

func (a *attempt) googleProvider() *trust.WorkloadIdentityPoolProvider {
	return &a.trust.Google.WorkloadIdentityPoolProviders[0]
}

func TestNothingWrongIsGranted(t *testing.T) {
	t.Parallel()
	for name, cloud := range clouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := newAttempt(cloud.audience).ask(t, name); got.code != "" {
				t.Errorf("got %+v, want the credential", got)
			}
		})
	}
}

// Every error must match exactly one item, and that item must describe its cause.
func TestItemsDescribeTheirCauses(t *testing.T) {
	t.Parallel()
	items := readErrors(t)
	for cloud, byName := range causes() {
		for name, c := range byName {
			t.Run(cloud+": "+name, func(t *testing.T) {
				t.Parallel()
				a := newAttempt(clouds[cloud].audience)
				c.change(t, a)
				got := a.ask(t, cloud)
				if got.code == "" {
					t.Fatal("got the credential, want an error")
				}
				var found []string
				for _, i := range items {
					if i.describes(cloud, got) {
						found = append(found, i.String())
					}
				}
				if len(found) != 1 || found[0] != c.want {
					t.Errorf("got %s: %s, which the page has as %q; want it as %s", got.code, got.message, found, c.want)
				}
			})
		}
	}
}
