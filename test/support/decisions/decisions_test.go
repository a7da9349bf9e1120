// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decisions_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/support/decisions"
)

const dir = "../../decisions"

const (
	account  = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: app, namespace: team}\n"
	pod      = "apiVersion: v1\nkind: Pod\nmetadata: {name: pod, namespace: team}\nspec: {containers: [{name: main}]}\n"
	config   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lanyard-webhook-config, namespace: lanyard-system}\n"
	expected = "# reason: no_identity\n"
)

func join(documents ...string) string { return strings.Join(documents, "---\n") }

func TestInvalidCaseFilesAreErrors(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct{ text, want string }{
		"nothing is expected":             {join(account, pod), "the file does not say what is expected"},
		"what is expected is empty":       {join(account, pod, "#\n"), "document 3: the document is empty"},
		"it is in the middle":             {join(account, expected, pod), `document 2: got apiVersion "" and the name ""`},
		"it is behind the pod":            {join(account, pod+expected), "the file does not say what is expected"},
		"an unknown field is expected":    {join(account, pod, "# reasons: []\n"), `document 3: error unmarshaling JSON: while decoding JSON: json: unknown field "reasons"`},
		"there is no pod":                 {join(account, expected), "the pod is missing"},
		"there are two pods":              {join(account, pod, pod, expected), "document 3: the object is there twice"},
		"a document is of another kind":   {join(strings.Replace(account, "ServiceAccount", "Secret", 1), pod, expected), "document 1: Secret team/app is no part of a case"},
		"a document has another name":     {join(strings.Replace(account, "app", "other", 1), pod, expected), "document 1: ServiceAccount team/other is no part of a case"},
		"a document has no name":          {join(account, strings.Replace(pod, "name: pod, ", "", 1), expected), `document 2: got apiVersion "v1" and the name ""`},
		"a document has no version":       {join(account, strings.TrimPrefix(pod, "apiVersion: v1\n"), expected), `document 2: got apiVersion ""`},
		"a document is not YAML":          {join(account, "a: b: c\n", expected), "document 2: yaml: mapping values are not allowed"},
		"the settings have another key":   {join(account, config+"data: {config.yml: a}\n", pod, expected), "document 2: the object is there twice, or is empty"},
		"a ConfigMap has more than these": {join(account, config+"data: {config.yaml: a, other: b}\n", pod, expected), "document 2: ConfigMap lanyard-system/lanyard-webhook-config is no part of a case"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			write(t, filepath.Join(root, "theme", "case.yaml"), tt.text)
			if _, err := decisions.Read(root); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAFileInAnotherPlaceIsAnError(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"case.yaml", "theme/deeper/case.yaml", "theme/case.yml"} {
		root := t.TempDir()
		write(t, filepath.Join(root, name), join(account, pod, expected))
		if _, err := decisions.Read(root); err == nil || !strings.Contains(err.Error(), "the name of a case is THEME/CASE.yaml") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// Write does not change what was written by hand.
func TestExpectationsAreWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	input := "# A comment.\n" + join(account, "# Another.\n"+strings.ReplaceAll(pod, "{name: main}", "{ name:   main }"))
	for sentence, before := range map[string]string{
		"a new file":                    input,
		"a new file with a separator":   input + "---\n",
		"a file that expects something": join(input, expected),
	} {
		root := t.TempDir()
		file := filepath.Join(root, "theme", "case.yaml")
		write(t, file, before)
		cases, err := decisions.ReadInputs(root)
		if err != nil {
			t.Fatalf("%s: %v", sentence, err)
		}
		cases[0].Want = &decisions.Want{Reason: "other"}
		if err := cases[0].Write(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(join(input, "# reason: other\n"), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// result holds a pod before and after the webhooks, and the additions that the file lists.
type result struct {
	name          string
	before, after []byte
	additions     *decisions.Additions
}

// results returns the results of all cases.
func results(t *testing.T) []result {
	t.Helper()
	cases, err := decisions.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := decisions.ReadPeers(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []result
	for _, c := range append(cases, pairs...) {
		additions := map[string]*decisions.Additions{"": &c.Want.Additions}
		before := c.Pod
		if c.Theme == decisions.Peers {
			additions = map[string]*decisions.Additions{", peer first": &c.Want.PeerFirst.Additions, ", Lanyard first": &c.Want.LanyardFirst.Additions}
			before = typed(t, c.Pod)
		}
		for order, a := range additions {
			after, err := a.AddTo(before)
			if err != nil {
				t.Fatalf("%s: %v", c.File, err)
			}
			all = append(all, result{c.Theme + "/" + c.Name + order, before, after, a})
		}
	}
	return all
}

func TestAdditionsThatThePodCannotHaveAreAnError(t *testing.T) {
	t.Parallel()
	const pod = `{"spec":{"containers":[{"name":"main"}],"volumes":[{"name":"a"},{"name":"b"}]}}`
	for want, a := range map[string]*decisions.Additions{
		"container main: it is there twice":                {Containers: map[string][]any{"every container": nil, "main, other": nil}},
		"volumes: the pod has no c":                        {Volumes: []any{"c"}},
		"volumes: only some of the pod's own have a place": {Volumes: []any{"a"}},
	} {
		if _, err := a.AddTo([]byte(pod)); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// typed returns the pod as a webhook of another program writes it.
func typed(t *testing.T, text []byte) []byte {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The files have the format that make update-golden writes.
func TestExpectationsHaveOneFormat(t *testing.T) {
	t.Parallel()
	for _, r := range results(t) {
		got, err := decisions.Added(r.before, r.after)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		if diff := cmp.Diff(comment(r.additions), comment(got)); diff != "" {
			t.Errorf("%s (-file +notation):\n%s", r.name, diff)
		}
	}
	cases, err := decisions.ReadInputs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if !bytes.HasSuffix(c.Text, []byte("\n---\n"+c.Want.Comment())) {
			t.Errorf("%s does not end with\n%s", c.File, c.Want.Comment())
		}
	}
}

func comment(a *decisions.Additions) string { return (&decisions.Want{Additions: *a}).Comment() }

// everyKind lists cases that together contain every kind of line.
var everyKind = map[string]bool{
	"aws/profiles":     true,
	"aws/session-name": true,
	"containers/volume-name-used-for-something-else":      true,
	"ephemeral/ephemeral-container-beside-an-earlier-one": true,
	"marks/label-of-an-injected-pod-in-a-template":        true,
	"opt-out/opted-out":                                         true,
	"peers/eks-container-credentials, peer first":               true,
	"peers/gcp-credential-file-of-the-container, Lanyard first": true,
	"peers/gcp-gcloud, peer first":                              true,
	"several/three-clouds-in-every-kind-of-container":           true,
}

// The additions describe the whole pod: for a pod that differs anywhere, Added returns other
// additions or an error.
func TestTwoResultsHaveTwoTexts(t *testing.T) {
	t.Parallel()
	changes := 0
	for _, r := range results(t) {
		if !everyKind[r.name] {
			continue
		}
		want := comment(r.additions)
		var after any
		if err := json.Unmarshal(r.after, &after); err != nil {
			t.Fatal(err)
		}
		eachChange(after, func(what string) {
			changes++
			changed, err := json.Marshal(after)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := decisions.Added(r.before, changed); err == nil && comment(got) == want {
				t.Errorf("%s: %s changes nothing in\n%s", r.name, what, want)
			}
		})
	}
	if changes < 1000 {
		t.Errorf("got %d changes", changes)
	}
}

// eachChange makes each change to a value in turn, calls do, and undoes it: it changes a text or
// a number, adds or removes a field, exchanges two items, and removes an item.
func eachChange(value any, do func(what string)) {
	switch v := value.(type) {
	case map[string]any:
		for key, old := range v {
			delete(v, key)
			do("without " + key)
			v[key] = old
			if other := otherThan(old); other != nil {
				v[key] = other
				do("another " + key)
				v[key] = old
			}
			eachChange(old, do)
		}
		v["other"] = "field"
		do("another field")
		delete(v, "other")
	case []any:
		for i := range v {
			if i > 0 {
				v[i-1], v[i] = v[i], v[i-1]
				do("another order")
				v[i-1], v[i] = v[i], v[i-1]
			}
			eachChange(v[i], do)
		}
	}
}

// otherThan returns another value of the same kind, or a list with an item less.
func otherThan(value any) any {
	switch v := value.(type) {
	case string:
		return v + "x"
	case float64:
		return v + 1
	case bool:
		return !v
	case []any:
		if len(v) > 0 {
			return slices.Clone(v[:len(v)-1])
		}
	}
	return nil
}
