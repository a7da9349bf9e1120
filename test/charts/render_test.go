// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../charts/lanyard"
	deployDir = "../../deploy"

	release   = "lanyard"
	namespace = "lanyard-system"

	// kubeVersion supports the guard, kubeVersionWithoutGuard does not.
	kubeVersion             = "v1.37.0"
	kubeVersionWithoutGuard = "v1.29.3-gke.100"

	notesFile = "NOTES.txt"
)

// install is where the chart is installed.
type install struct{ Release, Namespace, KubeVersion string }

// values are the values of the chart, as a user writes them.
type values = map[string]any

// rendering is the chart with values.
type rendering struct {
	objects []object
	notes   string
}

// object is one object of a manifest.
type object struct {
	unstructured.Unstructured
	// text is the rendered YAML.
	text string
}

// key identifies the object.
func (o object) key() string {
	return path.Join(o.GetKind(), o.GetNamespace(), o.GetName())
}

// isHook reports whether Helm creates the object only for a test.
func (o object) isHook() bool { return o.GetAnnotations()["helm.sh/hook"] != "" }

// defaultInstall is the installation that deploy/ describes.
var defaultInstall = installAs(release, namespace, kubeVersion)

func installAs(release, namespace, kubeVersion string) install {
	return install{Release: release, Namespace: namespace, KubeVersion: kubeVersion}
}

// parseValues reads YAML.
func parseValues(t *testing.T, text string) values {
	t.Helper()
	v := values{}
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatalf("values: %v\n%s", err, text)
	}
	return v
}

// tryRender renders the chart.
func tryRender(t *testing.T, in install, v values) (*rendering, error) {
	t.Helper()
	files, err := renderFiles(in, v)
	if err != nil {
		return nil, err
	}
	r := &rendering{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Base(file) == notesFile {
			r.notes = files[file]
			continue
		}
		r.objects = append(r.objects, parseObjects(t, file, files[file])...)
	}
	return r, nil
}

// render is tryRender for values that must be valid.
func render(t *testing.T, in install, v values) *rendering {
	t.Helper()
	r, err := tryRender(t, in, v)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// parseObjects reads the objects of a YAML file.
func parseObjects(t *testing.T, name, text string) []object {
	t.Helper()
	var objects []object
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var content map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, document)
		}
		if len(content) > 0 {
			objects = append(objects, object{unstructured.Unstructured{Object: content}, document})
		}
	}
	return objects
}

// find returns the objects of a kind.
func find(objects []object, kind string) []object {
	var found []object
	for _, o := range objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

// one returns the object with that key.
func one(t *testing.T, objects []object, key string) object {
	t.Helper()
	for _, o := range objects {
		if o.key() == key {
			return o
		}
	}
	t.Fatalf("there is no %s", key)
	return object{}
}

// configFile are the settings of the component config.
const configFile = "aws-default-region: eu-central-1\n"

// kustomize builds deploy/ with components. ca is the content of certs/ca.crt.
func kustomize(t *testing.T, ca string, components ...string) []object {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "deploy"), os.DirFS(deployDir)); err != nil {
		t.Fatal(err)
	}
	certs := filepath.Join(root, "deploy/components/secret/certs")
	text := "resources: [deploy]\ncomponents:\n"
	for _, component := range components {
		text += fmt.Sprintf("- deploy/components/%s\n", component)
	}
	if err := os.RemoveAll(certs); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(certs, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{
		filepath.Join(certs, "ca.crt"):                              ca,
		filepath.Join(root, "deploy/components/config/config.yaml"): configFile,
		filepath.Join(root, "kustomization.yaml"):                   text,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return build(t, root)
}
