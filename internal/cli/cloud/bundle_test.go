// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// bundleFlags are the flags for the requests in testdata. The cluster needs no API server.
var bundleFlags = []string{
	"--issuer", publicIssuer, "--name", "prod", "--role-arn-prefix", "arn:aws:iam::111122223333:role/", "--resource-group", "identities",
	"--scope", "/subscriptions/aaaabbbb-0000-cccc-1111-dddd2222eeee/resourceGroups/prod", "--workload-identity-provider", pool, "--project", "my-project",
}

// trust runs the command trust with the default settings of the webhook.
func trust(t *testing.T, stdin string, args ...string) (out, errOut string, err error) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	c := command.NewCLI("lanyard", genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &stdout, ErrOut: &stderr})
	cmd := cloud.NewTrustCommand(c)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--config", config}, args...))
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestTrustOfABundle(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"shell", "terraform", "json"} {
		args := append([]string{"-f", "testdata/requests", "--output", format}, bundleFlags...)
		out, errOut, err := trust(t, "", args...)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "bundle as "+format, out)
		if want := "credentialsrequest example-previous is left out: it has the annotation release.openshift.io/delete or release.openshift.io/feature-set\n"; errOut != want {
			t.Errorf("got the notes %q, want %q", errOut, want)
		}
		if again, _, _ := trust(t, "", args...); again != out {
			t.Errorf("%s: two runs differ", format)
		}
	}
}

// The cloud's program receives the permissions exactly as in the requests.
func TestTheScriptOfABundle(t *testing.T) {
	t.Parallel()
	out, _, err := trust(t, "", append([]string{"-f", "testdata/requests"}, bundleFlags...)...)
	if err != nil {
		t.Fatal(err)
	}
	parse := exec.CommandContext(t.Context(), "sh", "-n")
	parse.Stdin = strings.NewReader(out)
	if text, err := parse.CombinedOutput(); err != nil {
		t.Fatalf("sh -n: %v: %s", err, text)
	}
	calls, _ := runScript(t, out)
	const account = "prod-example-drivers-432d52c5@my-project.iam.gserviceaccount.com"
	const scope = "/subscriptions/aaaabbbb-0000-cccc-1111-dddd2222eeee/resourceGroups/prod"
	for _, want := range [][]string{
		{"az", "role", "assignment", "create", "--assignee-object-id", "my-project", "--assignee-principal-type", "ServicePrincipal", "--role", "Storage Account Contributor", "--scope", scope},
		{"az", "role", "assignment", "create", "--assignee-object-id", "my-project", "--assignee-principal-type", "ServicePrincipal", "--role", "prod-example-drivers-disk-driver", "--scope", scope},
		{"gcloud", "projects", "add-iam-policy-binding", "my-project", "--condition", "None", "--member", "serviceAccount:" + account, "--role", "roles/compute.storageAdmin"},
		{"gcloud", "iam", "roles", "create", "prod_example_drivers_disk_driver_cloud_credentials", "--project", "my-project", "--permissions", "compute.instances.get,compute.instances.attachDisk"},
		{"kubectl", "annotate", "serviceaccount", "registry", "--namespace", "example-registry", "--overwrite", "lanyard.dev/aws-role-arn=arn:aws:iam::111122223333:role/prod-example-registry-registry-credentials"},
	} {
		found := 0
		for _, call := range calls {
			if cmp.Equal(call, want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("got %d calls of %q, want one", found, want)
		}
	}
	// The last requests for AWS and Azure.
	_, directory := runScript(t, out)
	for file, want := range map[string]string{
		"permissions.json": `"ec2:DescribeSpotFleetRequests"`,
		"role.json":        `"Microsoft.Network/dnsZones/A/write"`,
	} {
		text, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil || !json.Valid(text) || !strings.Contains(string(text), want) {
			t.Errorf("%s: got %s and error %v, want JSON with %s", file, text, err, want)
		}
	}
}

func TestTheRemovalOfABundle(t *testing.T) {
	t.Parallel()
	args := append([]string{"-f", "testdata/requests", "--remove"}, bundleFlags...)
	out, _, err := trust(t, "", args...)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "bundle removed", out)
	runScript(t, out)
	if _, _, err := trust(t, "", append(args, "--output", "json")...); err == nil || !strings.Contains(err.Error(), "the commands are for the shell") {
		t.Errorf("as JSON: got error %v", err)
	}
}

// Each identity gets the tags, and a cloud without tags is an error.
func TestTheTagsOfABundle(t *testing.T) {
	t.Parallel()
	args := append([]string{"-f", "testdata/requests", "--tag", "team=shop"}, bundleFlags...)
	for cloud, want := range map[string]string{"aws": " --tags Key=team,Value=shop\n", "azure": " --tags team=shop\n"} {
		tagged, _, err := trust(t, "", append(args, "--cloud", cloud)...)
		if err != nil {
			t.Fatal(err)
		}
		compared, _, _ := trust(t, "", append([]string{"-f", "testdata/requests", "--cloud", cloud}, bundleFlags...)...)
		if got := strings.ReplaceAll(tagged, want, "\n"); got != compared || tagged == compared {
			t.Errorf("%s: got %s, want only the tags to differ", cloud, tagged)
		}
	}
	if _, _, err := trust(t, "", args...); err == nil || !strings.Contains(err.Error(), "Google Cloud have no labels") {
		t.Errorf("with Google: got error %v", err)
	}
}

