// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/entra"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// IDs that Azure assigns on the page.
const (
	tenantID    = "aaaabbbb-0000-4ccc-9ddd-2222eeee3333"
	clientID    = "55556666-cccc-4777-8ddd-8888eeee9999"
	principalID = "00001111-aaaa-4222-9bbb-3333cccc4444"
)

// checkAzure compares a federated credential of a page with Microsoft Entra ID.
func checkAzure(t *testing.T, c cluster, credential trust.FederatedIdentityCredential, annotations map[string]string) {
	t.Helper()
	identity := identityOf(t, annotations)
	client, tenant, token := identity.Values["client-id"], identity.Values["tenant-id"], c.token(t, identity.Audience)
	granted := func() bool {
		login, err := entra.New(trust.Entra{Tenants: []trust.Tenant{{TenantID: tenantID, Applications: []trust.Application{
			{AppID: clientID, FederatedIdentityCredentials: []trust.FederatedIdentityCredential{credential}},
		}}}}, c.Issuer, journaltest.New().Journal)
		return err == nil && post(t, login, "https://"+entra.Host+"/"+url.PathEscape(tenant)+"/oauth2/v2.0/token", url.Values{
			"grant_type": {"client_credentials"}, "client_id": {client}, "scope": {"https://management.azure.com/.default"},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {token},
		}).Code == http.StatusOK
	}
	checkTrust(t, granted,
		value{"issuer", &credential.Issuer}, value{"subject", &credential.Subject}, value{"audience", &credential.Audiences[0]},
		value{"client ID in the annotation", &client}, value{"tenant in the annotation", &tenant})
}

// azure returns the run of the page.
func azure(t testing.TB, c cluster) run {
	t.Helper()
	return runPage(t, "clouds/azure.md", c.answers(t, map[string]string{
		"az account show --query tenantId": tenantID,
		"az identity show --resource-group workload-identities --name shop_cart --query clientId":    clientID,
		"az identity show --resource-group workload-identities --name shop_cart --query principalId": principalID,
		"az ad app create":     clientID,
		"az ad sp create --id": principalID,
		"az group show":        "/subscriptions/0/resourceGroups/workload-identities",
	}))
}

func TestAzureShell(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := azure(t, c)
	checkGuide(t, "clouds/azure.md", r)
	created := r.one(t, "az identity federated-credential create")
	if created.flag("identity-name") != r.one(t, "az identity create").flag("name") {
		t.Errorf("got %q, want a credential of the identity that was created", created)
	}
	checkAzure(t, c, trust.FederatedIdentityCredential{
		Issuer: created.flag("issuer"), Subject: created.flag("subject"), Audiences: []string{created.flag("audiences")},
	}, annotated(t, r.one(t, "kubectl annotate")))
	if got := r.one(t, "az role assignment create").flag("assignee-object-id"); got != principalID {
		t.Errorf("got a role for %q, want %q", got, principalID)
	}
}

func TestAzureAppRegistration(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := azure(t, c)
	created := r.one(t, "az ad app federated-credential create")
	if created.flag("id") != clientID {
		t.Errorf("got %q, want a credential of the app that was created", created)
	}
	var credential trust.FederatedIdentityCredential
	if err := json.Unmarshal([]byte(r.file(t, created.flag("parameters"))), &credential); err != nil {
		t.Fatal(err)
	}
	checkAzure(t, c, credential, annotated(t, r.one(t, "kubectl annotate")))
}

func TestAzureTerraform(t *testing.T) {
	t.Parallel()
	page := evaluate(t, "azure", attributes{"issuer": cty.StringVal(issuertest.URL)}, func(kind string, a attributes) {
		switch kind {
		case "azurerm_client_config":
			a["tenant_id"] = cty.StringVal(tenantID)
		case "azurerm_resource_group":
			a["id"] = cty.StringVal("/subscriptions/0/resourceGroups/" + a.text("name"))
		case "azurerm_user_assigned_identity":
			a["id"] = cty.StringVal("/identities/" + a.text("name"))
			a["client_id"], a["principal_id"] = cty.StringVal(clientID), cty.StringVal(principalID)
		}
	})
	created := page.resource(t, "azurerm_federated_identity_credential")
	if want := page.resource(t, "azurerm_user_assigned_identity").text("id"); created.text("user_assigned_identity_id") != want {
		t.Errorf("got a credential of %q, want %q", created.text("user_assigned_identity_id"), want)
	}
	checkAzure(t, newCluster(t), trust.FederatedIdentityCredential{
		Issuer: created.text("issuer"), Subject: created.text("subject"),
		Audiences: []string{created["audience"].AsValueSlice()[0].AsString()},
	}, checkAnnotationsResource(t, page))
	if got := page.resource(t, "azurerm_role_assignment").text("principal_id"); got != principalID {
		t.Errorf("got a role for %q, want %q", got, principalID)
	}
}
