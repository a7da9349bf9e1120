// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

const (
	role    = "arn:aws:iam::111122223333:role/app"
	account = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: app
  annotations:
    lanyard.dev/aws-role-arn: ` + role + "\n"
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    spec:
      serviceAccountName: app
      containers:
      - name: main
        image: image
`
	namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n"
)

func join(documents ...string) string { return strings.Join(documents, "---\n") }

// item indents a document as an item of a list.
func item(document string) string {
	return "- " + strings.ReplaceAll(strings.TrimSuffix(document, "\n"), "\n", "\n  ") + "\n"
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	changedAccount := inject.Result{Object: "serviceaccount/app", Namespace: "team", Changed: true, Reason: reason.Labeled}
	changed := inject.Result{Object: "deployment/web", Namespace: "team", Changed: true, Reason: reason.Injected}
	tests := map[string]struct {
		text string
		want []inject.Result
	}{
		"a Deployment and its ServiceAccount":   {join(account, deployment), []inject.Result{changedAccount, changed}},
		"the ServiceAccount may come last":      {join(deployment, account), []inject.Result{changed, changedAccount}},
		"a List":                                {"apiVersion: v1\nkind: List\nitems:\n" + item(account) + item(deployment), []inject.Result{changedAccount, changed}},
		"the deprecated name of the field":      {join(account, strings.Replace(deployment, "serviceAccountName", "serviceAccount", 1)), []inject.Result{changedAccount, changed}},
		"other objects are left as they are":    {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\n", nil},
		"a custom kind with a pod template":     {strings.Replace(deployment, "apps/v1", "example.com/v1", 1), []inject.Result{{Object: "deployment/web", Namespace: "team", Reason: reason.ServiceAccountNotFound, Message: "the manifests do not have its ServiceAccount"}}},
		"comments only":                         {"# a comment\n", nil},
		"nothing":                               {"", nil},
		"an earlier version of the kind":        {join(account, strings.Replace(deployment, "apps/v1", "apps/v1beta1", 1)), []inject.Result{changedAccount, changed}},
		"a ServiceAccount that is not there":    {deployment, []inject.Result{{Object: "deployment/web", Namespace: "team", Reason: reason.ServiceAccountNotFound, Message: "the manifests do not have its ServiceAccount"}}},
		"a ServiceAccount of another namespace": {join(strings.Replace(account, "name: app", "name: app\n  namespace: other", 1), deployment), []inject.Result{{Object: "serviceaccount/app", Namespace: "other", Changed: true, Reason: reason.Labeled}, {Object: "deployment/web", Namespace: "team", Reason: reason.ServiceAccountNotFound, Message: "the manifests do not have its ServiceAccount"}}},
		"a namespace that opts out":             {join(account, deployment, namespace+"  labels:\n    lanyard.dev/inject: disabled\n"), []inject.Result{changedAccount, {Object: "deployment/web", Namespace: "team", Reason: reason.OptedOut, Message: "its namespace opts out"}}},
		"a namespace that opts in":              {join(account, deployment, namespace+"  labels:\n    lanyard.dev/inject: enabled\n"), []inject.Result{changedAccount, changed}},
		"a pod template that opts out":          {join(account, strings.Replace(deployment, "    spec:\n", "    metadata:\n      labels:\n        lanyard.dev/inject: \"false\"\n    spec:\n", 1)), []inject.Result{changedAccount, {Object: "deployment/web", Namespace: "team", Reason: reason.OptedOut}}},
		"a namespace that the webhook leaves out": {
			join(strings.Replace(account, "  name: app\n", "  name: app\n  namespace: kube-system\n", 1), strings.Replace(deployment, "  name: web\n", "  name: web\n  namespace: kube-system\n", 1)),
			[]inject.Result{{Object: "deployment/web", Namespace: "kube-system", Reason: reason.OptedOut, Message: "its namespace opts out"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := injectText(t, defaults(t), test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

func TestASecondTimeNothingChanges(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"documents": join(account, deployment),
		"a List":    "apiVersion: v1\nkind: List\nitems:\n" + item(account) + item(deployment),
	} {
		_, first := injectText(t, defaults(t), text)
		if !strings.Contains(first, "lanyard.dev/injected: aws") {
			t.Errorf("%s: got %s, want it injected", name, first)
		}
		results, second := injectText(t, defaults(t), first)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s: output (-first +second):\n%s", name, diff)
		}
		for _, result := range results {
			if result.Changed || result.Denied {
				t.Errorf("%s: got %+v", name, result)
			}
		}
	}
}

// What does not change keeps its comments, its order and its style.
func TestOtherDocumentsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	const before, after = "# before\nkind: ConfigMap # here\napiVersion: v1\ndata: {z: '1', a: \"2\"}\n", "kind: Secret\napiVersion: v1\nstringData:\n    text: |-\n        line\n"
	_, out := injectText(t, defaults(t), join(before, account, deployment, after))
	if !strings.HasPrefix(out, before+"---\n") || !strings.HasSuffix(out, "---\n"+after) {
		t.Errorf("got %s", out)
	}
	if got := strings.Count(out, "\n---\n"); got != 3 {
		t.Errorf("got %d separators, want 3:\n%s", got, out)
	}
}

// A controller would treat other numbers and other text as a change.
func TestValuesStayAsTheyAre(t *testing.T) {
	t.Parallel()
	const odd = `        args: ["&&", "<a>", "1e3", "no", "0777"]
        securityContext: {runAsUser: 9007199254740993}
`
	_, out := injectText(t, defaults(t), join(account, deployment+odd))
	for _, want := range []string{"- '&&'", "- <a>", `- "1e3"`, `- "no"`, `- "0777"`, "runAsUser: 9007199254740993"} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want it to contain %q", out, want)
		}
	}
}

func TestJSONStaysJSON(t *testing.T) {
	t.Parallel()
	const (
		untouched = `{"kind":"ConfigMap",   "apiVersion":"v1"}`
		pod       = `{"spec":{"containers":[{"name":"main","args":["&&"],"image":"image"}],"serviceAccountName":"app"},"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod"}}`
		owner     = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"app","annotations":{"lanyard.dev/aws-role-arn":"` + role + `"}}}`
	)
	_, out := injectText(t, defaults(t), untouched+"\n"+pod+owner)
	if !strings.HasPrefix(out, untouched+"\n{\n    \"spec\": {\n        \"containers\": [\n") || strings.Contains(out, "---") {
		t.Errorf("got %s, want the objects in JSON, and their members in the former order", out)
	}
	if !strings.Contains(out, `"&&"`) || !strings.Contains(out, `"lanyard.dev/injected": "aws"`) {
		t.Errorf("got %s", out)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"malformed YAML":          {"a: b: c\n", "test: document 1: "},
		"an alias of itself":      {"a: &a [*a]\n", "test: document 1: yaml: anchor 'a' value contains itself"},
		"a key twice":             {join(account, "a: 1\na: 2\n"), "test: document 2: "},
		"no object":               {"- a\n- b\n", "test: not an object of Kubernetes"},
		"no kind":                 {"a: 1\n", `test: not an object of Kubernetes: apiVersion is "" and kind is ""`},
		"a List in a List":        {"apiVersion: v1\nkind: List\nitems:\n" + item("apiVersion: v1\nkind: List\nmetadata:\n  name: inner\nitems:\n"+item(account)), "test: list/inner: items.0 is a List in a List: write its items into the outer List"},
		"an item without a kind":  {"apiVersion: v1\nkind: List\nitems:\n- a: 1\n", `test: not an object of Kubernetes: apiVersion is "" and kind is ""`},
		"no pod template":         {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n", "test: deployment/web: the pod template is missing"},
		"a spec of another type":  {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: 1\n", "test: deployment/web: the pod template is missing"},
		"containers that are not": {join(account, strings.Replace(deployment, "      - name: main\n        image: image\n", "        main: 1\n", 1)), "test: deployment/web: pod: spec: containers"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, err := inject.Read("test", []byte(test.text))
			if err == nil {
				_, err = inject.Inject(t.Context(), documents, defaults(t).Settings, "team", nil)
			}
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestMappings(t *testing.T) {
	t.Parallel()
	plain := "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: app\n"
	o := defaults(t)
	mapping, errs := o.NewMapping("team", "ap*", map[string]string{annotations.AWSRoleARN: role})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	o.Mappings = []*annotations.Mapping{mapping}
	mapped := inject.Result{Object: "serviceaccount/app", Namespace: "team", Changed: true, Reason: reason.Mapped}
	injected := inject.Result{Object: "deployment/web", Namespace: "team", Changed: true, Reason: reason.Injected}
	for name, test := range map[string]struct {
		excluded []string
		text     string
		want     []inject.Result
	}{
		"a ServiceAccount that matches":              {nil, join(plain, deployment), []inject.Result{mapped, injected}},
		"the ServiceAccount may come last":           {nil, join(deployment, plain), []inject.Result{injected, mapped}},
		"a namespace that the webhook leaves out":    {[]string{"team"}, join(plain, deployment), []inject.Result{{Object: "deployment/web", Namespace: "team", Reason: reason.OptedOut, Message: "its namespace opts out"}}},
		"a ServiceAccount that has annotations":      {nil, join(account, deployment), []inject.Result{{Object: "serviceaccount/app", Namespace: "team", Changed: true, Reason: reason.Labeled}, injected}},
		"a ServiceAccount whose name does not match": {nil, strings.ReplaceAll(join(plain, deployment), ": app\n", ": other\n"), []inject.Result{{Object: "serviceaccount/other", Namespace: "team", Reason: reason.NoIdentity}, {Object: "deployment/web", Namespace: "team", Reason: reason.NoIdentity}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := *o.Settings
			s.ExcludedNamespaces = test.excluded
			got, out := injectText(t, &options{Settings: &s, Namespace: o.Namespace}, test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if injected := strings.Contains(out, role); injected != got[0].Changed {
				t.Errorf("the role is in the output: got %t, want %t:\n%s", injected, got[0].Changed, out)
			}
		})
	}
}
