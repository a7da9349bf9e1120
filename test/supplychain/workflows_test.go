// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what the tests need of a GitHub workflow.
type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Strategy    struct {
			Matrix map[string][]string `json:"matrix"`
		} `json:"strategy"`
		Steps []struct {
			Uses string         `json:"uses"`
			Run  string         `json:"run"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// find returns the first group of the only match of the pattern in the file.
func find(t *testing.T, name, pattern string) string {
	t.Helper()
	matches := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, name), -1)
	if len(matches) != 1 {
		t.Fatalf("%s: got %d matches of %s, want 1", name, len(matches), pattern)
	}
	return matches[0][1]
}

// workflows returns all workflows by the name of their file.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]workflow{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = w
	}
	return all
}

var makeCall = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`)

// targets returns the targets that the commands call make for.
func targets(commands string) []string {
	var found []string
	for _, match := range makeCall.FindAllStringSubmatch(commands, -1) {
		found = append(found, match[1])
	}
	return found
}

// calls returns the targets that the workflow calls make for, with the values of
// matrices.
func (w workflow) calls() []string {
	var found []string
	for _, job := range w.Jobs {
		for _, step := range job.Steps {
			commands := []string{step.Run}
			for key, values := range job.Strategy.Matrix {
				if variable := "${{ matrix." + key + " }}"; strings.Contains(step.Run, variable) {
					commands = nil
					for _, value := range values {
						commands = append(commands, strings.ReplaceAll(step.Run, variable, value))
					}
				}
			}
			found = append(found, targets(strings.Join(commands, "\n"))...)
		}
	}
	return found
}

func TestWorkflowsCallTargetsOfTheMakefile(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	all := workflows(t)
	for name, w := range all {
		calls := w.calls()
		if len(calls) == 0 {
			t.Errorf("%s: got no call of make", name)
		}
		for _, target := range calls {
			if !strings.Contains(makefile, "\n"+target+":") {
				t.Errorf("%s: got a call of make %s, want a target of the Makefile", name, target)
			}
		}
	}
	for _, name := range []string{"ci.yaml", "release.yaml", "vulnerabilities.yaml", "fuzz.yaml", "versions.yaml"} {
		if _, ok := all[name]; !ok {
			t.Errorf("got no workflow %s", name)
		}
	}
}

func TestTheCIWorkflowRunsWhatCIRunRuns(t *testing.T) {
	t.Parallel()
	ci := workflows(t)["ci.yaml"]
	calls := ci.calls()
	want := targets(read(t, ".ci/run"))
	if len(want) < 8 {
		t.Errorf("got only %q in .ci/run", want)
	}
	for _, target := range want {
		if !slices.Contains(calls, target) {
			t.Errorf("got no call of make %s, which .ci/run calls, want one of %q", target, calls)
		}
	}
	directories, err := os.ReadDir(filepath.Join(root, "test/e2e/suite"))
	if err != nil {
		t.Fatal(err)
	}
	var suites []string
	for _, directory := range directories {
		suites = append(suites, directory.Name())
	}
	if got := slices.Sorted(slices.Values(ci.Jobs["e2e"].Strategy.Matrix["suite"])); !slices.Equal(got, suites) {
		t.Errorf("end-to-end suites: got %q, want %q", got, suites)
	}
}

// A tag can be moved to other code, a commit cannot.
func TestActionsArePinnedToCommits(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	versions := map[string]string{} // by action
	for name := range workflows(t) {
		for line := range strings.Lines(read(t, filepath.Join(".github/workflows", name))) {
			_, use, found := strings.Cut(line, "uses:")
			if !found {
				continue
			}
			use = "uses:" + strings.TrimRight(use, "\n")
			if !pinned.MatchString(use) {
				t.Errorf("%s: got %s, want a full commit and its version", name, use)
				continue
			}
			action, version, _ := strings.Cut(use, "@")
			if before, ok := versions[action]; ok && before != version {
				t.Errorf("%s: got %s of %s, elsewhere %s", name, version, action, before)
			}
			versions[action] = version
		}
	}
	if len(versions) == 0 {
		t.Error("got no action")
	}
}

// Only the release may write, and only what it must.
func TestWorkflowsMayOnlyRead(t *testing.T) {
	t.Parallel()
	for name, w := range workflows(t) {
		if w.Permissions == nil {
			t.Errorf("%s: got no permissions, which means all", name)
		}
		for job := range maps.Values(w.Jobs) {
			permissions := job.Permissions
			if permissions == nil {
				permissions = w.Permissions
			}
			want := map[string]string{"contents": "read"}
			if name == "release.yaml" {
				want = map[string]string{"contents": "write", "packages": "write", "id-token": "write"}
			}
			if !maps.Equal(permissions, want) {
				t.Errorf("%s: got permissions %v, want %v", name, permissions, want)
			}
		}
	}
}

func TestWorkflowsHaveTheGoOfTheImage(t *testing.T) {
	t.Parallel()
	want := find(t, "Dockerfile", `golang:([\d.]+)`)
	if got := find(t, "go.mod", `(?m)^go (\d+\.\d+)`); got != want {
		t.Errorf("go.mod: got Go %s, want %s as in the Dockerfile", got, want)
	}
	for name, w := range workflows(t) {
		for job := range maps.Values(w.Jobs) {
			for _, step := range job.Steps {
				if strings.HasPrefix(step.Uses, "actions/setup-go@") && step.With["go-version"] != want {
					t.Errorf("%s: got Go %v, want %s as in the Dockerfile", name, step.With["go-version"], want)
				}
			}
		}
	}
}

// The list of versions, their rows, and the workflow that tests them.
func TestEveryKubernetesVersionIsInTheTable(t *testing.T) {
	t.Parallel()
	versions := strings.Fields(find(t, "hack/test-versions.sh", `(?m)^versions=\((.*)\)$`))
	newest := find(t, "hack/tools/kubernetes/go.mod", `k8s\.io/kubernetes v([\d.]+)`)
	if last := versions[len(versions)-1]; last != newest {
		t.Errorf("got %s as the newest version, want %s as in hack/tools/kubernetes", last, newest)
	}
	table := read(t, "docs/reference/versions.md")
	var minors []string
	for _, version := range versions {
		minor := version[:strings.LastIndex(version, ".")]
		minors = append(minors, minor)
		if row := "\n| " + minor + " | " + version + " | "; !strings.Contains(table, row) {
			t.Errorf("docs/reference/versions.md: got no row %q", row)
		}
	}
	if got := workflows(t)["versions.yaml"].Jobs["versions"].Strategy.Matrix["minor"]; !slices.Equal(got, minors) {
		t.Errorf("versions.yaml: got %q, want %q", got, minors)
	}
	if oldest := find(t, "charts/lanyard/Chart.yaml", `kubeVersion: ">=(\d+\.\d+)\.`); !strings.Contains(table, "\n| "+oldest+" | ") {
		t.Errorf("docs/reference/versions.md: got no row of %s, which the chart allows", oldest)
	}
}
