// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kustomizations lists combinations of deploy/ with components.
var kustomizations = map[string][]string{
	"the default":                   nil,
	"cert-manager":                  {"cert-manager"},
	"openshift":                     {"openshift"},
	"secret":                        {"secret"},
	"fail closed":                   {"fail-closed"},
	"monitoring and network policy": {"monitoring", "network-policy"},
	"cert-manager, and the lot":     {"cert-manager", "fail-closed", "monitoring", "network-policy"},
	"monitoring, then openshift":    {"monitoring", "network-policy", "openshift"},
	"secret, and the lot":           {"secret", "fail-closed", "monitoring", "network-policy"},
	"an old cluster":                {"fail-closed", "no-fences"},
	"an old cluster, openshift":     {"openshift", "no-fences"},
	"an old cluster, the other way": {"no-fences", "fail-closed"},
	"no fences, then openshift":     {"no-fences", "openshift"},
	"token audiences":               {"token-audiences"},
	"settings":                      {"config"},
	"settings, then cert-manager":   {"config", "cert-manager"},
}

// sameValues are the values with which the chart renders the same objects.
var sameValues = map[string]string{
	"the default":                   "",
	"cert-manager":                  "certificates: {mode: certManager}",
	"openshift":                     "certificates: {mode: openshift}",
	"secret":                        caValues,
	"fail closed":                   "guard: {enabled: false}",
	"monitoring and network policy": monitoringValues,
	"cert-manager, and the lot":     "certificates: {mode: certManager}\nguard: {enabled: false}" + monitoringValues,
	"monitoring, then openshift":    "certificates: {mode: openshift}" + monitoringValues,
	"secret, and the lot":           caValues + "guard: {enabled: false}" + monitoringValues,
	"an old cluster":                "guard: {enabled: false}\nfences: {enabled: false}",
	"an old cluster, openshift":     "certificates: {mode: openshift}\nfences: {enabled: false}",
	"an old cluster, the other way": "guard: {enabled: false}\nfences: {enabled: false}",
	"no fences, then openshift":     "certificates: {mode: openshift}\nfences: {enabled: false}",
	"token audiences":               "tokenAudiences: {enabled: true}",
	"settings":                      "config: {aws-default-region: eu-central-1}",
	"settings, then cert-manager":   "config: {aws-default-region: eu-central-1}\ncertificates: {mode: certManager}",
}

func TestChartAndKustomizeRenderTheSameObjects(t *testing.T) {
	for name, components := range kustomizations {
		t.Run(name, func(t *testing.T) {
			v, found := sameValues[name]
			if !found {
				t.Fatal("there are no values for it")
			}
			chart := map[string]any{}
			for _, o := range render(t, defaultInstall, parseValues(t, v)).objects {
				if !o.isHook() {
					chart[o.key()] = normalized(o.Object)
				}
			}
			plain := map[string]any{}
			for _, o := range kustomize(t, ca, components...) {
				// Helm creates the namespace with --create-namespace.
				if o.GetKind() != "Namespace" {
					plain[hash.ReplaceAllString(o.key(), "$1")] = normalized(o.Object)
				}
			}
			if diff := cmp.Diff(plain, chart); diff != "" {
				t.Errorf("(-kustomize +chart):\n%s", diff)
			}
		})
	}
}

// hash is what kustomize appends to the name of the ConfigMap with the settings. It
// replaces the replicas after a change, as the annotation checksum/config does.
var hash = regexp.MustCompile(`(-config)-[a-z0-9]{10}$`)

// normalized returns a value without the labels that only Helm's users expect, with
// volumes, mounts and arguments in a fixed order, without the line breaks that
// kustomize inserts into CEL and base64, and without the hash of the settings.
func normalized(v any) any {
	switch v := v.(type) {
	case map[string]any:
		v = maps.Clone(v)
		for _, key := range []string{
			"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by",
		} {
			delete(v, key)
		}
		for key := range v {
			v[key] = normalizedField(key, v[key])
		}
		if annotations, _ := v["annotations"].(map[string]any); annotations["checksum/config"] != nil && len(annotations) == 1 {
			delete(v, "annotations")
		}
		return v
	case []any:
		v = slices.Clone(v)
		for i := range v {
			v[i] = normalized(v[i])
		}
		return v
	}
	return v
}