func TestTheDifferenceOfTwoBundles(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"", "json"} {
		out, _, err := trust(t, "", "-f", "testdata/requests", "--diff", "testdata/older", "--output", format)
		if !errors.Is(err, command.ErrFound) {
			t.Errorf("got error %v, want the one for findings", err)
		}
		compare(t, strings.TrimSpace("bundle compared with an older one "+format), out)
	}
	if out, _, err := trust(t, "", "-f", "testdata/requests", "--diff", "testdata/requests"); out != "" || err != nil {
		t.Errorf("a bundle and itself: got %s and error %v", out, err)
	}
}

// request returns a CredentialsRequest with a provider's part, in JSON.
func request(name, providerSpec string) string {
	return fmt.Sprintf(`{"apiVersion": "cloudcredential.openshift.io/v1", "kind": "CredentialsRequest", "metadata": {"name": %q},
		"spec": {"serviceAccountNames": ["app"], "secretRef": {"name": "creds", "namespace": "team"}, "providerSpec": %s}}`, name, providerSpec)
}

func TestMistakesInBundles(t *testing.T) {
	t.Parallel()
	const statement = `{"kind": "AWSProviderSpec", "statementEntries": [{"effect": "Allow", "action": ["s3:GetObject"], "resource": "*"}]}`
	valid := request("a", statement)
	change := func(part, by string) string { return strings.Replace(valid, part, by, 1) }
	for name, test := range map[string]struct {
		text, want string
		flags      []string
	}{
		"another cloud":                  {request("a", `{"kind": "VSphereProviderSpec"}`), `credentialsrequest a: spec.providerSpec.kind: "VSphereProviderSpec" cannot be expressed`, nil},
		"no cloud":                       {request("a", `{}`), `spec.providerSpec.kind: "" cannot be expressed`, nil},
		"no provider's part":             {change(`, "providerSpec": `+statement, ""), "credentialsrequest a: spec.providerSpec: ", nil},
		"a field of no known meaning":    {request("a", `{"kind": "AWSProviderSpec", "statementEntries": [], "permissionsBoundary": "x"}`), `spec.providerSpec: cannot be expressed: json: unknown field "permissionsBoundary"`, nil},
		"a field of another cloud":       {request("a", `{"kind": "AWSProviderSpec", "roleBindings": []}`), `unknown field "roleBindings"`, nil},
		"an identity of Azure's own":     {request("a", `{"kind": "AzureProviderSpec", "roleBindings": [{"role": "Reader"}], "azureClientID": "x"}`), `unknown field "azureClientID"`, nil},
		"a field of a statement":         {change(`"effect"`, `"notAction": [], "effect"`), `unknown field "notAction"`, nil},
		"a token in the request":         {change(`"secretRef"`, `"cloudTokenString": "eyJ", "secretRef"`), `credentialsrequest a: spec: cannot be expressed: json: unknown field "cloudTokenString"`, nil},
		"a token path that is not known": {change(`"secretRef"`, `"cloudTokenPath": "/tmp/token", "secretRef"`), `credentialsrequest a: spec.cloudTokenPath: Invalid value: "/tmp/token"`, nil},
		"no ServiceAccount":              {change(`["app"]`, `[]`), "credentialsrequest a: spec.serviceAccountNames: is empty", nil},
		"a ServiceAccount for a shell":   {change(`"app"`, `"$(id)"`), `spec.serviceAccountNames[0]: "$(id)"`, nil},
		"a name with a line":             {change(`"name": "a"`, `"name": "a\nrm -r ."`), `metadata.name: "a\nrm -r ."`, nil},
		"no namespace":                   {change(`, "namespace": "team"`, ``), `spec.secretRef.namespace: ""`, nil},
		"an effect that is not one":      {change(`"Allow"`, `"Perhaps"`), `statementEntries[0].effect: got "Perhaps", want Allow or Deny`, nil},
		"a statement about nothing":      {change(`"*"`, `""`), "statementEntries[0]: needs an action and a resource", nil},
		"a policy that is too large":     {change(`s3:GetObject`, strings.Repeat("s", 10200)), "the inline policies of a role of AWS have at most 10240", nil},
		"no permissions":                 {request("a", `{"kind": "GCPProviderSpec", "predefinedRoles": []}`), "spec.providerSpec: has no permissions", nil},
		"a role for a shell":             {request("a", `{"kind": "GCPProviderSpec", "predefinedRoles": ["--format=x"]}`), `"--format=x" is not the name of a permission or a role`, nil},
		"two permissions in one":         {request("a", `{"kind": "GCPProviderSpec", "permissions": ["a.b,c.d"]}`), `"a.b,c.d" is not the name`, nil},
		"one account in two requests":    {valid + "\n---\n" + strings.ReplaceAll(valid, `"a"`, `"b"`), "credentialsrequest b: spec.secretRef: team/creds is also in credentialsrequest a", nil},
		"two mistakes":                   {request("a", "{}") + "\n---\n" + request("b", "{}"), "credentialsrequest b", nil},
		"a field twice":                  {"kind: A\nkind: B\n", "standard input: document 1: ", nil},
		"a list in a list":               {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]\n", "a List is in a list: write its items into the outer list", nil},
		"no request":                     {"kind: ConfigMap\napiVersion: v1\n", "no CredentialsRequest found", nil},
		"too much":                       {strings.Repeat("# a comment\n", 1<<20), "standard input: the files have more than 8388608 bytes", nil},
		"no account of AWS":              {valid, "--role-arn-prefix is missing", []string{"--role-arn-prefix", ""}},
		"no scope of Azure":              {request("a", `{"kind": "AzureProviderSpec", "roleBindings": [{"role": "Reader"}]}`), `--scope: got ""`, []string{"--scope", ""}},
		"no project of Google":           {request("a", `{"kind": "GCPProviderSpec", "predefinedRoles": ["roles/viewer"]}`), `--project: prod-team-creds@.iam.gserviceaccount.com is not`, []string{"--project", ""}},
		"other parameters":               {valid, "leave out arguments and --parameter", []string{"--parameter", "a=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _, err := trust(t, test.text, append(append([]string{"-f", "-"}, bundleFlags...), test.flags...)...)
			if err == nil || !strings.Contains(err.Error(), test.want) || out != "" {
				t.Errorf("got %q and error %v, want the error %q", out, err, test.want)
			}
		})
	}
	if _, _, err := trust(t, valid, append([]string{"-f", "-"}, bundleFlags...)...); err != nil {
		t.Errorf("the request without a mistake: %v", err)
	}
	if _, _, err := trust(t, "", "--scope", "/x", "vault", "cart"); err == nil || !strings.Contains(err.Error(), "--scope is for CredentialsRequests") {
		t.Errorf("a flag without --filename: got %v", err)
	}
}

