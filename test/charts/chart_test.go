// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"

	"github.com/lanyard-dev/lanyard/cmd/webhook/app"
)

func TestHelmLintFindsNothing(t *testing.T) {
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			for _, message := range lint.RunAll(chartDir, parseValues(t, set.values), namespace).Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
		})
	}
}

func TestTheReadmeIsGeneratedFromTheValues(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "tool", "helm-docs", "--dry-run",
		"--chart-search-root="+chartDir, "--sort-values-order=file", "--log-level=warning")
	var stderr strings.Builder
	command.Stderr = &stderr
	want, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	got := readFile(t, chartDir+"/README.md")
	if diff := cmp.Diff(strings.TrimSpace(string(want)), strings.TrimSpace(got)); diff != "" {
		t.Errorf("run make generate: README.md (-want +got):\n%s", diff)
	}
	paths := leaves(t)
	for _, path := range paths {
		if !strings.Contains(got, "\n| `"+path+"` |") {
			t.Errorf("README.md does not list %s", path)
		}
	}
	_, most, _ := strings.Cut(got, "\n| To | Set |\n")
	most, _, found := strings.Cut(most, "\n\n")
	if values := strings.Split(most, "`"); !found || len(values) < 20 {
		t.Errorf("README.md has no table of the most used values: %q", most)
	} else {
		for i := 1; i < len(values); i += 2 {
			if !slices.Contains(paths, values[i]) {
				t.Errorf("README.md: got %q among the most used values, want a value of the chart", values[i])
			}
		}
	}
}

func TestNotesWarnOfFragileSettings(t *testing.T) {
	old := installAs(release, namespace, kubeVersionWithoutGuard)
	for name, test := range map[string]struct {
		in     install
		values string
		want   []string
	}{
		"the default values":              {defaultInstall, "", nil},
		"no registry":                     {defaultInstall, "image: {registry: ''}", []string{"image.registry is empty"}},
		"the registry of a parent chart":  {defaultInstall, "image: {registry: ''}\nglobal: {imageRegistry: a}", nil},
		"a registry in the repository":    {defaultInstall, "image: {registry: '', repository: a.example/b}", nil},
		"one replica":                     {defaultInstall, "replicaCount: 1", []string{"replicaCount is 1", "nodes cannot be drained"}},
		"one replica, to be moved":        {defaultInstall, "replicaCount: 1\npodDisruptionBudget: {maxUnavailable: 1}", []string{"replicaCount is 1"}},
		"no disruption budget":            {defaultInstall, "podDisruptionBudget: {enabled: false}", []string{"draining nodes can stop all replicas"}},
		"Ignore without guard":            {defaultInstall, "guard: {enabled: false}\nwebhook: {failurePolicy: Ignore}", []string{"start without them, and stay so"}},
		"a guard that only warns":         {defaultInstall, "guard: {validationActions: [Warn]}\nwebhook: {failurePolicy: Ignore}", []string{"start without them, and stay so"}},
		"no guard":                        {defaultInstall, "guard: {enabled: false}", []string{"webhook.failurePolicy is Fail"}},
		"an old cluster":                  {old, "", []string{"older than Kubernetes 1.30", "webhook.failurePolicy is Fail"}},
		"no reinvocation":                 {defaultInstall, "webhook: {reinvocationPolicy: Never}", []string{"to which another webhook adds a container"}},
		"no metrics":                      {defaultInstall, "metrics: {enabled: false}", []string{"metrics.enabled is false"}},
		"an autoscaler":                   {defaultInstall, "replicaCount: null", nil},
		"an autoscaler and no budget":     {defaultInstall, "replicaCount: null\npodDisruptionBudget: {enabled: false}", []string{"draining nodes can stop all replicas"}},
		"no rights":                       {defaultInstall, "rbac: {create: false}", []string{"rbac.create is false: the ServiceAccount lanyard-webhook"}},
		"no rights for the checks":        {defaultInstall, "rbac: {create: false}\nchecks: {enabled: true}", []string{"lanyard-webhook, and for the checks lanyard-checks, needs the permissions"}},
		"the nodes' network":              {defaultInstall, "hostNetwork: true", []string{"hostNetwork is true"}},
		"replicas outside of the cluster": {defaultInstall, "replicaCount: 0\nwebhook: {url: 'https://127.0.0.1:9443'}", nil},
		"no replicas":                     {defaultInstall, "replicaCount: 0", []string{"replicaCount is 0", "nodes cannot be drained"}},
		"no test":                         {installAs(release, "default", kubeVersion), "test: {enabled: false}", nil},
		"nothing to test":                 {installAs(release, "default", kubeVersion), "", []string{"there is no helm test"}},
	} {
		t.Run(name, func(t *testing.T) {
			registry := parseValues(t, "image: {registry: registry.example}")
			notes := render(t, test.in, merge(registry, parseValues(t, test.values))).notes
			if got := strings.Count(notes, "WARNING: "); got != len(test.want) {
				t.Errorf("got %d warnings, want %d:\n%s", got, len(test.want), notes)
			}
			for _, want := range test.want {
				if !strings.Contains(notes, want) {
					t.Errorf("got no warning that contains %q:\n%s", want, notes)
				}
			}
		})
	}
}