func normalizedField(key string, v any) any {
	text, _ := v.(string)
	list, isList := v.([]any)
	switch {
	case key == "expression" || key == "messageExpression":
		return strings.Join(strings.Fields(text), " ")
	case key == "caBundle":
		return strings.Join(strings.Fields(text), "")
	case key == "name":
		return hash.ReplaceAllString(text, "$1")
	case key == "args" && isList:
		return effective(list)
	case (key == "volumes" || key == "volumeMounts") && isList:
		sorted := normalized(list).([]any)
		slices.SortFunc(sorted, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
		})
		return sorted
	}
	return normalized(v)
}

// effective returns the arguments that take effect, by their flags. With a
// certificate from files, those of the self-managed certificate do not.
func effective(args []any) map[string]string {
	effective := map[string]string{}
	for _, arg := range args {
		flag, value, _ := strings.Cut(arg.(string), "=")
		effective[flag] = value
	}
	if effective["--certificate-source"] == "files" {
		maps.DeleteFunc(effective, func(flag, _ string) bool {
			return flag == "--webhook-configuration-name" ||
				strings.HasPrefix(flag, "--certificate-") && flag != "--certificate-source"
		})
	}
	return effective
}

// kustomize before 5.6, as in kubectl 1.32, panics if a file with several documents
// deletes objects. The kustomize of these tests is newer.
func TestNoFileWithSeveralDocumentsDeletes(t *testing.T) {
	files, err := filepath.Glob("../../deploy/components/*/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "$patch: delete") && strings.Contains(string(text), "\n---\n") {
			t.Errorf("%s deletes with several documents, want a patch with a target for each in kustomization.yaml", file)
		}
	}
}

func TestComponentsAreOfferedAndDocumented(t *testing.T) {
	entries, err := os.ReadDir(deployDir + "/components")
	if err != nil {
		t.Fatal(err)
	}
	offered := readFile(t, deployDir+"/kustomization.yaml")
	told := readFile(t, deployDir+"/README.md")
	for _, entry := range entries {
		name := entry.Name()
		if name == "certificate-files" { // part of others
			continue
		}
		if !strings.Contains(offered, "#   - components/"+name+"\n") {
			t.Errorf("kustomization.yaml does not offer components/%s", name)
		}
		if !strings.Contains(told, "| `"+name+"` |") {
			t.Errorf("README.md does not list %s", name)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(kustomizations)), func(c []string) bool { return slices.Contains(c, name) }) {
			t.Errorf("no kustomization of these tests has %s", name)
		}
	}
}

// The fences protect the credential file of each provider.
func TestTheHelpersFollowFromTheProviders(t *testing.T) {
	want, err := helpers()
	if err != nil {
		t.Fatal(err)
	}
	checkGenerated(t, filepath.Join(chartDir, "templates/_providers.tpl"), want)
}

// An installation by policies has the same fences as one with a webhook.
func TestTheFencesOfThePoliciesAreTheChartsFences(t *testing.T) {
	want, err := fencesTemplate()
	if err != nil {
		t.Fatal(err)
	}
	checkGenerated(t, "../../policies/templates/fences.yaml", want)
}

// With -update, the template of the test above is written before the files that are
// rendered with the template.
func TestGeneratedManifestsAreUpToDate(t *testing.T) {
	files, err := deployFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		checkGenerated(t, filepath.Join(deployDir, name), want)
	}
	entries, err := os.ReadDir(deployDir + "/base")
	if err != nil {
		t.Fatal(err)
	}
	byHand := []string{"kustomization.yaml"}
	for _, entry := range entries {
		if _, generated := files["base/"+entry.Name()]; generated == slices.Contains(byHand, entry.Name()) {
			t.Errorf("base/%s: generated: %t, want %t", entry.Name(), generated, !generated)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