// A role that exists keeps its name, and the ServiceAccounts are annotated with it.
func TestARoleThatARequestNames(t *testing.T) {
	t.Parallel()
	text := request("a", `{"kind": "AWSProviderSpec", "stsIAMRoleARN": "arn:aws:iam::444455556666:role/own", "statementEntries": [{"effect": "Allow", "action": ["s3:GetObject"], "resource": "*"}]}`)
	out, _, err := trust(t, text, "-f", "-", "--issuer", publicIssuer)
	if err != nil || !strings.Contains(out, "put-role-policy --role-name own ") || !strings.Contains(out, "aws-role-arn=arn:aws:iam::444455556666:role/own") || strings.Contains(out, "create-role") {
		t.Errorf("got %s and error %v", out, err)
	}
	if _, _, err := trust(t, text, "-f", "-", "--issuer", publicIssuer, "--output", "terraform"); err == nil || !strings.Contains(err.Error(), "credentialsrequest a: spec.providerSpec.stsIAMRoleARN: the role exists already") {
		t.Errorf("as Terraform: got error %v", err)
	}
}

// Such a role belongs to somebody else: only the statement and the permissions of the request are removed.
func TestTheRemovalOfARoleThatARequestNames(t *testing.T) {
	t.Parallel()
	text := request("a", `{"kind": "AWSProviderSpec", "stsIAMRoleARN": "arn:aws:iam::444455556666:role/own", "statementEntries": [{"effect": "Allow", "action": ["s3:GetObject"], "resource": "*"}]}`)
	out, _, err := trust(t, text, "-f", "-", "--issuer", publicIssuer, "--remove")
	if err != nil {
		t.Fatal(err)
	}
	calls, _ := runScript(t, out)
	others := "{Version: Role.AssumeRolePolicyDocument.Version, Statement: [Role.AssumeRolePolicyDocument.Statement][] | " +
		"[?Condition.StringEquals.\"issuer.example.com/production:sub\" != `\"system:serviceaccount:team:app\"`]}"
	want := [][]string{
		{"kubectl", "annotate", "serviceaccount", "app", "--namespace", "team", "--overwrite", "lanyard.dev/aws-role-arn-"},
		{"aws", "iam", "delete-role-policy", "--role-name", "own", "--policy-name", "team-creds"},
		{"aws", "iam", "get-role", "--role-name", "own", "--output", "json", "--query", others},
		{"aws", "iam", "update-assume-role-policy", "--role-name", "own", "--policy-document", "file://trust.json"},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Keys are uploaded to Google only. The error names the flag that was given.
func TestTheKeysOfABundle(t *testing.T) {
	t.Parallel()
	for flag, value := range map[string]string{"--upload-keys": "=true", "--keep-keys": "=/none"} {
		_, _, err := trust(t, "", append([]string{"-f", "testdata/requests", flag + value}, bundleFlags...)...)
		if want := "credentialsrequest example-image-registry: " + flag + ": AWS takes no keys, because it reads the issuer; leave out the flag, or name another cloud with --cloud"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
