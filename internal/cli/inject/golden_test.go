// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
)

// reservedAudience belongs to the API server.
const reservedAudience = "https://kubernetes.default.svc"

// options are the settings of the webhook, and the namespace of objects that name none.
type options struct {
	*settings.Settings
	Namespace string
}

// defaults are the settings of the golden cases of the injector.
func defaults(t *testing.T) *options {
	t.Helper()
	keys, err := annotations.NewKeys(annotations.DefaultPrefix, provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	return &options{
		Settings: &settings.Settings{
			Keys: &keys,
			Defaults: &annotations.Defaults{
				TokenExpirationSeconds: annotations.DefaultTokenExpirationSeconds, TokenMountPath: provider.DefaultTokenMountPath, ReservedAudiences: []string{reservedAudience},
			},
			ExcludedNamespaces: []string{"kube-system"},
		},
		Namespace: "team",
	}
}

// configured returns settings like those of the webhook with a configuration file.
func configured(t *testing.T, file string) *options {
	t.Helper()
	return &options{Settings: optionstest.Settings(t, file, reservedAudience), Namespace: "team"}
}

// settingsOf returns the settings of a golden case: those of its configuration file
// or of the ready-made provider that it is about, if there is one.
func settingsOf(t *testing.T, directory string) *options {
	t.Helper()
	file := filepath.Join(directory, "config.yaml")
	if filepath.Base(filepath.Dir(directory)) == "providers" {
		file = "../../../examples/providers/" + filepath.Base(directory) + ".yaml"
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return defaults(t)
	}
	return configured(t, file)
}

// golden is a case of the injector's golden files.
type golden struct {
	settings                       *options
	pod, serviceAccount, namespace []byte // JSON
	want                           struct {
		Reason   string         `json:"reason"`
		Code     int            `json:"code"`
		Message  string         `json:"message"`
		Warnings []string       `json:"warnings"`
		Pod      map[string]any `json:"pod"`
		// ServiceAccount has the annotations after adoption.
		ServiceAccount map[string]string `json:"serviceAccount"`
	}
}

// goldenCases returns the folders of the injector's golden cases: those of new pods,
// and those with an ephemeral container, which manifests cannot have.
func goldenCases(t *testing.T) (created, ephemeral []string) {
	t.Helper()
	const testdata = "../../webhook/injector/testdata"
	pods, err := filepath.Glob(testdata + "/*/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// These are of clusters with a configuration file.
	more, err := filepath.Glob(testdata + "/*/*/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(pods, more...) {
		directory := filepath.Dir(file)
		switch {
		case read(t, filepath.Join(directory, "old.yaml")) != nil:
			ephemeral = append(ephemeral, directory)
		default:
			created = append(created, directory)
		}
	}
	return created, ephemeral
}

// Each golden case is one of a new pod, and the tests below run it, or one that adds
// an ephemeral container to a running pod.
func TestAllGoldenCasesAreCovered(t *testing.T) {
	t.Parallel()
	created, ephemeral := goldenCases(t)
	for _, directory := range created {
		pod := unmarshal(t, read(t, filepath.Join(directory, "pod.yaml")))
		if containers, found, err := unstructured.NestedSlice(pod, "spec", "ephemeralContainers"); found || err != nil {
			t.Errorf("%s: got ephemeral containers %v (%v) in a new pod", directory, containers, err)
		}
	}
	for _, directory := range ephemeral {
		pod := unmarshal(t, read(t, filepath.Join(directory, "pod.yaml")))
		if containers, _, _ := unstructured.NestedSlice(pod, "spec", "ephemeralContainers"); len(containers) == 0 {
			t.Errorf("%s: got no ephemeral container, so manifests can have this pod, and old.yaml keeps it from the tests", directory)
		}
	}
	// The injector's own test runs these.
	files := 0
	err := filepath.WalkDir("../../webhook/injector/testdata", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == "want.yaml" {
			files++
		}
		return err
	})
	if want := len(created) + len(ephemeral); err != nil || files != want || want < 70 {
		t.Errorf("got %d cases with want.yaml (%v), want %d, and at least 70", files, err, want)
	}
}

// eachGolden runs a test for each golden case of a new pod.
func eachGolden(t *testing.T, test func(t *testing.T, g *golden)) {
	t.Helper()
	directories, _ := goldenCases(t)
	for _, directory := range directories {
		file := filepath.Join(directory, "pod.yaml")
		t.Run(strings.ReplaceAll(filepath.Base(directory), "-", " "), func(t *testing.T) {
			t.Parallel()
			g := &golden{
				settings:       settingsOf(t, directory),
				pod:            read(t, file),
				serviceAccount: read(t, filepath.Join(directory, "serviceaccount.yaml")),
				namespace:      read(t, filepath.Join(directory, "namespace.yaml")),
			}
			if g.serviceAccount == nil {
				g.serviceAccount = []byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"app","namespace":"team"}}`)
			}
			if err := json.Unmarshal(read(t, filepath.Join(directory, "want.yaml")), &g.want); err != nil {
				t.Fatal(err)
			}
			test(t, g)
		})
	}
}

// read returns a YAML file as JSON, nil if there is none.
func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		text, err = yaml.YAMLToJSONStrict(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const defaultAccount = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"team"}}`

// around returns a stream of JSON: the object, its ServiceAccounts and its Namespace.
func (g *golden) around(object []byte) []byte {
	return bytes.Join([][]byte{object, g.serviceAccount, []byte(defaultAccount), g.namespace}, []byte("\n"))
}

// injectText injects a text and returns the results and the output.
func injectText(t *testing.T, o *options, text string) ([]inject.Result, string) {
	t.Helper()
	documents, err := inject.Read("test", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	results, err := inject.Inject(t.Context(), documents, o.Settings, o.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := inject.Write(&out, documents); err != nil {
		t.Fatal(err)
	}
	return results, out.String()
}

// The golden files of the injector say what the webhook does.
func TestPodsAreAsTheGoldenFilesOfTheWebhook(t *testing.T) {
	t.Parallel()
	eachGolden(t, func(t *testing.T, g *golden) {
		var text []string
		for _, object := range [][]byte{g.pod, g.serviceAccount, []byte(defaultAccount), g.namespace} {
			if object == nil {
				continue
			}
			document, err := yaml.JSONToYAML(object)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, string(document))
		}
		results, out := injectText(t, g.settings, strings.Join(text, "---\n"))
		got := results[0]
		if string(got.Reason) != g.want.Reason || got.Denied != (g.want.Code != 0) {
			t.Errorf("got %+v, want %s and code %d", got, g.want.Reason, g.want.Code)
		}
		if got.Denied {
			if message := "lanyard: " + string(got.Reason) + ": " + got.Message; message != g.want.Message {
				t.Errorf("got %q, want %q", message, g.want.Message)
			}
			return
		}
		want, err := yaml.Marshal(g.want.Pod)
		if err != nil {
			t.Fatal(err)
		}
		pod, _, _ := strings.Cut(out, "---\n")
		if diff := cmp.Diff(string(want), pod); diff != "" {
			t.Errorf("pod (-want +got):\n%s", diff)
		}
		warnings := make([]string, 0, len(got.Warnings))
		for _, warning := range got.Warnings {
			warnings = append(warnings, "lanyard: "+warning)
		}
		if diff := cmp.Diff(g.want.Warnings, warnings); diff != "" && len(warnings)+len(g.want.Warnings) > 0 {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
}

// objects are a cluster's annotations by namespace/name.
type objects map[string]map[string]string

func (o objects) Get(_ context.Context, namespace, name string) (metadatacache.Object, error) {
	return metadatacache.Object{Annotations: o[namespace+"/"+name]}, nil
}

type unrecorded struct{}

func (unrecorded) RecordInjection(string)                          {}
func (unrecorded) RecordAdmission(_, _, _ string, _ time.Duration) {}
func annotationsOf(t *testing.T, object []byte) (values map[string]string) {
	t.Helper()
	var meta metav1.PartialObjectMetadata
	if object != nil {
		if err := json.Unmarshal(object, &meta); err != nil {
			t.Fatal(err)
		}
	}
	return meta.Annotations
}

// labelled returns objects with the value of a label.
type labelled struct {
	objects
	label string
}

func (l labelled) Get(ctx context.Context, namespace, name string) (metadatacache.Object, error) {
	object, err := l.objects.Get(ctx, namespace, name)
	object.Label = l.label
	return object, err
}

func labelOf(t *testing.T, object []byte, key string) string {
	t.Helper()
	var meta metav1.PartialObjectMetadata
	if object != nil {
		if err := json.Unmarshal(object, &meta); err != nil {
			t.Fatal(err)
		}
	}
	return meta.Labels[key]
}

// webhook returns the pod as it is after the handler of the webhook was called for
// it, and its patch applied. It returns nil if the webhook denies the pod.
func (g *golden) webhook(t *testing.T, o *options, pod []byte) []byte {
	t.Helper()
	account := g.want.ServiceAccount
	if account == nil {
		account = annotationsOf(t, g.serviceAccount)
	}
	mutator := &injector.PodMutator{Recorder: unrecorded{}, Config: injector.Config{
		Settings:        o.Settings,
		ServiceAccounts: labelled{objects{"team/app": account}, labelOf(t, g.serviceAccount, o.Settings.Keys.IdentityLabel)},
		Namespaces:      objects{"/team": annotationsOf(t, g.namespace)},
	}}
	handler := admission.NewHandler(mutator, admission.NewBudget(), unrecorded{}, logr.Discard())
	body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"team","operation":"CREATE","object":%s}}`, pod)
	post := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	post.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, post)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("got %s and error %v", recorder.Body, err)
	}
	switch {
	case !review.Response.Allowed:
		return nil
	case review.Response.Patch == nil:
		return pod
	}
	patch, err := jsonpatch.DecodePatch(review.Response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply(pod)
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

// Whatever makes a pod, its template is, byte for byte, the pod that the webhook
// makes of it.
func TestTemplatesAreAsTheWebhookMakesThePods(t *testing.T) {
	t.Parallel()
	for _, kind := range cluster.Kinds() {
		t.Run(kind.Kind, func(t *testing.T) {
			t.Parallel()
			eachGolden(t, func(t *testing.T, g *golden) {
				pod := unmarshal(t, g.pod)
				var object map[string]any
				if len(kind.Template) == 0 {
					object = pod
				} else {
					delete(pod, "apiVersion")
					delete(pod, "kind")
					object = map[string]any{}
					if err := unstructured.SetNestedMap(object, pod, kind.Template...); err != nil {
						t.Fatal(err)
					}
					object["apiVersion"], object["kind"] = kind.Resource.GroupVersion().String(), kind.Kind
					object["metadata"] = map[string]any{"name": "object"}
				}
				results, out := injectText(t, g.settings, string(g.around(marshal(t, object))))
				want := g.webhook(t, g.settings, marshal(t, pod))
				if results[0].Denied != (want == nil) {
					t.Fatalf("got %+v, want denied %t", results[0], want == nil)
				}
				if want == nil {
					return
				}
				var first json.RawMessage
				if err := json.NewDecoder(strings.NewReader(out)).Decode(&first); err != nil {
					t.Fatal(err)
				}
				if got := compact(t, field(t, first, kind.Template)); got != compact(t, want) {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		})
	}
}

// field returns the JSON at a path.
func field(t *testing.T, raw json.RawMessage, path []string) json.RawMessage {
	t.Helper()
	for _, name := range path {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatal(err)
		}
		raw = members[name]
	}
	return raw
}

func compact(t *testing.T, text []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out.String()
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unmarshal(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
