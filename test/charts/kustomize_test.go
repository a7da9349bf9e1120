// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// kustomizations are deploy/ with components.
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
}

// sameValues are what the chart is given to render the same.
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
					chart[o.key()] = withoutChartLabels(o.Object)
				}
			}
			plain := map[string]any{}
			for _, o := range kustomize(t, ca, components...) {
				// Helm makes the namespace, if it is told to.
				if o.GetKind() != "Namespace" {
					plain[o.key()] = withoutChartLabels(o.Object)
				}
			}
			if diff := cmp.Diff(plain, chart); diff != "" {
				t.Errorf("(-kustomize +chart):\n%s", diff)
			}
		})
	}
}

// withoutChartLabels takes off what Helm's users expect, in labels and
// selectors alike. In CEL and base64, kustomize has line ends of its own, which
// mean nothing.
func withoutChartLabels(v any) any {
	switch v := v.(type) {
	case map[string]any:
		v = maps.Clone(v)
		for _, key := range []string{
			"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by",
		} {
			delete(v, key)
		}
		for key := range v {
			switch text, _ := v[key].(string); key {
			case "expression", "messageExpression":
				v[key] = strings.Join(strings.Fields(text), " ")
			case "caBundle":
				v[key] = strings.Join(strings.Fields(text), "")
			default:
				v[key] = withoutChartLabels(v[key])
			}
		}
		return v
	case []any:
		v = slices.Clone(v)
		for i := range v {
			v[i] = withoutChartLabels(v[i])
		}
		return v
	}
	return v
}

func TestComponentsAreOfferedAndTold(t *testing.T) {
	entries, err := os.ReadDir(deployDir + "/components")
	if err != nil {
		t.Fatal(err)
	}
	offered := readFile(t, deployDir+"/kustomization.yaml")
	told := readFile(t, deployDir+"/README.md")
	for _, entry := range entries {
		name := entry.Name()
		if name == "certificate-files" { // a part of others
			continue
		}
		if !strings.Contains(offered, "#   - components/"+name+"\n") {
			t.Errorf("kustomization.yaml does not offer components/%s", name)
		}
		if !strings.Contains(told, "| `"+name+"` |") {
			t.Errorf("README.md does not tell of %s", name)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(kustomizations)), func(c []string) bool { return slices.Contains(c, name) }) {
			t.Errorf("no kustomization of these tests has %s", name)
		}
	}
}

// Some files are there twice: a chart can read no file outside of it, and
// neither can a kustomization.
func TestCopiesAreTheSame(t *testing.T) {
	for original, duplicate := range map[string]string{
		deployDir + "/base/70-guard.yaml":  chartDir + "/files/guard.yaml",
		chartDir + "/files/dashboard.json": deployDir + "/components/monitoring/lanyard.json",
	} {
		if diff := cmp.Diff(readFile(t, original), readFile(t, duplicate)); diff != "" {
			t.Errorf("run hack/chart-docs.sh: %s differs from %s", duplicate, original)
		}
	}
	var rules, rule map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, chartDir+"/files/rules.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(readFile(t, deployDir+"/components/monitoring/prometheusrule.yaml")), &rule); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(rules), rule["spec"]); diff != "" {
		t.Errorf("run hack/chart-docs.sh: prometheusrule.yaml differs from files/rules.yaml (-want +got):\n%s", diff)
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
