// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/golden"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	publicIssuer = "https://issuer.example.com/production"
	shopRole     = "arn:aws:iam::111122223333:role/shop-cart"
	pool         = "projects/123456789012/locations/global/workloadIdentityPools/production/providers/kubernetes"
	email        = "shop-cart@my-project.iam.gserviceaccount.com"
	jwks         = `{"keys":[{"use":"sig","kty":"RSA","kid":"key-1","alg":"RS256","n":"AQAB","e":"AQAB"}]}`
)

// tokenFor returns the tokens of shop/cart.
func tokenFor(audience string) cloud.Token {
	return cloud.Token{Issuer: publicIssuer, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: audience}
}

func newAWS(token cloud.Token, role string) func() (cloud.Trust, error) {
	token.Values = annotations.Values{"role-arn": role}
	return func() (cloud.Trust, error) { return cloud.NewTrust("aws", &token) }
}

type azureOptions struct{ Identity, ResourceGroup, ClientID, ClientIDKey string }

func newAzure(token cloud.Token, o azureOptions) func() (cloud.Trust, error) {
	token.Identity, token.ResourceGroup, token.ServiceAccounts[0].ClientIDKey = o.Identity, o.ResourceGroup, o.ClientIDKey
	token.Values = annotations.Values{"client-id": o.ClientID}
	return func() (cloud.Trust, error) { return cloud.NewTrust("azure", &token) }
}

type gcpOptions struct{ Provider, Email, Project, JWKS string }

func newGCP(token cloud.Token, o gcpOptions) func() (cloud.Trust, error) {
	token.Project, token.JWKS = o.Project, o.JWKS
	token.Values = annotations.Values{"workload-identity-provider": o.Provider, "service-account": o.Email}
	return func() (cloud.Trust, error) { return cloud.NewTrust("gcp", &token) }
}

func newCustom(token cloud.Token, d *annotations.Provider, values annotations.Values, jwks string) (cloud.Trust, error) {
	token.Values, token.JWKS = values, jwks
	return cloud.NewCustom(&token, d)
}

// shared returns the tokens of shop/cart and shop/querier, which have one identity.
func shared(newTrust func(cloud.Token) func() (cloud.Trust, error), token cloud.Token, annotate ...string) func() (cloud.Trust, error) {
	token.ServiceAccounts = append(token.ServiceAccounts, cloud.ServiceAccount{Namespace: "shop", Name: "querier", Annotate: annotate})
	return newTrust(token)
}

