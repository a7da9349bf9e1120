// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// served are responses of an API server: discovery, two namespaces, the issuer, and a token.
var served = map[string]string{
	"GET /version":                         `{"gitVersion":"v1.37.2"}`,
	"GET /api/v1/namespaces/default":       `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}`,
	"GET /api/v1/namespaces/namespace-000": `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"namespace-000"}}`,
	"POST /api/v1/namespaces/namespace-000/serviceaccounts/account-000/token": `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.` +
		`eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLmNvbSIsInN1YiI6InN5c3RlbTpzZXJ2aWNlYWNjb3VudDpuYW1lc3BhY2UtMDAwOmFjY291bnQtMDAwIiwiYXVkIjpbInZhdWx0Il0sImlhdCI6MTc2NzMyMzA0NSwiZXhwIjoxNzY3MzI2NjQ1fQ.c2ln"}}`,
	"GET /api":    `{"kind":"APIVersions","versions":["v1"]}`,
	"GET /api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"serviceaccounts","kind":"ServiceAccount","namespaced":true,"shortNames":["sa"],"singularName":"serviceaccount","verbs":["get","list"]}]}`,
	"GET /apis":   `{"kind":"APIGroupList","groups":[]}`,
	"GET /api/v1/namespaces/namespace-000/serviceaccounts/account-000": `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"namespace":"namespace-000","name":"account-000"}}`,
	"GET /.well-known/openid-configuration":                            `{"issuer":"https://issuer.example.com","jwks_uri":"https://issuer.example.com/jwks"}`,
	"GET /openid/v1/jwks":                                              `{"keys":[{"kty":"RSA","kid":"a","n":"AAAA","e":"AQAB"}]}`,
}

// The golden files of the commands contain the objects only as JSON.
func TestYAMLIsTheSameObjectAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifests := filepath.Join(dir, "a.yaml")
	write(t, manifests, annotated)
	of := " account-000 --namespace namespace-000"
	commands := map[string]string{
		"lanyard check":                 "",
		"lanyard explain":               "sa" + of,
		"lanyard label serviceaccounts": "--all-namespaces",
		"lanyard migrate":               "--from eks -f " + manifests,
		"lanyard status":                "--all-namespaces",
		"lanyard token":                 "sa/account-000 --namespace namespace-000 --for vault",
		"lanyard trust":                 "aws" + of + " --role-arn " + role,
		"lanyard trust aws":             of + " --role-arn " + role,
		"lanyard trust azure":           of,
		"lanyard trust gcp":             of + " --workload-identity-provider projects/1/locations/global/workloadIdentityPools/pool/providers/cluster",
		"lanyard trust issuer":          "",
		"lanyard version":               "",
	}
	found := map[string]string{}
	root := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		if flag := cmd.Flags().Lookup("output"); flag != nil && strings.Contains(flag.Usage, "json") {
			found[cmd.CommandPath()] = commands[cmd.CommandPath()]
		}
	})
	if diff := cmp.Diff(commands, found); diff != "" {
		t.Errorf("the commands with --output json (-want +got):\n%s", diff)
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects [2]map[string]any
			for i, format := range []string{"json", "yaml"} {
				line := strings.Fields(strings.TrimPrefix(name, "lanyard ") + " " + args + " --output " + format)
				_, out, errOut := runAgainst(t, smallCluster(t), "", line...)
				isJSON := strings.HasPrefix(out, "{")
				if err := yaml.Unmarshal([]byte(out), &objects[i]); err != nil || objects[i]["apiVersion"] != command.APIVersion || isJSON != (i == 0) {
					t.Fatalf("%v: got %q and %q: %v", line, out, errOut, err)
				}
			}
			if diff := cmp.Diff(objects[0], objects[1]); diff != "" {
				t.Errorf("JSON and YAML (-json +yaml):\n%s", diff)
			}
		})
	}
}

func smallCluster(t *testing.T) http.Handler {
	t.Helper()
	return withSingles((&largeCluster{namespaces: 1, serviceAccounts: 2, podsEach: 2, stale: 1}).start(t))
}

// withSingles adds the objects that commands read one by one to a cluster.
func withSingles(cluster http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", cluster)
	for pattern, answer := range served {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { reply(w, answer) })
	}
	return mux
}
