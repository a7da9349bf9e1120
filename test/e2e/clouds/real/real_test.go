// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator/emulatortest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	roleARN  = "arn:aws:iam::123456789012:role/lanyard-clouds"
	clientID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	tenantID = "11111111-2222-4333-8444-555555555555"
	provider = "projects/123456789012/locations/global/workloadIdentityPools/lanyard-clouds/providers/static"
	email    = "lanyard-clouds@my-project.iam.gserviceaccount.com"

	// exampleIssuer is public for lanyard trust. The test's issuer is not, so Google would need its
	// keys.
	exampleIssuer = "https://issuer.example.com"
)

// The steps of the workflow, with the commands of README.md and the emulators instead of the clouds.
func TestDryRun(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	key, s := p.newIssuer(t)
	get := func(name string) string {
		return map[string]string{
			"LANYARD_ISSUER": s.issuer, "LANYARD_SIGNING_KEY": key, "LANYARD_AWS_ROLE_ARN": roleARN,
			"LANYARD_AZURE_CLIENT_ID": clientID, "LANYARD_AZURE_TENANT_ID": tenantID,
			"LANYARD_GCP_WORKLOAD_IDENTITY_PROVIDER": provider, "LANYARD_GCP_SERVICE_ACCOUNT": email,
		}[name]
	}
	settings, err := newSettings(get)
	if err != nil {
		t.Fatal(err)
	}
	settings.caFile = s.caFile
	tokens, err := issuer.New(&rest.Config{Host: s.issuer, TLSClientConfig: rest.TLSClientConfig{CAFile: s.caFile}})
	if err != nil {
		t.Fatal(err)
	}
	recorder := journaltest.New()
	settings.environment = emulatortest.Start(t, p.trust(t, s.issuer), tokens, recorder.Journal)

	var out bytes.Buffer
	if err := run(t.Context(), &out, settings); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	got := regexp.MustCompile(`until \S+Z\n`).ReplaceAllString(out.String(), "until TIME\n")
	want := `aws: credential for ServiceAccount trusted until TIME
azure: credential for ServiceAccount trusted until TIME
gcp: credential for ServiceAccount trusted until TIME
aws: no credential for ServiceAccount other: AccessDenied
azure: no credential for ServiceAccount other: AADSTS700213
gcp: no credential for ServiceAccount other: PERMISSION_DENIED
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	for _, entry := range recorder.Entries(t) {
		if entry.Subject != "system:serviceaccount:"+namespace+":"+entry.Pod {
			t.Errorf("got %+v, want a token that is bound to a pod", entry)
		}
	}
}

// page contains the commands of README.md.
type page struct {
	text string
	dir  string
}

func newPage(t *testing.T) *page {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{string(text), t.TempDir()}
	if err := os.WriteFile(p.kubeconfig(), []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// kubeconfig is a file without a cluster.
func (p *page) kubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }

// lanyard runs the only command of the page that begins with "lanyard trust NAME", and more
// arguments.
func (p *page) lanyard(t *testing.T, name, issuerURL string, more ...string) string {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^lanyard trust `+name+` .*$`).FindAllString(p.text, -1)
	if len(lines) != 1 {
		t.Fatalf("got the lines %q, want one command lanyard trust %s", lines, name)
	}
	values := map[string]string{"ISSUER": issuerURL, "ROLE_ARN": roleARN, "PROVIDER": provider, "EMAIL": email}
	args := strings.Fields(os.Expand(strings.ReplaceAll(lines[0], `"`, ""), func(name string) string { return values[name] }))
	for i, arg := range args {
		if arg == "key.pub" || arg == "documents" {
			args[i] = filepath.Join(p.dir, arg)
		}
	}
	var out, errOut bytes.Buffer
	args = append(args, append(more, "--kubeconfig", p.kubeconfig())...)
	if code := cli.Run(t.Context(), args, genericiooptions.IOStreams{In: new(bytes.Buffer), Out: &out, ErrOut: &errOut}); code != 0 {
		t.Fatalf("%q: got exit code %d and %s", args, code, &errOut)
	}
	return out.String()
}