func cases() map[string]func() (cloud.Trust, error) {
	gcp := tokenFor("https://iam.googleapis.com/" + pool)
	dotted := tokenFor("api://AzureADTokenExchange")
	dotted.ServiceAccounts[0] = cloud.ServiceAccount{Namespace: "1-shop", Name: "cart.v2"}
	return map[string]func() (cloud.Trust, error){
		"aws":                            newAWS(tokenFor("sts.amazonaws.com"), shopRole),
		"aws-with-a-path-in-china":       newAWS(tokenFor("sts.amazonaws.com"), "arn:aws-cn:iam::111122223333:role/team/a/cart"),
		"aws-with-another-audience":      newAWS(tokenFor("$(odd)'%{audience}"), shopRole),
		"azure":                          newAzure(tokenFor("api://AzureADTokenExchange"), azureOptions{ResourceGroup: "workload-identities"}),
		"azure-without-a-resource-group": newAzure(tokenFor("api://AzureADTokenExchange"), azureOptions{Identity: "other"}),
		"azure-with-another-audience":    newAzure(tokenFor("${odd}'%{audience}"), azureOptions{ResourceGroup: "workload-identities"}),
		"azure-with-odd-names":           newAzure(dotted, azureOptions{ResourceGroup: "workload-identities"}),
		"gcp-direct":                     newGCP(gcp, gcpOptions{Provider: pool, Project: "my-project"}),
		"gcp-through-a-service-account":  newGCP(gcp, gcpOptions{Provider: pool, Email: email, Project: "my-project"}),
		"gcp-with-uploaded-keys":         newGCP(gcp, gcpOptions{Provider: pool, JWKS: jwks}),
		"aws-for-two-serviceaccounts": shared(func(t cloud.Token) func() (cloud.Trust, error) { return newAWS(t, shopRole) },
			tokenFor("sts.amazonaws.com"), "lanyard.dev/aws-role-arn="+shopRole),
		"azure-for-two-serviceaccounts": shared(func(t cloud.Token) func() (cloud.Trust, error) {
			t.ServiceAccounts[1].ClientIDKey = "lanyard.dev/azure-client-id"
			return newAzure(t, azureOptions{ResourceGroup: "workload-identities", ClientIDKey: "lanyard.dev/azure-client-id"})
		}, tokenFor("api://AzureADTokenExchange")),
		"gcp-for-two-serviceaccounts": shared(func(t cloud.Token) func() (cloud.Trust, error) {
			return newGCP(t, gcpOptions{Provider: pool, Email: email, Project: "my-project"})
		}, gcp),
		"gcp-direct-for-two-serviceaccounts": shared(func(t cloud.Token) func() (cloud.Trust, error) {
			return newGCP(t, gcpOptions{Provider: pool, Project: "my-project"})
		}, gcp),
		"aws-with-tags":             newAWS(withTags(tokenFor("sts.amazonaws.com"), "kubernetes.io/cluster/prod=owned", "team=a b"), shopRole),
		"azure-with-tags":           newAzure(withTags(tokenFor("api://AzureADTokenExchange"), "team=a, b=c", "empty="), azureOptions{ResourceGroup: "workload-identities"}),
		"gcp-with-another-audience": newGCP(tokenFor("openshift"), gcpOptions{Provider: pool, Project: "my-project"}),
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, newDocument := range cases() {
		t.Run(strings.ReplaceAll(name, "-", " "), func(t *testing.T) {
			t.Parallel()
			d, err := newDocument()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(d, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, name+" as JSON", string(text)+"\n")
			compare(t, name+" as shell", d.Text("shell", "cluster")+d.Text("shell", "serviceaccount"))
			if strings.Contains(name, "-for-two-") {
				compare(t, name+" removed", d.Text("remove", "serviceaccount")+d.Text("remove", "cluster"))
			}
			compare(t, name+" as terraform", d.Text("terraform", "cluster")+"\n"+d.Text("terraform", "serviceaccount"))
		})
	}
}

// withTags returns the token with tags for its identity.
func withTags(token cloud.Token, tags ...string) cloud.Token {
	token.Tags = map[string]string{}
	for _, tag := range tags {
		key, value, _ := strings.Cut(tag, "=")
		token.Tags[key] = value
	}
	return token
}

// If the identity does not exist, its ID is empty, and az would list all role assignments.
func TestTheRemovalOfAnIdentityThatDoesNotExist(t *testing.T) {
	t.Parallel()
	azure, err := newAzure(tokenFor("api://AzureADTokenExchange"), azureOptions{ResourceGroup: "group"})()
	if err != nil {
		t.Fatal(err)
	}
	script := azure.Text("remove", "serviceaccount")
	calls, _ := runScript(t, script)
	want := [][]string{
		{"az", "identity", "federated-credential", "delete", "--resource-group", "group", "--identity-name", "shop_cart", "--name", "shop_cart", "--yes"},
		{"az", "identity", "show", "--resource-group", "group", "--name", "shop_cart", "--query", "principalId", "--output", "tsv"},
		{"az", "role", "assignment", "list", "--all", "--assignee", "my-project", "--query", "[].id", "--output", "tsv"},
		{"az", "role", "assignment", "delete", "--ids", "my-project"},
		{"az", "identity", "delete", "--resource-group", "group", "--name", "shop_cart"},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("an identity that exists: calls (-want +got):\n%s", diff)
	}
	calls, _ = runScript(t, strings.Replace(script, "--output tsv)", "--output tsv >/dev/null)", 1))
	if diff := cmp.Diff([][]string{want[0], want[1], want[4]}, calls); diff != "" {
		t.Errorf("one that does not: calls (-want +got):\n%s", diff)
	}
}

// Without a client ID, the names of the identity are those with which it was created.
func TestTheRemovalOfAnIdentityWithoutAnAnnotation(t *testing.T) {
	t.Parallel()
	out, _, err := trust(t, "", "azure", "cart", "--issuer", publicIssuer, "--remove")
	if err != nil || strings.Contains(out, "0000-") || !strings.Contains(out, `: "${GROUP:?`) || !strings.Contains(out, "IDENTITY=default_cart\n") {
		t.Errorf("got %s and error %v, want the name default_cart and no client ID", out, err)
	}
}

func TestAPartWithoutCommands(t *testing.T) {
	t.Parallel()
	out, errOut, err := trust(t, "", "azure", "cart", "--issuer", publicIssuer, "--part", "cluster")
	if err != nil || out != "" || !strings.HasSuffix(errOut, "Azure needs no commands for --part cluster\n") {
		t.Errorf("got %q, %q and error %v", out, errOut, err)
	}
}

// Each message says what the user wrote, and what to do.
func TestMistakesInTheArgumentsOfTrust(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"got 1 argument, want a provider and a ServiceAccount: lanyard trust aws|azure|gcp|PROVIDER NAME":                {"cart"},
		"the name of a ServiceAccount is missing: trust aws NAME":                                                        {"aws", "serviceaccount"},
		`"cart,pay" is not the name of a ServiceAccount, and several names are separate arguments: a lowercase RFC 1123`: {"aws", "cart,pay"},
		"serviceaccount cart is named twice":                                                                             {"aws", "cart", "sa/cart"},
		`provider "AWS": the webhook does not have it; choose one of aws, azure, gcp`:                                    {"AWS", "cart"},
		"--remove is for CredentialsRequests, whose files --filename names; a custom provider does not have it":          {"vault", "cart", "--remove"},
		"--remove uploads no keys: leave out --upload-keys and --keep-keys":                                              {"gcp", "cart", "--remove", "--keep-keys", "x"},
		"--diff only compares: leave out --remove, --upload-keys and --keep-keys":                                        {"-f", "testdata/requests", "--diff", "testdata/older", "--remove"},
		`--name "a/b": want letters, digits and -, because the names of identities start with it`:                        {"-f", "testdata/requests", "--name", "a/b"},
		"credentialsrequest example-load-balancer: --role-arn-prefix: Invalid value: ":                                   {"-f", "testdata/requests", "--cloud", "aws", "--role-arn-prefix", "x"},
		"allowed values are: aws, azure, gcp":                                                                            {"-f", "testdata/requests", "--cloud", "Azure"},
		"no CredentialsRequest of azure found, only of aws; leave out --cloud":                                           {"-f", "testdata/requests/aws.yaml", "--cloud", "azure"},
	} {
		if out, _, err := trust(t, "", args...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: got %s and error %v, want %s", args, out, err, want)
		}
	}
}