func TestNotesNameExistingObjects(t *testing.T) {
	r := render(t, installAs("blue", "security", kubeVersion), nil)
	one(t, r.objects, "ValidatingAdmissionPolicyBinding/blue-lanyard-guard-pods")
	one(t, r.objects, "ValidatingAdmissionPolicyBinding/blue-lanyard-guard-injected")
	for _, want := range []string{
		"deployment/" + find(r.objects, "Deployment")[0].GetName() + " --namespace security",
		"mutatingwebhookconfiguration/" + find(r.objects, "MutatingWebhookConfiguration")[0].GetName() + " ",
		"validatingwebhookconfiguration/" + find(r.objects, "ValidatingWebhookConfiguration")[0].GetName() + " ",
		"validatingadmissionpolicybinding/blue-lanyard-guard-pods validatingadmissionpolicybinding/blue-lanyard-guard-injected\n",
		"helm test blue --namespace security",
		"lanyard.dev/aws-role-arn=",
	} {
		if !strings.Contains(r.notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, r.notes)
		}
	}
}

func TestTheTestCreatesAPodWhereItIsInjected(t *testing.T) {
	r := render(t, defaultInstall, parseValues(t, "test: {namespace: shop}\npodLabels: {team: platform}"))
	hooks := map[string]object{}
	for _, o := range r.objects {
		if o.isHook() {
			hooks[o.key()] = o
			if o.GetAnnotations()["helm.sh/hook"] != "test" || !strings.Contains(o.GetAnnotations()["helm.sh/hook-delete-policy"], "before-hook-creation") {
				t.Errorf("%s: got %v", o.key(), o.GetAnnotations())
			}
		}
	}
	account, pod := hooks["ServiceAccount/shop/lanyard-test"], hooks["Pod/lanyard-system/lanyard-test"]
	if account.GetAnnotations()["lanyard.dev/audience"] != "helm-test" {
		t.Errorf("the ServiceAccount needs no credentials: %v", account.GetAnnotations())
	}
	want := []string{"check", "--namespace=shop", "--service-account=lanyard-test",
		`--overrides={"metadata":{"labels":{"app.kubernetes.io/instance":"lanyard","team":"platform"}},"spec":{"containers":[{"image":"lanyard-webhook:0.1.0"}]}}`}
	if diff := cmp.Diff(want, podSpecs(t, []object{pod})[pod.key()].Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if command, arguments, err := app.NewCommand(nil).Find(want); err != nil || command.Name() != "check" || command.ParseFlags(arguments) != nil {
		t.Errorf("the program does not accept %q: %v", want, err)
	}
	if len(hooks) != 5 {
		t.Errorf("got %d hooks, want 5", len(hooks))
	}
	for key, spec := range podSpecs(t, render(t, defaultInstall, parseValues(t, "test: {image: mirror.example/check:v1}")).objects) {
		if want := strings.HasPrefix(key, "Pod/"); strings.HasPrefix(spec.Containers[0].Image, "mirror.example/") != want {
			t.Errorf("%s: got the image %s", key, spec.Containers[0].Image)
		}
	}
	r = render(t, defaultInstall, parseValues(t, "test: {enabled: false}"))
	if slices.ContainsFunc(r.objects, object.isHook) || strings.Contains(r.notes, "helm test") {
		t.Errorf("there is a test:\n%s", r.notes)
	}
	for _, o := range render(t, installAs(release, "default", kubeVersion), nil).objects {
		if o.isHook() {
			t.Errorf("%s would test an excluded namespace", o.key())
		}
	}
}
