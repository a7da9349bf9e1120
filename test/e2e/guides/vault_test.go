// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"crypto"
	"slices"
	"strings"
	"testing"

	vault "github.com/hashicorp/cap/jwt"
	"github.com/zclconf/go-cty/cty"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
)

// vaultTrust is the configuration that a page creates for Vault's auth method jwt.
type vaultTrust struct {
	issuer                                 string // of the auth method
	roleType, audience, subject, userClaim string // of the role
	annotations                            map[string]string
}

// check compares the page's trust with Vault. The validator is the one that Vault
// uses.
func (v vaultTrust) check(t *testing.T, c cluster) {
	t.Helper()
	token := c.token(t, identityOf(t, v.annotations).Audience)
	keys, err := vault.NewStaticKeySet([]crypto.PublicKey{c.key.Private.Public()})
	if err != nil {
		t.Fatal(err)
	}
	validator, err := vault.NewValidator(keys)
	if err != nil {
		t.Fatal(err)
	}
	granted := func() bool {
		claims, err := validator.Validate(t.Context(), token, vault.Expected{
			Issuer: v.issuer, Subject: v.subject, Audiences: []string{v.audience}, SigningAlgorithms: []vault.Alg{vault.RS256},
		})
		_, found := claims[v.userClaim]
		return err == nil && found && v.roleType == "jwt"
	}
	checkTrust(t, granted,
		value{"issuer", &v.issuer}, value{"type of the role", &v.roleType}, value{"audience", &v.audience},
		value{"subject", &v.subject}, value{"user claim", &v.userClaim})
}

// vaultFields are the fields of Vault's API that the page may set.
var vaultFields = map[string][]string{
	"auth/production/config":                {"bound_issuer", "jwt_validation_pubkeys", "oidc_discovery_url"},
	"auth/production/role/shop-cart":        {"bound_audiences", "bound_subject", "role_type", "token_policies", "token_ttl", "user_claim"},
	"auth/production-review/role/shop-cart": {"audience", "bound_service_account_names", "bound_service_account_namespaces", "token_policies", "token_ttl"},
}

// written returns the settings that the page writes to a path of Vault's API, one entry
// for each write.
func written(t testing.TB, r run, path string) []map[string]string {
	t.Helper()
	var all []map[string]string
	for _, c := range r.all("vault write " + path) {
		settings := c.settings()
		for name := range settings {
			if !slices.Contains(vaultFields[path], name) {
				t.Errorf("got field %q of %s, want one of %q", name, path, vaultFields[path])
			}
		}
		all = append(all, settings)
	}
	return all
}

// runVault returns the run of the page.
func runVault(t testing.TB, c cluster) run {
	t.Helper()
	return runPage(t, "clouds/vault.md", c.answers(t, nil))
}

func TestVaultShell(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := runVault(t, c)
	checkGuide(t, "clouds/vault.md", r)
	configs, roles := written(t, r, "auth/production/config"), written(t, r, "auth/production/role/shop-cart")
	if len(configs) != 2 || len(roles) != 1 {
		t.Fatalf("got %d configurations and %d roles, want 2 and 1", len(configs), len(roles))
	}
	if got := configs[0]["oidc_discovery_url"]; got != issuertest.URL {
		t.Errorf("got oidc_discovery_url %q, want the issuer", got)
	}
	for _, config := range configs {
		vaultTrust{
			issuer: config["bound_issuer"], roleType: roles[0]["role_type"], audience: roles[0]["bound_audiences"],
			subject: roles[0]["bound_subject"], userClaim: roles[0]["user_claim"],
			annotations: annotated(t, r.one(t, "kubectl annotate")),
		}.check(t, c)
	}
}

func TestVaultKubernetesMethod(t *testing.T) {
	t.Parallel()
	r := runVault(t, newCluster(t))
	roles := written(t, r, "auth/production-review/role/shop-cart")
	audience := identityOf(t, annotated(t, r.one(t, "kubectl annotate"))).Audience
	if len(roles) != 1 || roles[0]["audience"] != audience ||
		roles[0]["bound_service_account_namespaces"] != namespace || roles[0]["bound_service_account_names"] != serviceAccount {
		t.Errorf("got roles %v, want one for %s/%s and the audience %s", roles, namespace, serviceAccount, audience)
	}
}

func TestVaultTerraform(t *testing.T) {
	t.Parallel()
	page := evaluate(t, "vault", attributes{"issuer": cty.StringVal(issuertest.URL)}, func(string, attributes) {})
	method, role := page.resource(t, "vault_jwt_auth_backend"), page.resource(t, "vault_jwt_auth_backend_role")
	vaultTrust{
		issuer: method.text("bound_issuer"), roleType: role.text("role_type"),
		audience: role["bound_audiences"].AsValueSlice()[0].AsString(),
		subject:  role.text("bound_subject"), userClaim: role.text("user_claim"),
		annotations: checkAnnotationsResource(t, page),
	}.check(t, newCluster(t))
	if role.text("backend") != method.text("path") || !strings.Contains(page.resource(t, "vault_policy").text("policy"), "secret/data/shop/cart") {
		t.Errorf("got role %#v, want one of the method %q", role, method.text("path"))
	}
}
