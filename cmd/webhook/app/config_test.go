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

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
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

// completed returns the settings of a configuration file.
func completed(t *testing.T, file string) *options.Completed {
	t.Helper()
	o, err := options.Parse([]string{"--config=" + file, "--certificate-source=files", "--tls-cert-file=C", "--tls-private-key-file=P"}, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// knows reports whether the program takes a ServiceAccount with the provider's
// annotation for one that asks for an identity.
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

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A change of the file is used as a whole or not at all, and without a restart.
func TestAChangedConfigurationIsUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, providerFile("first"))
	o := completed(t, file)
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	messages := make(chan string, 100)
	log := funcr.New(func(_, args string) { messages <- args }, funcr.Options{})
	p := program{
		Completed: o, recorder: recorder, budget: admission.NewBudget(), log: log,
		serviceAccounts: newTestCache(t, true), namespaces: newTestCache(t, true),
	}
	changes, err := p.watchConfig(nil)
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
	handler := reviewMux(&p)
	successful := func(want string) func() bool {
		expected := "# HELP lanyard_config_reload_successful 1 if the file of --config is in use as it is now, 0 if it is wrong or cannot be read. Absent without --config.\n" +
			"# TYPE lanyard_config_reload_successful gauge\nlanyard_config_reload_successful " + want + "\n"
		return func() bool {
			return testutil.GatherAndCompare(registry, strings.NewReader(expected), "lanyard_config_reload_successful") == nil
		}
	}
	if !knows(t, handler, "first") || knows(t, handler, "second") || !successful("1")() {
		t.Fatal("the file was not used at the start")
	}
	large := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"lanyard.dev/x": strings.Repeat("x", annotations.MaxKeptBytes)}}}
	if p.serviceAccounts.Object(large).TooLarge == 0 {
		t.Error("the cache would keep a ServiceAccount that is larger than a valid one")
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
