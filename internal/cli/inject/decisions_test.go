// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
)

// reservedAudience belongs to the API server.
const reservedAudience = "https://kubernetes.default.svc"

// options are the settings of the webhook, and the namespace of objects that name none.
type options struct {
	*annotations.Settings
	Namespace string
}

// defaults are the settings of the golden cases of the injector.
func defaults(t *testing.T) *options {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	s.TokenExpirationSeconds, s.TokenMountPath = annotations.DefaultTokenExpirationSeconds, annotations.DefaultTokenMountPath
	s.ReservedAudiences, s.ExcludedNamespaces = []string{reservedAudience}, []string{"kube-system"}
	return &options{Settings: s, Namespace: "team"}
}

// golden is a golden case of the webhook.
type golden struct {
	*decisions.Case
	settings *options
}

// eachGolden runs a test for each golden case of a new pod.
func eachGolden(t *testing.T, test func(t *testing.T, g *golden)) {
	t.Helper()
	cases, err := decisions.Read("../../../test/decisions")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.IsEphemeral() {
			continue // no manifest adds an ephemeral container
		}
		t.Run(c.Theme+"/"+strings.ReplaceAll(c.Name, "-", " "), func(t *testing.T) {
			t.Parallel()
			g := &golden{c, defaults(t)}
			if c.Settings != "" {
				g.settings = &options{Settings: optionstest.Settings(t, c.Settings, reservedAudience), Namespace: "team"}
			}
			test(t, g)
		})
	}
}

const defaultAccount = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"team"}}`

// around returns a stream of JSON: the object, its ServiceAccounts and its Namespace.
func (g *golden) around(object []byte) []byte {
	return bytes.Join([][]byte{object, g.ServiceAccount, []byte(defaultAccount), g.Namespace}, []byte("\n"))
}

// injectText injects a text and returns the results and the output.
func injectText(t *testing.T, o *options, text string) ([]inject.Result, string) {
	t.Helper()
	documents, err := inject.Read("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	results, err := inject.Inject(t.Context(), documents, o.Settings, o.Namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := inject.Write(&out, documents); err != nil {
		t.Fatal(err)
	}
	return results, out.String()
}

// For each golden case, the command and the webhook must change the pod in the same way.
func TestPodsAreAsTheGoldenCasesOfTheWebhook(t *testing.T) {
	t.Parallel()
	eachGolden(t, func(t *testing.T, g *golden) {
		results, out := injectText(t, g.settings, string(g.Text))
		at := slices.IndexFunc(results, func(r inject.Result) bool { return strings.HasPrefix(r.Object, "pod/") })
		if at < 0 {
			t.Fatalf("got no result for the pod in %+v", results)
		}
		got := results[at]
		if string(got.Reason) != g.Want.Reason || got.Denied != (g.Want.Code != 0) {
			t.Errorf("got %+v, want %s and code %d", got, g.Want.Reason, g.Want.Code)
		}
		if got.Denied {
			if message := "lanyard: " + string(got.Reason) + ": " + got.Message; message != g.Want.Message {
				t.Errorf("got %q, want %q", message, g.Want.Message)
			}
			return
		}
		want, err := g.Result()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(unmarshal(t, want), podIn(t, out)); diff != "" {
			t.Errorf("pod (-want +got):\n%s", diff)
		}
		warnings := make([]string, 0, len(got.Warnings))
		for _, warning := range got.Warnings {
			warnings = append(warnings, "lanyard: "+warning)
		}
		if diff := cmp.Diff(g.Want.Warnings, warnings); diff != "" && len(warnings)+len(g.Want.Warnings) > 0 {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
}

// podIn returns the pod in an output.
func podIn(t *testing.T, out string) map[string]any {
	t.Helper()
	for document := range strings.SplitSeq(out, "---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object["kind"] == "Pod" {
			return object
		}
	}
	t.Fatalf("got no pod in\n%s", out)
	return nil
}

// The command reads all files, including those that add an ephemeral container or are about
// another webhook.
func TestTheFilesOfAllGoldenCasesAreRead(t *testing.T) {
	t.Parallel()
	cases, err := decisions.ReadInputs("../../../test/decisions")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if results, _ := injectText(t, defaults(t), string(c.Text)); len(results) < 2 {
			t.Errorf("%s: got the results %+v, want one of the ServiceAccount and one of the pod", c.File, results)
		}
	}
}

// The template of every kind of workload is injected exactly as the webhook injects its pods.
func TestTemplatesAreAsTheWebhookMakesThePods(t *testing.T) {
	t.Parallel()
	paths := map[string][]string{"Pod": nil, "PodTemplate": {"template"}, "CronJob": {"spec", "jobTemplate", "spec", "template"}}
	for _, kind := range cluster.Kinds() {
		path, found := paths[kind.Kind]
		if !found {
			path = []string{"spec", "template"}
		}
		t.Run(kind.Kind, func(t *testing.T) {
			t.Parallel()
			eachGolden(t, func(t *testing.T, g *golden) {
				pod := unmarshal(t, g.Pod)
				var object map[string]any
				if len(path) == 0 {
					object = pod
				} else {
					delete(pod, "apiVersion")
					delete(pod, "kind")
					object = map[string]any{}
					if err := unstructured.SetNestedMap(object, pod, path...); err != nil {
						t.Fatal(err)
					}
					object["apiVersion"], object["kind"] = kind.Resource.GroupVersion().String(), kind.Kind
					object["metadata"] = map[string]any{"name": "object"}
				}
				results, out := injectText(t, g.settings, string(g.around(marshal(t, object))))
				want, err := g.Want.AddTo(marshal(t, pod))
				if err != nil {
					t.Fatal(err)
				}
				if results[0].Denied != (g.Want.Code != 0) {
					t.Fatalf("got %+v, want the code %d", results[0], g.Want.Code)
				}
				if results[0].Denied {
					return
				}
				var first json.RawMessage
				if err := json.NewDecoder(strings.NewReader(out)).Decode(&first); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(unmarshal(t, want), unmarshal(t, field(t, first, path))); diff != "" {
					t.Errorf("pod (-want +got):\n%s", diff)
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
