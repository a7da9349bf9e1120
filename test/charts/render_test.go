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

	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../charts/lanyard"
	deployDir = "../../deploy"

	release   = "lanyard"
	namespace = "lanyard-system"

	// kubeVersion has the guard, kubeVersionWithoutGuard has not.
	kubeVersion             = "v1.37.0"
	kubeVersionWithoutGuard = "v1.29.3-gke.100"

	notesFile = "NOTES.txt"
)

// values are a chart's, as a user writes them.
type values = map[string]any

// rendering is a chart with values.
type rendering struct {
	objects []object
	notes   string
}

// object is one object of a manifest.
type object struct {
	unstructured.Unstructured
	// text is how it was rendered.
	text string
}

// key tells objects apart.
func (o object) key() string {
	return path.Join(o.GetKind(), o.GetNamespace(), o.GetName())
}

// isHook tells whether Helm creates the object for a test alone.
func (o object) isHook() bool { return o.GetAnnotations()["helm.sh/hook"] != "" }

// install says where a chart is installed.
type install struct{ release, namespace, kubeVersion string }

var defaultInstall = install{release, namespace, kubeVersion}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
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

// tryRender renders the chart as helm install does, short of the cluster.
func tryRender(t *testing.T, in install, v values) (*rendering, error) {
	t.Helper()
	c := loadChart(t)
	version, err := chartcommon.ParseKubeVersion(in.kubeVersion)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartcommon.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := chartcommon.ReleaseOptions{Name: in.release, Namespace: in.namespace, Revision: 1, IsInstall: true}
	top, err := chartutil.ToRenderValues(c, v, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, top)
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

// render is tryRender of what has to render.
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

// find gives the objects of a kind.
func find(objects []object, kind string) []object {
	var found []object
	for _, o := range objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

// one gives the one object with that key.
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

// kustomize builds deploy/ with components, of which certs/ca.crt holds ca.
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
		filepath.Join(certs, "ca.crt"):            ca,
		filepath.Join(root, "kustomization.yaml"): text,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root)
	if err != nil {
		t.Fatal(err)
	}
	built, err := result.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, strings.Join(components, "+"), string(built))
}
