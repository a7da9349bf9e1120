// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package troubleshooting tests what docs/troubleshooting.md says about other
// software. It causes the errors of the table of cloud errors at the emulated
// clouds. It has no code besides the tests.
package troubleshooting

import (
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// cause makes one thing of an attempt wrong.
type cause func(t *testing.T, a *attempt)

// causes are by cloud, and by the sentence in the comment of the table's row.
func causes() map[string]map[string]cause {
	return map[string]map[string]cause{"AWS": awsCauses(), "Azure": entraCauses(), "Google": googleCauses()}
}

func awsCauses() map[string]cause {
	return map[string]cause{
		"another audience":     func(_ *testing.T, a *attempt) { a.audience = "api://AzureADTokenExchange" },
		"no provider":          otherIssuer,
		"a role elsewhere":     func(_ *testing.T, a *attempt) { a.role = "arn:aws:iam::444455556666:role/cart" },
		"an unpublished key":   unpublishedKey,
		"unreadable keys":      func(_ *testing.T, a *attempt) { a.down = true },
		"an expired token":     expiredToken,
		"no role":              func(_ *testing.T, a *attempt) { a.role += "-2" },
		"another subject":      func(_ *testing.T, a *attempt) { a.awsCondition("sub", "system:serviceaccount:shop:other") },
		"a wildcard in Equals": func(_ *testing.T, a *attempt) { a.awsCondition("sub", "system:serviceaccount:shop:*") },
		"another condition":    func(_ *testing.T, a *attempt) { a.awsCondition("aud", "vault") },
		"a long session":       func(_ *testing.T, a *attempt) { a.duration = "7200" },
	}
}

func entraCauses() map[string]cause {
	return map[string]cause{
		"another issuer":   func(_ *testing.T, a *attempt) { a.entraRecord().Issuer = "https://other.example.com" },
		"a trailing slash": func(_ *testing.T, a *attempt) { a.entraRecord().Issuer += "/" },
		"another subject":  func(_ *testing.T, a *attempt) { a.entraRecord().Subject = "system:serviceaccount:shop:other" },
		"upper case": func(_ *testing.T, a *attempt) {
			a.entraRecord().Subject = strings.Replace(issuertest.Subject, "cart", "Cart", 1)
		},
		"another audience":   func(_ *testing.T, a *attempt) { a.audience = "sts.amazonaws.com" },
		"no record":          func(_ *testing.T, a *attempt) { a.entraClient().FederatedIdentityCredentials = nil },
		"no client":          func(_ *testing.T, a *attempt) { a.client = tenant },
		"no tenant":          func(_ *testing.T, a *attempt) { a.tenant = client },
		"an expired token":   expiredToken,
		"an unpublished key": unpublishedKey,
		"an elliptic key": func(_ *testing.T, a *attempt) {
			a.sign = func(published []issuertest.Key) issuertest.Key { return published[1] }
		},
		"unreadable keys": func(_ *testing.T, a *attempt) { a.down = true },
	}
}

func googleCauses() map[string]cause {
	return map[string]cause{
		"another audience":   func(_ *testing.T, a *attempt) { a.audience = "sts.amazonaws.com" },
		"allowed audiences":  func(_ *testing.T, a *attempt) { a.googleProvider().OIDC.AllowedAudiences = []string{"vault"} },
		"another issuer":     func(_ *testing.T, a *attempt) { a.googleProvider().OIDC.IssuerURI = "https://other.example.com" },
		"a trailing slash":   func(_ *testing.T, a *attempt) { a.googleProvider().OIDC.IssuerURI += "/" },
		"an unpublished key": unpublishedKey,
		"unreadable keys":    func(_ *testing.T, a *attempt) { a.down = true },
		"an old token": func(_ *testing.T, a *attempt) {
			expired := time.Now().Add(-time.Hour)
			a.claims["iat"], a.claims["exp"] = expired.Add(-time.Hour).Unix(), expired.Unix()
		},
		"a long name": func(_ *testing.T, a *attempt) {
			a.claims["sub"] = "system:serviceaccount:" + strings.Repeat("n", 53) + ":" + strings.Repeat("s", 53)
		},
		"no provider":     func(_ *testing.T, a *attempt) { a.provider += "-2" },
		"another member":  func(_ *testing.T, a *attempt) { a.trust.Google.ServiceAccounts[0].Policy.Bindings[0].Members[0] += "2" },
		"no account":      func(_ *testing.T, a *attempt) { a.account = "other@my-project.iam.gserviceaccount.com" },
		"a project by ID": func(_ *testing.T, a *attempt) { a.lookUpProject = true },
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

// Every cause must have one row, which names it and says what the cloud says.
func TestRowsDescribeTheirCauses(t *testing.T) {
	t.Parallel()
	rows := readErrors(t)
	for cloud, byName := range causes() {
		for name, change := range byName {
			t.Run(cloud+": "+name, func(t *testing.T) {
				t.Parallel()
				a := newAttempt(clouds[cloud].audience)
				change(t, a)
				got := a.ask(t, cloud)
				if got.code == "" {
					t.Fatal("got the credential, want an error")
				}
				var described, named []int
				for _, row := range rows {
					if row.describes(cloud, got) {
						described = append(described, row.line)
					}
					if row.names(cloud, name) {
						named = append(named, row.line)
					}
				}
				if len(described) != 1 || len(named) != 1 || described[0] != named[0] {
					t.Errorf("got %s: %s, which the rows at lines %d describe, and the comments at lines %d name; want one row that does both",
						got.code, got.message, described, named)
				}
			})
		}
	}
}

func TestRowsClaimOnlyWhatIsTested(t *testing.T) {
	t.Parallel()
	known := causes()
	for _, row := range readErrors(t) {
		for _, name := range row.tests {
			if known[row.cloud][name] == nil {
				t.Errorf("line %d: got the cause %q of %s in the comment, want one that this package tests", row.line, name, row.cloud)
			}
		}
	}
}
