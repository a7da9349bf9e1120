// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"encoding/json"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
)

// The ServiceAccount of the pages, which is also that of issuertest's tokens.
const (
	namespace      = "shop"
	serviceAccount = "cart"
)

// cluster is the cluster that the pages set up.
type cluster struct {
	*issuertest.Cluster

	key issuertest.Key
}

func newCluster(t testing.TB) cluster {
	t.Helper()
	key := issuertest.RSA(t, "key-1")
	return cluster{Cluster: issuertest.Start(t, key), key: key}
}

// token returns the token that the kubelet gives a pod of the ServiceAccount.
func (c cluster) token(t testing.TB, audience string) string {
	t.Helper()
	return c.key.Sign(t, issuertest.Claims(audience, nil))
}

// answers returns the output of kubectl in this cluster, and the responses of a cloud.
func (c cluster) answers(t testing.TB, cloud map[string]string) map[string]string {
	t.Helper()
	answers := map[string]string{}
	maps.Copy(answers, cloud)
	for path, words := range map[string]string{
		"/.well-known/openid-configuration": "kubectl get --raw /.well-known/openid-configuration",
		"/openid/v1/jwks":                   "kubectl get --raw /openid/v1/jwks",
	} {
		answers[words] = c.get(t, path)
	}
	return answers
}

// get returns a document of the cluster's API server.
func (c cluster) get(t testing.TB, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Server()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("get %s: got %s and error %v", path, response.Status, err)
	}
	return strings.TrimSpace(string(text))
}

// identityOf returns the injection into pods of a ServiceAccount with these annotations.
func identityOf(t testing.TB, values map[string]string) annotations.Identity {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	account, mistakes := s.ParseServiceAccount(namespace, serviceAccount, values)
	if account == nil || len(account.Identities) != 1 {
		t.Fatalf("got %v and mistakes %v for annotations %v, want one provider", account, mistakes, values)
	}
	return account.Identities[0]
}

// annotated returns the annotations that a call of kubectl annotate sets.
func annotated(t testing.TB, c call) map[string]string {
	t.Helper()
	if c.flag("namespace") != namespace || !c.is("kubectl annotate serviceaccount "+serviceAccount) {
		t.Errorf("got %q, want the ServiceAccount %s/%s", c, namespace, serviceAccount)
	}
	return c.settings()
}

// checkGuide checks the parts that the guides of all clouds have.
func checkGuide(t testing.TB, page string, r run) {
	t.Helper()
	checkServiceAccount(t, r)
	checkTestPod(t, r)
	checkSettings(t, page, r)
}

// checkServiceAccount checks that the page creates the ServiceAccount before annotating it.
func checkServiceAccount(t testing.TB, r run) {
	t.Helper()
	first := func(words string) int {
		return slices.IndexFunc(r.calls, func(c call) bool { return c.is(words) })
	}
	created, annotated := first("kubectl create serviceaccount "+serviceAccount+" --namespace "+namespace), first("kubectl annotate")
	if n := first("kubectl create namespace " + namespace); n < 0 || created < n || annotated < created {
		t.Errorf("got the namespace, the ServiceAccount and the annotation at positions %d, %d and %d of %q, want them in this order", n, created, annotated, r.calls)
	}
}

// checkTestPod checks that the page's test pod uses the ServiceAccount, and that there
// is time to pull the image.
func checkTestPod(t testing.TB, r run) {
	t.Helper()
	c := r.one(t, "kubectl run")
	var overrides struct {
		Spec struct {
			ServiceAccountName string `json:"serviceAccountName"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(c.flag("overrides")), &overrides); err != nil {
		t.Fatal(err)
	}
	if c.flag("pod-running-timeout") != "5m" {
		t.Errorf("got %q, want --pod-running-timeout=5m: the default of a minute is too short for the first pull", c)
	}
	if c.flag("namespace") != namespace || overrides.Spec.ServiceAccountName != serviceAccount {
		t.Errorf("got %q, want a pod of %s/%s", c, namespace, serviceAccount)
	}
}

// checkSettings checks that the page shows settings as values, and that those below
// config are flags of the webhook. No command on the page runs Helm, because --set
// would be lost with the next upgrade that uses only values.yaml.
func checkSettings(t testing.TB, page string, r run) {
	t.Helper()
	if calls := r.all("helm"); len(calls) > 0 {
		t.Errorf("got %q, want the settings in values.yaml", calls)
	}
	flags := options.New().FlagSet()
	for _, b := range readPage(t, page) {
		var values struct {
			Config map[string]any `json:"config"`
		}
		if b.language != "yaml" || yaml.Unmarshal([]byte(b.text), &values) != nil {
			continue
		}
		for name := range values.Config {
			if flags.Lookup(name) == nil {
				t.Errorf("line %d: got config.%s, want a flag of lanyard-webhook", b.line, name)
			}
		}
	}
}

// checkAnnotationsResource checks that Terraform annotates the ServiceAccount, and
// returns the annotations.
func checkAnnotationsResource(t testing.TB, c configuration) map[string]string {
	t.Helper()
	resource := c.resource(t, "kubernetes_annotations")
	if resource.text("kind") != "ServiceAccount" || resource.text("api_version") != "v1" ||
		resource.text("metadata", "namespace") != namespace || resource.text("metadata", "name") != serviceAccount {
		t.Errorf("got %#v, want the ServiceAccount %s/%s", resource, namespace, serviceAccount)
	}
	return resource.texts("annotations")
}

// value is a text of a page on which the trust depends.
type value struct {
	name string
	text *string
}

// checkTrust checks that the cloud grants a credential with the values, and none if any
// character of them is changed.
func checkTrust(t *testing.T, granted func() bool, values ...value) {
	t.Helper()
	if !granted() {
		t.Fatal("got no credential, want one with what the page sets up")
	}
	for _, v := range values {
		original := *v.text
		if len(original) < 3 {
			t.Errorf("%s: got %q, want a longer text", v.name, original)
		}
		for position, other := range changed(original) {
			if *v.text = other; granted() {
				t.Errorf("%s: got a credential although character %d differs: %s", v.name, position, other)
			}
		}
		*v.text = original
	}
}

// changed returns, for each character of the text, the text with this character changed.
func changed(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := range len(text) {
			other := byte('x')
			switch c := text[i]; {
			case c == 'z' || c == 'Z' || c == '9':
				other = c - 1
			case 'a' <= c && c < 'z' || 'A' <= c && c < 'Z' || '0' <= c && c < '9':
				other = c + 1
			}
			if !yield(i, text[:i]+string(other)+text[i+1:]) {
				return
			}
		}
	}
}

// post sends a form to an emulated cloud.
func post(t testing.TB, cloud http.Handler, address string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	cloud.ServeHTTP(w, r)
	return w
}
