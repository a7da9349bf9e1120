// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/migrate"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// change makes the same change in all objects of a text. It checks the diff with git.
func change(t *testing.T, text string, c migrate.Change) (plan *migrate.Plan, after, diff string) {
	t.Helper()
	m, err := migrate.ReadManifest("dir/app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Objects) == 0 {
		t.Fatal("got no objects")
	}
	plan = &migrate.Plan{}
	for _, o := range m.Objects {
		c.Object = o
		if o.Name != "other" {
			plan.Changes = append(plan.Changes, c)
		}
	}
	after, diff = plan.Rewrite(m)
	checkDiff(t, text, after, diff)
	return plan, after, diff
}

// checkDiff applies the diff with git, as a user does.
func checkDiff(t *testing.T, before, after, diff string) {
	t.Helper()
	if diff == "" {
		if before != after {
			t.Error("got a change without a diff")
		}
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "dir", "app.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	cmd.Stdin = strings.NewReader(diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v: %s\n%s", err, out, diff)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, string(got)); diff != "" {
		t.Errorf("git apply (-want +got):\n%s", diff)
	}
}

const head = "apiVersion: v1\nkind: ServiceAccount\n"

func TestAChangeKeepsEverythingElse(t *testing.T) {
	t.Parallel()
	add := map[string]string{"l/a": "arn:aws:iam::1:role/x", "l/b": "86400"}
	for sentence, tt := range map[string]struct {
		text, want  string
		set         map[string]string
		remove      []string
		path        []string
		wantSkipped string
	}{
		"after the last annotation": {
			text: head + "metadata: # about it\n    annotations:\n        # a comment\n        x: 'y' # why\n\n    name: app\n",
			set:  add,
			want: head + "metadata: # about it\n    annotations:\n        # a comment\n        x: 'y' # why\n        l/a: arn:aws:iam::1:role/x\n        l/b: \"86400\"\n\n    name: app\n",
		},
		"at the end without a newline": {
			text: head + "metadata:\n  name: app\n  annotations:\n    x: y",
			set:  add,
			want: head + "metadata:\n  name: app\n  annotations:\n    x: y\n    l/a: arn:aws:iam::1:role/x\n    l/b: \"86400\"",
		},
		"without any annotations": {
			text: "# first\n" + head + "metadata:\n  name: app # its name\n  labels: {a: b}\n---\n",
			set:  map[string]string{"l/a": "true"},
			want: "# first\n" + head + "metadata:\n  name: app # its name\n  annotations:\n    l/a: \"true\"\n  labels: {a: b}\n---\n",
		},
		"after a text of several lines": {
			text: head + "metadata:\n  annotations:\n    x: y\n    z: |\n      one\n      two\n  name: app\n",
			set:  map[string]string{"l/a": "b"},
			want: head + "metadata:\n  annotations:\n    x: y\n    l/a: b\n    z: |\n      one\n      two\n  name: app\n",
		},
		"before a text of several lines": {
			text: head + "metadata:\n  annotations:\n    z: >-\n      one\n      two\n  name: app\n",
			set:  map[string]string{"l/a": "b"},
			want: head + "metadata:\n  annotations:\n    l/a: b\n    z: >-\n      one\n      two\n  name: app\n",
		},
		"empty annotations": {
			text:        head + "metadata:\n  annotations: {} # none\n  name: app\n",
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "not in block style",
		},
		"no value": {
			text: head + "metadata:\n  annotations:\n  name: app\n",
			set:  map[string]string{"l/a": "b"},
			want: head + "metadata:\n  annotations:\n    l/a: b\n  name: app\n",
		},
		"braces": {
			text:        head + "metadata: {name: app, annotations: {x: y}}\n",
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "not in block style",
		},
		"braces without annotations": {
			text:        head + "metadata: {name: app}\n",
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "not in block style",
		},
		"JSON": {
			text:        "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"ServiceAccount\",\n  \"metadata\": {\n    \"annotations\": {\n      \"x\": \"y\"\n    },\n    \"name\": \"app\"\n  }\n}\n",
			set:         add,
			wantSkipped: "not in block style",
		},
		"JSON without annotations": {
			text:        "{\"apiVersion\": \"v1\", \"kind\": \"ServiceAccount\",\n  \"metadata\": {\n    \"name\": \"app\"\n  }\n}",
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "not in block style",
		},
		"the second document, with other line ends": {
			text: strings.ReplaceAll("# c\n"+head+"metadata:\n  name: other\n---\n"+head+"metadata:\n  name: two\n", "\n", "\r\n"),
			set:  map[string]string{"l/a": "b"},
			want: strings.ReplaceAll("# c\n"+head+"metadata:\n  name: other\n---\n"+head+"metadata:\n  name: two\n  annotations:\n    l/a: b\n", "\n", "\r\n"),
		},
		"an object of a list": {
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata: {name: other}\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata:\n    name: two\n",
			set:  map[string]string{"l/a": "b"},
			want: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata: {name: other}\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata:\n    name: two\n    annotations:\n      l/a: b\n",
		},
		"a pod template": {
			text: "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app\nspec:\n  template:\n    metadata:\n      annotations:\n        x: y\n    spec: {}\n",
			path: []string{"spec", "template"},
			set:  map[string]string{"l/a": "b"},
			want: "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app\nspec:\n  template:\n    metadata:\n      annotations:\n        x: y\n        l/a: b\n    spec: {}\n",
		},
		"a removed annotation": {
			text:   head + "metadata:\n  annotations:\n    x: y # gone\n    # stays\n    z: w\n",
			remove: []string{"x"},
			want:   head + "metadata:\n  annotations:\n    # stays\n    z: w\n",
		},
		"one in place of another": {
			text:   head + "metadata:\n  annotations:\n    x: y\n  name: app\n",
			set:    map[string]string{"l/a": "b"},
			remove: []string{"x"},
			want:   head + "metadata:\n  annotations:\n    l/a: b\n  name: app\n",
		},
		"the last annotation removed": {
			text:   head + "metadata:\n  annotations:\n    x: y\n    z: w\n  name: app\n",
			remove: []string{"x", "z"},
			want:   head + "metadata:\n  name: app\n",
		},
		"one removed from braces": {
			text:        head + "metadata: {annotations: {x: y, z: w}, name: app}\n",
			remove:      []string{"x"},
			wantSkipped: "not in block style",
		},
		"another value": {
			text: head + "metadata:\n  annotations:\n    l/a: \"old\"\n    z: w\n",
			set:  map[string]string{"l/a": "new"},
			want: head + "metadata:\n  annotations:\n    l/a: new\n    z: w\n",
		},
		"another value with a comment is skipped": {
			text:        head + "metadata:\n  annotations:\n    l/a: old # why\n",
			set:         map[string]string{"l/a": "new"},
			wantSkipped: "comment",
		},
		"metadata in the line of its key": {
			text:        head + "metadata: {name: app,\n  annotations: {x: y}}\n",
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "line 3: metadata is not in block style",
		},
		"nothing left in the metadata": {
			text:        head + "metadata:\n  annotations:\n    x: y\n",
			remove:      []string{"x"},
			wantSkipped: "would be empty",
		},
		"an alias is skipped": {
			text:        head + "x: &x {a: b}\nmetadata:\n  annotations: *x\n",
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "line ",
		},
		"an anchor that others use is skipped": {
			text:        head + "metadata:\n  annotations: &x\n    a: b\n  labels: *x\n",
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "line ",
		},
		"a removed text of several lines is skipped": {
			text:        head + "metadata:\n  annotations:\n    x: |\n      one\n    z: w\n",
			remove:      []string{"x"},
			wantSkipped: "more than one line",
		},
		"no such object is skipped": {
			text:        head + "metadata:\n  name: app\n",
			path:        []string{"spec"},
			set:         map[string]string{"l/a": "b"},
			wantSkipped: "line ",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			plan, after, _ := change(t, tt.text, migrate.Change{Path: tt.path, Set: tt.set, Remove: tt.remove})
			if tt.wantSkipped != "" {
				if len(plan.Items) != 1 || plan.Items[0].Result != peer.Manual || !strings.Contains(plan.Items[0].Why, tt.wantSkipped) {
					t.Errorf("got %+v, want it by hand, with %q", plan.Items, tt.wantSkipped)
				}
				tt.want = tt.text
			} else if len(plan.Items) > 0 {
				t.Errorf("got %+v, want no items", plan.Items)
			}
			if diff := cmp.Diff(tt.want, after); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// add is a change that adds an annotation.
var add = migrate.Change{Set: map[string]string{"l/a": "b"}}

func TestADiffHasHunksWithContext(t *testing.T) {
	t.Parallel()
	object := head + "metadata:\n  name: app\n# 1\n# 2\n# 3\n# 4\n# 5\n# 6\n# 7\n"
	_, _, diff := change(t, strings.Repeat(object+"---\n", 3), add)
	if got := strings.Count(diff, "@@ -"); got != 3 {
		t.Errorf("got %d hunks, want 3:\n%s", got, diff)
	}
	if want := "@@ -26,6 +30,8 @@"; !strings.Contains(diff, want) {
		t.Errorf("got\n%s\nwant %s: two lines are added twice before", diff, want)
	}
}

func TestTheLinesAfterAHunkWithTwoEdits(t *testing.T) {
	t.Parallel()
	text := head + "metadata:\n  annotations:\n    x: y\n    z: w\n    v: u\n" + strings.Repeat("# c\n", 10) + "---\n" + head + "metadata:\n  name: app\n"
	_, _, diff := change(t, text, migrate.Change{Set: add.Set, Remove: []string{"x"}})
	if want := "@@ -20,3 +20,5 @@"; !strings.Contains(diff, want) {
		t.Errorf("got\n%s\nwant %s: one line is removed, and one is added before", diff, want)
	}
}

func TestOneSkippedChangeDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	text := ""
	for i := range 40 {
		switch i {
		case 7:
			text += head + "x: &x {a: b}\nmetadata:\n  name: alias\n  annotations: *x\n---\n"
		case 23:
			text += head + "metadata:\n  name: anchor\n  annotations: &y\n    a: b\n  labels: *y\n---\n"
		default:
			text += head + "metadata:\n  name: app\n---\n"
		}
	}
	plan, after, _ := change(t, text, add)
	if got := strings.Count(after, "l/a: b"); got != 38 || len(plan.Items) != 2 || plan.Items[0].Object != "serviceaccount/alias" || plan.Items[1].Object != "serviceaccount/anchor" {
		t.Errorf("got %d changes and %+v, want 38, and two items by hand", got, plan.Items)
	}
}

func TestALongFileIsChangedInOneGo(t *testing.T) {
	t.Parallel()
	// Reading it again for each object would take minutes.
	plan, after, _ := change(t, strings.Repeat(head+"metadata:\n  name: app\n---\n", 5000), add)
	if got := strings.Count(after, "l/a: b"); got != 5000 || len(plan.Items) > 0 {
		t.Errorf("got %d changes and %+v, want 5000", got, plan.Items)
	}
}

func TestManifestErrors(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := byte('b'); i < 'i'; i++ {
		bomb += string(i) + ": &" + string(i) + " [" + strings.Repeat("*"+string(i-1)+",", 9) + "*" + string(i-1) + "]\n"
	}
	for sentence, tt := range map[string]struct{ text, want string }{
		"a template":               {"a: {{ .Values.x }}\nb: {{", "line"},
		"a key twice":              {"a: b\na: c\n", "already defined at line 1"},
		"aliases for very much":    {bomb, "excessive aliasing"},
		"a text that is no YAML":   {"\x00", "control characters"},
		"brackets without an end":  {strings.Repeat("[", 20000), "exceeded max depth"},
		"an unknown anchor":        {"a: *x\n", "unknown anchor"},
		"a second document of it":  {"a: b\n---\na: [\n", "line"},
		"a mapping that is a list": {"a: b\n- c\n", "line"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if _, err := migrate.ReadManifest("a", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// FuzzRewrite checks that a change never changes anything but the annotations: if the new
// text were wrong, the change would be left to the user.
func FuzzRewrite(f *testing.F) {
	f.Add([]byte(head+"metadata:\n  annotations:\n    a: b\n  name: x\n"), "l/a", "b")
	f.Add([]byte(head+"metadata: {name: x}\n"), "l/a", "86400")
	f.Add([]byte(head+"metadata:\n - a"), "a", "")
	f.Fuzz(func(t *testing.T, text []byte, key, value string) {
		if len(text) > 1<<12 {
			return
		}
		m, err := migrate.ReadManifest("x", text)
		if err != nil {
			return
		}
		plan := &migrate.Plan{}
		for _, o := range m.Objects {
			plan.Changes = append(plan.Changes, migrate.Change{Object: o, Set: map[string]string{key: value}, Remove: []string{"b"}})
		}
		text1, diff := plan.Rewrite(m)
		after, err := migrate.ReadManifest("x", []byte(text1))
		if err != nil || len(after.Objects) != len(m.Objects) || (diff == "") != (text1 == string(text)) {
			t.Fatalf("got %q: %v", text1, err)
		}
		if len(plan.Items) > 0 {
			return
		}
		for _, o := range after.Objects {
			values := o.Annotations
			if o.Pod != nil {
				continue
			}
			if values[key] != value {
				t.Fatalf("got %q, want %q: %q", values, key, value)
			}
		}
	})
}
