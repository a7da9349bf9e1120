// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// providerFile is a configuration file with one custom provider.
func providerFile(name string) string {
	return "providers: [{name: " + name + ", audience: a, parameters: [{name: role, required: true}]}]\n"
}

// writeFile replaces a file at once, as the kubelet does.
func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// knows reports whether the program recognizes the provider's annotation as a request for an
// identity.
func knows(t *testing.T, handler http.Handler, provider string) bool {
	t.Helper()
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":"team",` +
		`"resource":{"group":"","version":"v1","resource":"serviceaccounts"},` +
		`"object":{"metadata":{"name":"app","annotations":{"lanyard.dev/` + provider + `-role":"x"}}}}}`
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, injector.MutateServiceAccountPath, strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	if response.Code != http.StatusOK || !strings.Contains(response.Body.String(), `"allowed":true`) {
		t.Fatalf("got %d: %s", response.Code, response.Body)
	}
	return strings.Contains(response.Body.String(), `"patch"`)
}

// newProgram returns a program without servers, with a configuration file.
func newProgram(t *testing.T, file string, log logr.Logger) *program {
	t.Helper()
	args := []string{"--config=" + file, "--certificate-source=files", "--tls-cert-file=C", "--tls-private-key-file=P"}
	o, _, err := load(args, os.ReadFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{
		args: args, options: o, reserved: []string{"reserved"}, log: log,
		registry: prometheus.NewRegistry(),
	}
	if p.recorder, err = metrics.New(p.registry); err != nil {
		t.Fatal(err)
	}
	p.webhooks = injector.New(injector.Caches{ServiceAccounts: newTestCache(t, true), Namespaces: newTestCache(t, true)}, p.recorder, log)
	return p
}

// A mistake that is reported only at startup would stay unnoticed until no replica can start.
func TestReloadAndStartAcceptTheSameFiles(t *testing.T) {
	t.Parallel()
	const identities = "identities: [{namespace: a, serviceAccount: b, annotations: {first-role: r}}]\n"
	start := "secure-port: 8443\n" + providerFile("first") + identities
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, start)
	p := newProgram(t, file, logr.Discard())
	if err := p.load([]byte(start)); err != nil {
		t.Fatal(err)
	}
	for sentence, text := range map[string]string{
		"a file that is not YAML":                      "providers: [",
		"an unknown setting":                           "no-such-setting: 1\n" + start,
		"a lifetime that is too short":                 "token-expiration-seconds: 5\n" + start,
		"a glob with another variable":                 "default-allowed-identities: '{nmespace}'\n" + start,
		"a text for a number":                          "v: many\n" + start,
		"a malformed tenant":                           "azure-default-tenant-id: not a tenant\n" + start,
		"a list for a text":                            "kubeconfig: [a]\n" + start,
		"names of callers without a CA":                "client-allowed-names: [a]\n" + start,
		"a port that no server listens on":             strings.Replace(start, "8443", "65536", 1),
		"the name of another provider":                 strings.Replace(start, "name: first", "name: aws", 1),
		"a mapping without a provider":                 identities,
		"a mapping with an audience of the API server": strings.Replace(start, "first-role: r", "first-role: r, first-audience: reserved", 1),
	} {
		before := p.injection.Load()
		_, _, want := load(p.args, func(string) ([]byte, error) { return []byte(text), nil }, p.reserved)
		err := p.load([]byte(text))
		if want == nil || err == nil || err.Error() != want.Error() {
			t.Errorf("%s: got error %v from a reload, and %v from a start", sentence, err, want)
		}
		if p.injection.Load() != before {
			t.Errorf("%s: the program uses the file", sentence)
		}
	}
	// The command line takes precedence, as at startup.
	text := "tls-cert-file: ''\naws-default-region: eu-west-1\n" + providerFile("second")
	if err := p.load([]byte(text)); err != nil {
		t.Fatal(err)
	}
	got := p.injection.Load().settings
	_, want, err := load(p.args, func(string) ([]byte, error) { return []byte(text), nil }, p.reserved)
	if err != nil {
		t.Fatal(err)
	}
	byName := cmp.Comparer(func(a, b *annotations.Provider) bool { return a.Name == b.Name })
	if diff := cmp.Diff(want, got, byName); diff != "" || got.Parameters["aws-region"] != "eu-west-1" {
		t.Errorf("settings (-of a start, +of a reload):\n%s", diff)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A change of the file takes effect as a whole or not at all, without a restart.
func TestAChangedConfigurationIsUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, providerFile("first"))
	messages := make(chan string, 100)
	p := newProgram(t, file, funcr.New(func(_, args string) { messages <- args }, funcr.Options{}))
	changes, err := p.watchConfig()
	if err != nil {
		t.Fatal(err)
	}
	changes.Interval = time.Millisecond
	ended := make(chan error, 1)
	go func() { ended <- changes.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	handler := http.HandlerFunc(p.serveReview)
	successful := func(want string) func() bool {
		expected := "# HELP lanyard_config_reload_successful 1 if the file of --config is in use as it is now, 0 if it is wrong or cannot be read. Absent without --config.\n" +
			"# TYPE lanyard_config_reload_successful gauge\nlanyard_config_reload_successful " + want + "\n"
		return func() bool {
			return testutil.GatherAndCompare(p.registry, strings.NewReader(expected), "lanyard_config_reload_successful") == nil
		}
	}
	if !knows(t, handler, "first") || knows(t, handler, "second") || !successful("1")() {
		t.Fatal("the file was not used at the start")
	}

	writeFile(t, file, providerFile("second")+"identities: [{namespace: x}]\n")
	eventually(t, "the metric says that the file is wrong", successful("0"))
	if !knows(t, handler, "first") || knows(t, handler, "second") {
		t.Error("a part of a wrong file is used")
	}
	if message := <-messages; !strings.Contains(message, "line 2: identities[0].serviceAccount") {
		t.Errorf("got message %s, want the line and the reason", message)
	}

	writeFile(t, file, providerFile("second")+"v: many\n")
	if message := <-messages; !strings.Contains(message, `v: invalid argument`) {
		t.Errorf("got message %s, want the one with which a start ends", message)
	}
	if !successful("0")() || knows(t, handler, "second") {
		t.Error("a file is used with which a replica would not start")
	}

	writeFile(t, file, providerFile("second")+"secure-port: 1\n")
	eventually(t, "the provider of the corrected file is known", func() bool { return knows(t, handler, "second") })
	eventually(t, "the metric says that the file is in use", successful("1"))
	if knows(t, handler, "first") {
		t.Error("the former provider is still known")
	}
	if message := <-messages; !strings.Contains(message, "Loaded the changed file") {
		t.Errorf("got message %s, want one about the change", message)
	}
	if message := <-messages; !strings.Contains(message, `"secure-port"`) {
		t.Errorf("got message %s, want one about the setting that needs a restart", message)
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the metric says that the file is gone", successful("0"))
	if !knows(t, handler, "second") {
		t.Error("without the file the provider is forgotten")
	}
}
