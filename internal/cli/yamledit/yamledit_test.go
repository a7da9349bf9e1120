// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yamledit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/yamledit"
)

func edit(t *testing.T, text string, e yamledit.Edit) *yamledit.Result {
	t.Helper()
	f, err := yamledit.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Objects) == 0 {
		t.Fatal("got no objects")
	}
	e.Object = f.Objects[len(f.Objects)-1]
	result := f.Edit("dir/app.yaml", []yamledit.Edit{e})
	checkDiff(t, text, result)
	return result
}

// checkDiff applies the diff with git, as a user does.
func checkDiff(t *testing.T, before string, result *yamledit.Result) {
	t.Helper()
	if result.Diff == "" {
		if before != string(result.Text) {
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
	cmd.Stdin = strings.NewReader(result.Diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v: %s\n%s", err, out, result.Diff)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(result.Text), string(got)); diff != "" {
		t.Errorf("git apply (-want +got):\n%s", diff)
	}
}

const head = "apiVersion: v1\nkind: ServiceAccount\n"

func TestAnEditKeepsEverythingElse(t *testing.T) {
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
			text: strings.ReplaceAll("# c\n"+head+"metadata:\n  name: one\n---\n"+head+"metadata:\n  name: two\n", "\n", "\r\n"),
			set:  map[string]string{"l/a": "b"},
			want: strings.ReplaceAll("# c\n"+head+"metadata:\n  name: one\n---\n"+head+"metadata:\n  name: two\n  annotations:\n    l/a: b\n", "\n", "\r\n"),
		},
		"an object of a list": {
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata: {name: one}\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata:\n    name: two\n",
			set:  map[string]string{"l/a": "b"},
			want: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata: {name: one}\n- apiVersion: v1\n  kind: ServiceAccount\n  metadata:\n    name: two\n    annotations:\n      l/a: b\n",
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
			result := edit(t, tt.text, yamledit.Edit{Path: tt.path, Set: tt.set, Remove: tt.remove})
			if tt.wantSkipped != "" {
				if err := result.Skipped[0]; err == nil || !strings.Contains(err.Error(), tt.wantSkipped) {
					t.Errorf("got %v, want an error with %q", err, tt.wantSkipped)
				}
				tt.want = tt.text
			} else if err := result.Skipped[0]; err != nil {
				t.Errorf("skipped: %v", err)
			}
			if diff := cmp.Diff(tt.want, string(result.Text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestADiffHasHunksWithContext(t *testing.T) {
	t.Parallel()
	object := head + "metadata:\n  name: app\n# 1\n# 2\n# 3\n# 4\n# 5\n# 6\n# 7\n"
	text := strings.Repeat(object+"---\n", 3)
	f, err := yamledit.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var edits []yamledit.Edit
	for _, o := range f.Objects {
		edits = append(edits, yamledit.Edit{Object: o, Set: map[string]string{"l/a": "b"}})
	}
	result := f.Edit("dir/app.yaml", edits)
	checkDiff(t, text, result)
	if got := strings.Count(result.Diff, "@@ -"); got != 3 {
		t.Errorf("got %d hunks, want 3:\n%s", got, result.Diff)
	}
	if want := "@@ -26,6 +30,8 @@"; !strings.Contains(result.Diff, want) {
		t.Errorf("got\n%s\nwant %s: two lines are added twice before", result.Diff, want)
	}
}

func TestTheLinesAfterAHunkWithTwoEdits(t *testing.T) {
	t.Parallel()
	text := head + "metadata:\n  annotations:\n    x: y\n    z: w\n    v: u\n" + strings.Repeat("# c\n", 10) + "---\n" + head + "metadata:\n  name: app\n"
	f, err := yamledit.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	result := f.Edit("dir/app.yaml", []yamledit.Edit{
		{Object: f.Objects[0], Set: map[string]string{"l/a": "b"}, Remove: []string{"x"}},
		{Object: f.Objects[1], Set: map[string]string{"l/a": "b"}},
	})
	checkDiff(t, text, result)
	if want := "@@ -20,3 +20,5 @@"; !strings.Contains(result.Diff, want) {
		t.Errorf("got\n%s\nwant %s: one line is removed, and one is added before", result.Diff, want)
	}
}

func TestOneSkippedEditDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	text := ""
	for i := range 40 {
		switch i {
		case 7:
			text += head + "x: &x {a: b}\nmetadata:\n  name: alias\n  annotations: *x\n---\n"
		case 23:
			text += head + "metadata:\n  annotations: &y\n    a: b\n  labels: *y\n---\n"
		default:
			text += head + "metadata:\n  name: app\n---\n"
		}
	}
	f, err := yamledit.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var edits []yamledit.Edit
	for _, o := range f.Objects {
		edits = append(edits, yamledit.Edit{Object: o, Set: map[string]string{"l/a": "b"}})
	}
	result := f.Edit("dir/app.yaml", edits)
	checkDiff(t, text, result)
	if got := strings.Count(string(result.Text), "l/a: b"); got != 38 || len(result.Skipped) != 2 || result.Skipped[7] == nil || result.Skipped[23] == nil {
		t.Errorf("got %d changes and skipped %v, want 38, without the objects 7 and 23", got, result.Skipped)
	}
}

func TestALongFileIsChangedInOneGo(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(head+"metadata:\n  name: app\n---\n", 5000)
	f, err := yamledit.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var edits []yamledit.Edit
	for _, o := range f.Objects {
		edits = append(edits, yamledit.Edit{Object: o, Set: map[string]string{"l/a": "b"}})
	}
	// Reading it again for each object would take minutes.
	if result := f.Edit("x", edits); len(result.Skipped) > 0 || strings.Count(string(result.Text), "l/a: b") != 5000 {
		t.Errorf("skipped %d edits", len(result.Skipped))
	}
}

func TestParseErrors(t *testing.T) {
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
			if _, err := yamledit.Parse([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// FuzzEdit checks that an edit never changes anything but the annotations: if the new
// text were wrong, it would be skipped.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(head+"metadata:\n  annotations: {a: b}\n  name: x\n"), "l/a", "b")
	f.Add([]byte(head+"metadata: {name: x}\n"), "l/a", "86400")
	f.Add([]byte(head+"metadata:\n - a"), "a", "")
	f.Fuzz(func(t *testing.T, text []byte, key, value string) {
		if len(text) > 1<<12 {
			return
		}
		parsed, err := yamledit.Parse(text)
		if err != nil {
			return
		}
		for _, o := range parsed.Objects {
			result := parsed.Edit("x", []yamledit.Edit{{Object: o, Set: map[string]string{key: value}}})
			if len(result.Skipped) > 0 {
				continue
			}
			after, err := yamledit.Parse(result.Text)
			if err != nil || len(after.Objects) != len(parsed.Objects) {
				t.Fatalf("got %q: %v", result.Text, err)
			}
		}
	})
}