// newIssuer makes the key and publishes the documents.
func (p *page) newIssuer(t *testing.T) (key string, s *settings) {
	t.Helper()
	documents := httptest.NewTLSServer(http.FileServer(http.Dir(filepath.Join(p.dir, "documents"))))
	t.Cleanup(documents.Close)
	s = &settings{issuer: documents.URL, caFile: filepath.Join(p.dir, "ca.pem")}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	publicDER, errPublic := x509.MarshalPKIXPublicKey(&private.PublicKey)
	err = errors.Join(err, errPublic,
		os.WriteFile(filepath.Join(p.dir, "key.pub"), encode("PUBLIC KEY", publicDER), 0o600),
		os.WriteFile(s.caFile, encode("CERTIFICATE", documents.Certificate().Raw), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	p.lanyard(t, "issuer", documents.URL, "--ca-file", s.caFile)
	return string(encode("PRIVATE KEY", privateDER)), s
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// trust returns the registrations of the page.
func (p *page) trust(t *testing.T, issuerURL string) trust.Trust {
	t.Helper()
	parts := map[string]json.RawMessage{}
	for _, name := range []string{"aws", "azure", "gcp"} {
		text := p.lanyard(t, name, exampleIssuer, "--output", "json")
		text = strings.ReplaceAll(text, strings.TrimPrefix(exampleIssuer, "https://"), strings.TrimPrefix(issuerURL, "https://"))
		if err := json.Unmarshal([]byte(text), &parts); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	file := fmt.Sprintf(`{
		"aws": {"openIDConnectProviders": [%s], "roles": [%s]},
		"entra": {"tenants": [{"tenantId": %q, "applications": [{"appId": %q, "federatedIdentityCredentials": [%s]}]}]},
		"google": {"workloadIdentityPoolProviders": [%s], "serviceAccounts": [%s]}}`,
		parts["openIDConnectProvider"], parts["role"], tenantID, clientID, parts["federatedCredential"],
		parts["workloadIdentityPoolProvider"], parts["serviceAccount"])
	parsed, err := trust.Parse([]byte(file))
	if err != nil {
		t.Fatalf("%v: %s", err, file)
	}
	return parsed
}

func TestCheck(t *testing.T) {
	t.Parallel()
	granted, refused := map[string]report{}, map[string]report{}
	for name, code := range refusals() {
		granted[name] = report{Cloud: name, Credential: "abc", Expires: "2026-11-28T09:00:00Z"}
		refused[name] = report{Cloud: name, Error: "the cloud says " + code}
	}
	cases := map[string]struct {
		account string
		azure   report
		want    string // of the error, "" for none
	}{
		"a credential for the trusted one":          {trusted, granted["azure"], ""},
		"a refusal of the trusted one":              {trusted, refused["azure"], "azure: got no credential for ServiceAccount trusted: the cloud says AADSTS700213"},
		"no result for the trusted one":             {trusted, report{}, "azure: the program with the SDKs has no result for ServiceAccount trusted"},
		"a refusal of the other one":                {other, refused["azure"], ""},
		"a credential for the other one":            {other, granted["azure"], "azure: got a credential for ServiceAccount other, want the refusal AADSTS700213: the cloud trusts more than ServiceAccount trusted"},
		"another error for the other one":           {other, report{Cloud: "azure", Error: "no such host"}, "azure: got another error for ServiceAccount other, want the refusal AADSTS700213: no such host"},
		"no result, and no error for the other one": {other, report{}, "azure: the program with the SDKs has no result for ServiceAccount other"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reports := map[string]report{}
			all := refused
			if c.account == trusted {
				all = granted
			}
			for name := range all {
				reports[name] = all[name]
			}
			if reports["azure"] = c.azure; c.azure == (report{}) {
				delete(reports, "azure")
			}
			got := ""
			if err := check(new(bytes.Buffer), c.account, reports); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestMissingVariablesAreNamed(t *testing.T) {
	t.Parallel()
	set := map[string]string{"LANYARD_ISSUER": "a", "LANYARD_SIGNING_KEY": "b", "LANYARD_AWS_ROLE_ARN": "c", "LANYARD_GCP_SERVICE_ACCOUNT": "d", "LANYARD_AZURE_TENANT_ID": "e"}
	_, err := newSettings(func(name string) string { return set[name] })
	want := "not set: LANYARD_AZURE_CLIENT_ID, LANYARD_GCP_WORKLOAD_IDENTITY_PROVIDER; test/e2e/clouds/real/README.md has their values"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}