// compare compares got with the text below a heading. The heading begins with the name of the
// cloud, which is the name of the file.
func compare(t *testing.T, heading, got string) {
	t.Helper()
	cloud, _, _ := strings.Cut(strings.Fields(heading)[0], "-")
	golden.Compare(t, filepath.Join("testdata", cloud+".txt"), heading, got, *update)
}

// An identity of Azure has at most 20 federated credentials.
func TestAzureHasALimitOfServiceAccounts(t *testing.T) {
	t.Parallel()
	token := tokenFor("api://AzureADTokenExchange")
	for i := range 20 {
		token.ServiceAccounts = append(token.ServiceAccounts, cloud.ServiceAccount{Namespace: "shop", Name: fmt.Sprintf("cart-%d", i)})
	}
	_, err := cloud.NewTrust("azure", &token)
	if want := "got 21 ServiceAccounts; an identity of Azure has at most 20 federated credentials"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	token.ServiceAccounts = token.ServiceAccounts[:20]
	if _, err := cloud.NewTrust("azure", &token); err != nil {
		t.Errorf("20 ServiceAccounts: got %v", err)
	}
}

// Programs must receive hostile names unchanged, and the shell must run nothing in them.
func TestShellQuotesEverything(t *testing.T) {
	t.Parallel()
	const hostile = `https://issuer.example.com/'$(touch${IFS}owned)'"\` + "`id`" + `;x`
	token := tokenFor("a'$(touch owned)")
	token.Issuer = hostile
	oddRole := "arn:aws:iam::111122223333:role/$(touch${IFS}owned)/'/cart"
	aws, err := newAWS(token, oddRole)()
	if err != nil {
		t.Fatal(err)
	}
	calls, directory := runScript(t, aws.Text("shell", "cluster")+aws.Text("shell", "serviceaccount"))
	want := [][]string{
		{"aws", "iam", "create-open-id-connect-provider", "--url", hostile, "--client-id-list", token.Audience},
		{"aws", "iam", "create-role", "--role-name", "cart", "--path", "/$(touch${IFS}owned)/'/", "--assume-role-policy-document", "file://trust.json"},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(filepath.Join(directory, "trust.json"))
	if err != nil {
		t.Fatal(err)
	}
	var policy any
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parts(t, aws)["role"]["assumeRolePolicyDocument"], policy); diff != "" {
		t.Errorf("trust.json (-want +got):\n%s", diff)
	}
	if entries, err := os.ReadDir(directory); err != nil || len(entries) != 1 {
		t.Errorf("got files %v and error %v, want only trust.json", entries, err)
	}
}

// parts returns the JSON of a configuration.
func parts(t *testing.T, trust cloud.Trust) (parts map[string]map[string]any) {
	t.Helper()
	text, err := json.Marshal(trust)
	if err == nil {
		err = json.Unmarshal(text, &parts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func TestShellOfAzureAsksForTheResourceGroup(t *testing.T) {
	t.Parallel()
	azure, err := newAzure(tokenFor("api://AzureADTokenExchange"), azureOptions{})()
	if err != nil {
		t.Fatal(err)
	}
	calls, _ := runScript(t, azure.Text("shell", "serviceaccount"))
	want := [][]string{
		{"az", "identity", "create", "--resource-group", "from-the-environment", "--name", "shop_cart"},
		{
			"az", "identity", "federated-credential", "create", "--resource-group", "from-the-environment", "--identity-name", "shop_cart", "--name", "shop_cart",
			"--issuer", publicIssuer, "--subject", "system:serviceaccount:shop:cart", "--audiences", "api://AzureADTokenExchange",
		},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", azure.Text("shell", "serviceaccount"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "set it to the resource group") {
		t.Errorf("without GROUP: got %v and %s", err, out)
	}
}

func TestShellOfGCPUploadsTheKeys(t *testing.T) {
	t.Parallel()
	gcp, err := newGCP(tokenFor("https://iam.googleapis.com/"+pool), gcpOptions{Provider: pool, Email: email, JWKS: jwks})()
	if err != nil {
		t.Fatal(err)
	}
	calls, directory := runScript(t, gcp.Text("shell", "cluster")+gcp.Text("shell", "serviceaccount"))
	principal := "principal://iam.googleapis.com/" + strings.TrimSuffix(pool, "/providers/kubernetes") + "/subject/system:serviceaccount:shop:cart"
	want := [][]string{
		{"gcloud", "projects", "describe", "123456789012", "--format", "value(projectId)"},
		{"gcloud", "services", "enable", "--project", "my-project", "iam.googleapis.com", "sts.googleapis.com", "iamcredentials.googleapis.com"},
		{"gcloud", "iam", "workload-identity-pools", "create", "production", "--project", "my-project", "--location", "global"},
		{
			"gcloud", "iam", "workload-identity-pools", "providers", "create-oidc", "kubernetes", "--project", "my-project", "--location", "global",
			"--workload-identity-pool", "production", "--issuer-uri", publicIssuer, "--attribute-mapping", "google.subject=assertion.sub,attribute.namespace=assertion['kubernetes.io']['namespace']", "--jwk-json-path", "jwks.json",
		},
		{"gcloud", "iam", "service-accounts", "add-iam-policy-binding", email, "--role", "roles/iam.workloadIdentityUser", "--member", principal},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(filepath.Join(directory, "jwks.json"))
	if err != nil || string(text) != jwks+"\n" {
		t.Errorf("jwks.json: got %q and error %v", text, err)
	}
}

func TestMistakesInTrust(t *testing.T) {
	t.Parallel()
	with := func(change func(*cloud.Token)) cloud.Token {
		token := tokenFor("sts.amazonaws.com")
		change(&token)
		return token
	}
	tests := map[string]struct {
		newDocument func() (cloud.Trust, error)
		want        string
	}{
		"an issuer with http":      {newAWS(with(func(t *cloud.Token) { t.Issuer = "http://issuer.example.com" }), shopRole), "is not an https URL"},
		"an issuer with a query":   {newAzure(with(func(t *cloud.Token) { t.Issuer += "?a" }), azureOptions{}), "is not an https URL"},
		"an issuer with a newline": {newAzure(with(func(t *cloud.Token) { t.Issuer += "\nEOF\n" }), azureOptions{}), "is not an https URL"},
		"no issuer":                {newAWS(with(func(t *cloud.Token) { t.Issuer = "" }), shopRole), "is not an https URL"},
		"no namespace":             {newAWS(with(func(t *cloud.Token) { t.ServiceAccounts[0].Namespace = "" }), shopRole), "must be names of Kubernetes objects"},
		"no ServiceAccount":        {newAzure(with(func(t *cloud.Token) { t.ServiceAccounts[0].Name = "" }), azureOptions{}), "must be names of Kubernetes objects"},
		"a command for a name":     {newAzure(with(func(t *cloud.Token) { t.ServiceAccounts[0].Name = "$(id)" }), azureOptions{}), "must be names of Kubernetes objects"},
		"no audience":              {newGCP(with(func(t *cloud.Token) { t.Audience = "" }), gcpOptions{Provider: pool}), "the audience is missing"},
		"a variable of IAM":        {newAWS(tokenFor("a${aws:username}"), shopRole), "has ${"},
		"a tag that IAM denies":    {newAWS(withTags(tokenFor("x"), "team=a,b"), shopRole), `--tag "team=a,b": the cloud allows only tags that match`},
		"a tag that Azure denies":  {newAzure(withTags(tokenFor("x"), "a/b=c"), azureOptions{}), `--tag "a/b=c": the cloud allows only tags that match`},
		"a tag for Google":         {newGCP(withTags(tokenFor("x"), "a=b"), gcpOptions{Provider: pool}), "--tag: pools, service accounts and roles of Google Cloud have no labels"},
		"a user's ARN":             {newAWS(tokenFor("x"), "arn:aws:iam::111122223333:user/cart"), `user/cart" is not of the form arn:PARTITION:iam::ACCOUNT:role/NAME`},
		"no ARN":                   {newAWS(tokenFor("x"), ""), `role ARN "" is not of the form arn:PARTITION:iam::ACCOUNT:role/NAME`},
		"a pool for a provider":    {newGCP(tokenFor("x"), gcpOptions{Provider: "projects/1/locations/global/workloadIdentityPools/pool"}), "POOL/providers/PROVIDER"},
		"a subject too long for Google": {newGCP(with(func(t *cloud.Token) { t.ServiceAccounts[0].Name = strings.Repeat("a", 101) }), gcpOptions{Provider: pool}),
			"has 128 bytes; Google Cloud accepts at most 127"},
		"the longest subject of Google is no mistake": {newGCP(with(func(t *cloud.Token) { t.ServiceAccounts[0].Name = strings.Repeat("a", 100) }), gcpOptions{Provider: pool}), "<nil>"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := test.newDocument(); !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestLongNamesStayDifferent(t *testing.T) {
	t.Parallel()
	name := func(serviceAccount string) string {
		return cloud.ServiceAccount{Namespace: "shop", Name: serviceAccount}.ObjectName()
	}
	for _, length := range []int{59, 60, 100} { // with shop_ in front
		if got := name(strings.Repeat("a", length)); len(got) != 64 {
			t.Errorf("%d characters: got %q of %d bytes, want 64", length, got, len(got))
		}
	}
	long := strings.Repeat("a", 200)
	if first, second := name(long+"b"), name(long+"c"); first == second || len(first) > 64 {
		t.Errorf("got %q and %q, want different names of at most 64 bytes", first, second)
	}
}

// The commands for Azure create or update objects, so two ServiceAccounts with the same name in the
// cloud would share an identity.
func TestServiceAccountsHaveDifferentNames(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	for _, id := range []string{"shop/cart-db", "shop-cart/db", "shop/cart.db", "shop/cart-d-b", "shop-cart/d-b", "shop-cart/d.b", "shop/cart.d.b", "shop/cart-d.b", "shop/cart.d-b"} {
		namespace, serviceAccount, _ := strings.Cut(id, "/")
		name := cloud.ServiceAccount{Namespace: namespace, Name: serviceAccount}.ObjectName()
		if other, used := names[name]; used {
			t.Errorf("%s and %s are both %s", id, other, name)
		}
		names[name] = id
	}
}

// The repairs are commands for the same names as the configuration.
func TestRepairs(t *testing.T) {
	t.Parallel()
	const clientID = "55556666-cccc-7777-dddd-8888eeee9999"
	causes, err := exchange.Causes()
	if err != nil {
		t.Fatal(err)
	}
	for name, newTrust := range map[string]func() (cloud.Trust, error){
		"aws":   newAWS(tokenFor("sts.amazonaws.com"), shopRole),
		"azure": newAzure(tokenFor("api://AzureADTokenExchange"), azureOptions{ClientID: clientID}),
		"gcp":   newGCP(tokenFor("https://iam.googleapis.com/"+pool), gcpOptions{Provider: pool, Email: email}),
	} {
		trust, err := newTrust()
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, repair := range trust.Repairs() {
			all.WriteString("## " + repair + "\n" + trust.Text("repair", repair) + "\n")
			for line := range strings.Lines(trust.Text("repair", repair)) {
				if strings.Contains(line, "{{") || strings.Contains(line, "<no value>") {
					t.Errorf("%s: %s has a part that is not a command: %s", name, repair, line)
				}
			}
		}
		compare(t, name+" repairs", all.String())
		for _, c := range causes[name] {
			if c.Repair != "" && trust.Text("repair", c.Repair) == "" {
				t.Errorf("%s: the cause %s has the repair %q, which does not exist", name, c.Code, c.Repair)
			}
		}
	}
}

// The API of a service account is enabled in the project that the service account belongs to.
func TestTheProjectOfAServiceAccount(t *testing.T) {
	t.Parallel()
	for email, want := range map[string]string{
		"shop-cart@my-project.iam.gserviceaccount.com":             "my-project",
		"shop-cart@my-project.example.com.iam.gserviceaccount.com": "example.com:my-project",
		"my-project@appspot.gserviceaccount.com":                   "my-project",
		"123456789012-compute@developer.gserviceaccount.com":       `"$(gcloud projects describe 123456789012 --format 'value(projectId)')"`,
	} {
		trust, err := newGCP(tokenFor("https://iam.googleapis.com/"+pool), gcpOptions{Provider: pool, Email: email})()
		if err != nil {
			t.Fatal(err)
		}
		want = "gcloud services enable iamcredentials.googleapis.com --project " + want
		if got := strings.TrimSpace(trust.Text("repair", "service")); got != want {
			t.Errorf("%s: got %q, want %q", email, got, want)
		}
	}
}

// A repair passes on the names that it looked up.
func TestARepairThatLooksUpNames(t *testing.T) {
	t.Parallel()
	azure, err := newAzure(tokenFor("api://AzureADTokenExchange"), azureOptions{ClientID: "55556666-cccc-7777-dddd-8888eeee9999"})()
	if err != nil {
		t.Fatal(err)
	}
	calls, _ := runScript(t, strings.Replace(azure.Text("repair", "audience"), "read -r GROUP IDENTITY", "IDENTITY=cart; read -r GROUP", 1))
	want := [][]string{
		{"az", "identity", "list", "--query", "[?clientId=='55556666-cccc-7777-dddd-8888eeee9999'].[resourceGroup, name]", "--output", "tsv"},
		{"az", "identity", "federated-credential", "list", "--resource-group", "my-project", "--identity-name", "cart", "--query", "[?subject=='system:serviceaccount:shop:cart'].name | [0]", "--output", "tsv"},
		{"az", "identity", "federated-credential", "update", "--resource-group", "my-project", "--identity-name", "cart", "--name", "my-project",
			"--issuer", publicIssuer, "--subject", "system:serviceaccount:shop:cart", "--audiences", "api://AzureADTokenExchange"},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestTheServiceAccountIsAnnotatedLast(t *testing.T) {
	t.Parallel()
	token := tokenFor("sts.amazonaws.com")
	token.ServiceAccounts[0].Annotate = []string{"lanyard.dev/aws-role-arn=" + shopRole, "lanyard.dev/aws-audience=a'b"}
	aws, err := newAWS(token, shopRole)()
	if err != nil {
		t.Fatal(err)
	}
	const annotate = "\n# Tell Lanyard:\nkubectl annotate serviceaccount cart --namespace shop --overwrite \\\n  lanyard.dev/aws-role-arn=" + shopRole + " \\\n  'lanyard.dev/aws-audience=a'\\''b'\n"
	if text := aws.Text("shell", "serviceaccount"); !strings.HasSuffix(text, annotate) {
		t.Errorf("got %s, want it to end with %s", text, annotate)
	}
	token.ServiceAccounts[0].Annotate = nil
	azure, err := newAzure(token, azureOptions{ResourceGroup: "group", ClientIDKey: "lanyard.dev/azure-client-id"})()
	if err != nil {
		t.Fatal(err)
	}
	calls, _ := runScript(t, azure.Text("shell", "serviceaccount"))
	want := []string{"kubectl", "annotate", "serviceaccount", "cart", "--namespace", "shop", "--overwrite", "lanyard.dev/azure-client-id=my-project"}
	if diff := cmp.Diff(want, calls[len(calls)-1]); diff != "" {
		t.Errorf("last call (-want +got):\n%s", diff)
	}
}

func TestCustomProvidersHaveTheTextOfTheirFile(t *testing.T) {
	t.Parallel()
	definition := &annotations.Provider{
		Name: "vault", Parameters: []annotations.Parameter{{Name: "role"}, {Name: "space"}},
		Trust: "use {space}\nlogin {role} {issuer} {subject} {audience} ${HOME}\n",
	}
	for name, test := range map[string]struct {
		change func(*annotations.Provider)
		values annotations.Values
		want   string // the text or the error
	}{
		"with all values":                  {nil, annotations.Values{"role": "cart", "space": "s"}, "use s\nlogin cart " + publicIssuer + " system:serviceaccount:shop:cart vault ${HOME}\n"},
		"without a value":                  {nil, annotations.Values{"role": "cart"}, "login cart " + publicIssuer + " system:serviceaccount:shop:cart vault ${HOME}\n"},
		"with a value for the shell":       {nil, annotations.Values{"role": "$(id)"}, `role "$(id)": a shell may expand it`},
		"with such a value that is unused": {nil, annotations.Values{"role": "cart", "other": "$(id)"}, "login cart " + publicIssuer + " system:serviceaccount:shop:cart vault ${HOME}\n"},
		"without a text":                   {func(d *annotations.Provider) { d.Trust = "" }, annotations.Values{"role": "cart"}, "#   sub: system:serviceaccount:shop:cart\n"},
		"with an issuer that can be read":  {func(d *annotations.Provider) { d.Trust = "give {keys-file}\nlogin\n" }, nil, "login\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := *definition
			if test.change != nil {
				test.change(&d)
			}
			trust, err := newCustom(tokenFor("vault"), &d, test.values, "")
			got := fmt.Sprint(err)
			if err == nil {
				got = trust.Text("shell", "serviceaccount")
			}
			if !strings.Contains(got, test.want) || err == nil && d.Trust != "" && got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// A provider that cannot read the issuer gets the public keys.
func TestCustomProvidersGetTheKeys(t *testing.T) {
	t.Parallel()
	definition := &annotations.Provider{Name: "api", Trust: "give {keys-file} for {issuer}\n"}
	trust, err := newCustom(tokenFor("api"), definition, annotations.Values{"rule": "of-the-example"}, jwks)
	if err != nil {
		t.Fatal(err)
	}
	want := "# The public keys of the cluster:\ncat > jwks.json <<'EOF'\n" + jwks + "\nEOF\n\ngive jwks.json for " + publicIssuer + "\n"
	if got := trust.Text("shell", "serviceaccount"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var decoded struct {
		JWKS       string
		Parameters map[string]string
	}
	text, err := trust.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &decoded); err != nil || decoded.JWKS != jwks || len(decoded.Parameters) > 0 {
		t.Errorf("got %s and error %v, want the keys and no example", text, err)
	}
}

// The text for the ready-made providers. The page on APIs shows it for Anthropic.
func TestTheTrustOfTheReadyMadeProviders(t *testing.T) {
	t.Parallel()
	shown, err := os.ReadFile("../../../docs/apis.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]annotations.Values{
		"anthropic": nil,
		"openai":    {"service-account-id": "sa-0123456789", "identity-provider-id": "idp-0123456789"},
		"snowflake": {"user": "INFERENCE"},
	} {
		text, err := os.ReadFile("../../../examples/providers/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		file, err := settings.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		token := cloud.Token{Issuer: publicIssuer, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "inference"}}, Audience: file.Providers[0].DefaultAudience}
		trust, err := newCustom(token, file.Providers[0], values, "")
		if err != nil {
			t.Fatal(err)
		}
		script := trust.Text("shell", "serviceaccount")
		if name != "anthropic" {
			compare(t, "custom-"+name+" as shell", script)
		} else if !strings.Contains(string(shown), script) {
			t.Errorf("want in docs/apis.md:\n%s", script)
		}
	}
}
