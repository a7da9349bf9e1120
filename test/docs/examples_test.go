// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/decisions"
	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// application contains the fields of Argo CD's Application that the pages use, from the
// schema of its CustomResourceDefinition (argo-cd v3, application-crd.yaml). The Go
// types of Argo CD would make this module depend on all of Argo CD.
type application struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Project string `json:"project"`
		Source  struct {
			RepoURL        string `json:"repoURL"`
			TargetRevision string `json:"targetRevision"`
			Path           string `json:"path"`
			Helm           struct {
				ReleaseName  string         `json:"releaseName"`
				ValuesObject map[string]any `json:"valuesObject"`
			} `json:"helm"`
		} `json:"source"`
		Destination struct {
			Server    string `json:"server"`
			Namespace string `json:"namespace"`
		} `json:"destination"`
		SyncPolicy struct {
			Automated struct {
				Prune    bool `json:"prune"`
				SelfHeal bool `json:"selfHeal"`
			} `json:"automated"`
			SyncOptions []string `json:"syncOptions"`
			Retry       struct {
				Limit   int `json:"limit"`
				Backoff struct {
					Duration    string `json:"duration"`
					Factor      int    `json:"factor"`
					MaxDuration string `json:"maxDuration"`
				} `json:"backoff"`
			} `json:"retry"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

// documents returns the documents of a YAML text as JSON.
func documents(text string) ([][]byte, error) {
	var documents [][]byte
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		converted, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			return nil, err
		}
		documents = append(documents, converted)
	}
	return documents, nil
}

// typed returns the types of Kubernetes and Flux.
func typed(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, sourcev1.AddToScheme, helmv2.AddToScheme, kustomizev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// checkDocument reports an error for a document that Kubernetes, Flux, Argo CD or
// the chart does not understand. It does not know other kinds.
func checkDocument(decoder runtime.Decoder, values map[string]any, document []byte) error {
	if document[0] != '{' {
		return nil // a list, a part of a manifest
	}
	var object metav1.TypeMeta
	if err := yaml.Unmarshal(document, &object); err != nil {
		return err
	}
	if object.APIVersion == "argoproj.io/v1alpha1" {
		var app application
		if err := yaml.UnmarshalStrict(document, &app); err != nil {
			return err
		}
		return checkValues(values, app.Spec.Source.Helm.ValuesObject, "")
	}
	if object.APIVersion == "" || object.Kind == "" {
		return nil
	}
	decoded, _, err := decoder.Decode(document, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if release, ok := decoded.(*helmv2.HelmRelease); ok {
		var set map[string]any
		if err := yaml.Unmarshal(release.Spec.Values.Raw, &set); err != nil {
			return err
		}
		return checkValues(values, set, "")
	}
	return nil
}

// checkValues reports an error for a value that the chart does not have. A map
// that is empty by default may have any keys.
func checkValues(defaults, set map[string]any, in string) error {
	var errs []error
	for key, value := range set {
		known, found := defaults[key]
		if !found {
			errs = append(errs, fmt.Errorf("the chart has no value %s", in+key))
			continue
		}
		below, isMap := known.(map[string]any)
		if inner, ok := value.(map[string]any); ok && isMap && len(below) > 0 {
			errs = append(errs, checkValues(below, inner, in+key+"."))
		}
	}
	return errors.Join(errs...)
}

func chartValues(t *testing.T) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(tree.Read(t, root, "charts/lanyard/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestManifestsOnPagesAreValid(t *testing.T) {
	decoder, values := typed(t), chartValues(t)
	checked := 0
	for name, p := range pages(t) {
		for _, b := range blocksOf(p) {
			if b.language != "yaml" {
				continue
			}
			all, err := documents(b.text)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, b.text)
			}
			for _, document := range all {
				checked++
				if err := checkDocument(decoder, values, document); err != nil {
					t.Errorf("%s: %v\n%s", name, err, b.text)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("got %d YAML documents, want the documents of all pages", checked)
	}
}

// On these pages, YAML without a kind is a part of the chart's values.
func TestValuesOnPagesAreThoseOfTheChart(t *testing.T) {
	values := chartValues(t)
	checked := 0
	for _, name := range []string{"install/README.md", "install/certificates.md", "install/platforms.md", "operations/tuning.md", "migrate/README.md", "migrate/gke.md"} {
		for _, b := range blocksOf(pages(t)["docs/"+name]) {
			var set map[string]any
			if b.language != "yaml" || yaml.Unmarshal([]byte(b.text), &set) != nil || set["kind"] != nil {
				continue
			}
			checked++
			if err := checkValues(values, set, ""); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if checked < 10 {
		t.Errorf("got %d blocks of values, want the blocks of all pages", checked)
	}
}

// The README shows a ServiceAccount and what its pod gets. The injector's golden
// case is the same.
func TestTheReadmeShowsWhatAPodGets(t *testing.T) {
	c, err := decisions.ReadCase(filepath.Join(root, "test/decisions"), "aws/aws-with-a-region")
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Result()
	if err != nil {
		t.Fatal(err)
	}
	var account, want, manifest map[string]any
	unmarshal(t, c.ServiceAccount, &account)
	unmarshal(t, result, &want)
	unmarshal(t, c.Pod, &manifest)
	for _, pod := range []map[string]any{want, manifest} {
		delete(pod["metadata"].(map[string]any), "namespace") // is left out
	}
	var before, after string
	for _, b := range blocksOf(pages(t)["README.md"]) {
		switch b.language {
		case "yaml":
			before += b.text
		case "diff":
			after += b.text
		}
	}
	first, second, _ := strings.Cut(before, "---\n")
	var written, sent, shown map[string]any
	unmarshal(t, []byte(first), &written)
	unmarshal(t, []byte(second), &sent)
	if diff := cmp.Diff([]map[string]any{account, manifest}, []map[string]any{written, sent}); diff != "" {
		t.Errorf("README.md, before (-the golden case %s +shown):\n%s", c.File, diff)
	}
	var context, all strings.Builder
	for line := range strings.Lines(after) {
		all.WriteString(line[1:])
		if line[0] == ' ' {
			context.WriteString(line[1:])
		}
	}
	unmarshal(t, []byte(all.String()), &shown)
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("README.md, after (-the golden case %s +shown):\n%s", c.File, diff)
	}
	if diff := cmp.Diff(second, context.String()); diff != "" {
		t.Errorf("README.md (-the pod before +the lines after without +):\n%s", diff)
	}
}

func unmarshal(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}
