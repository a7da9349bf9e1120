// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// workflow contains the fields of a GitHub workflow that the tests need.
type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]job    `json:"jobs"`
}

// job is a job of a workflow.
type job struct {
	Permissions map[string]string `json:"permissions"`
	Environment string            `json:"environment"`
	Needs       string            `json:"needs"`
	Strategy    struct {
		Matrix map[string][]string `json:"matrix"`
	} `json:"strategy"`
	Steps []struct {
		Uses string            `json:"uses"`
		Run  string            `json:"run"`
		With map[string]any    `json:"with"`
		Env  map[string]string `json:"env"`
	} `json:"steps"`
}

// find returns the first group of the only match of the pattern in the file.
func find(t *testing.T, name, pattern string) string {
	t.Helper()
	matches := regexp.MustCompile(pattern).FindAllStringSubmatch(tree.Read(t, root, name), -1)
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
	makefile := tree.Read(t, root, "Makefile")
	all := workflows(t)
	for name, w := range all {
		calls := w.calls()
		if onlyActions := name == "dependencies.yaml" || name == "scorecard.yaml"; (len(calls) == 0) != onlyActions {
			t.Errorf("%s: got the calls %q of make, want some unless the workflow only runs actions", name, calls)
		}
		for _, target := range calls {
			if !strings.Contains(makefile, "\n"+target+":") {
				t.Errorf("%s: got a call of make %s, want a target of the Makefile", name, target)
			}
		}
	}
	want := []string{
		"ci.yaml", "clouds.yaml", "codeql.yaml", "dependencies.yaml", "fuzz.yaml", "nightly.yaml", "release.yaml", "scorecard.yaml", "site.yaml", "versions.yaml", "vulnerabilities.yaml",
	}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("got the workflows %q, want %q", got, want)
	}
}

func TestTheCIWorkflowRunsWhatCIRunRuns(t *testing.T) {
	t.Parallel()
	ci := workflows(t)["ci.yaml"]
	calls := ci.calls()
	want := targets(withoutComments(tree.Read(t, root, ".ci/run")))
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
	// The suites that .ci/run names, or that hack/e2e.sh runs by default.
	commands := withoutComments(tree.Read(t, root, ".ci/run") + tree.Read(t, root, "hack/e2e.sh"))
	nightly := tree.Read(t, root, ".github/workflows/nightly.yaml")
	for _, directory := range directories {
		suite := directory.Name()
		inCI := slices.Contains(ci.Jobs["e2e"].Strategy.Matrix["suite"], suite)
		if inCI && !regexp.MustCompile(`(hack/e2e\.sh|\nsuites=\()[^\n]*\b`+suite+`\b`).MatchString(commands) {
			t.Errorf("suite %s: got it in ci.yaml, want it in .ci/run too", suite)
		}
		if !inCI && !strings.Contains(nightly, "make e2e E2E="+suite+"\n") {
			t.Errorf("suite %s: got it neither in ci.yaml nor in nightly.yaml", suite)
		}
	}
}

// withoutComments returns the lines of a script that are not comments.
func withoutComments(script string) string {
	return regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(script, "")
}

// The key of the issuer is the only secret, and only the step that needs it has it.
func TestTheWorkflowCloudsHasOneSecret(t *testing.T) {
	t.Parallel()
	text := tree.Read(t, root, ".github/workflows/clouds.yaml")
	if got := regexp.MustCompile(`secrets[.\[][^ }]*`).FindAllString(text, -1); !slices.Equal(got, []string{"secrets.LANYARD_SIGNING_KEY"}) {
		t.Errorf("got the secrets %q, want only the signing key", got)
	}
	if strings.Contains(text, "pull_request") {
		t.Error("got a run for pull requests, want none: they have code of others")
	}
	job := workflows(t)["clouds.yaml"].Jobs["credentials"]
	if job.Environment != "clouds" {
		t.Errorf("got environment %q, want clouds", job.Environment)
	}
	program := tree.Read(t, root, "test/e2e/clouds/real/main.go")
	var got, want []string
	for _, step := range job.Steps {
		got = append(got, slices.Collect(maps.Keys(step.Env))...)
	}
	for _, match := range regexp.MustCompile(`get\("(\w+)"\)`).FindAllStringSubmatch(program, -1) {
		want = append(want, match[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("got the variables %q, want those of the program, %q", got, want)
	}
}

// A tag can be moved to other code, a commit cannot.
func TestActionsArePinnedToCommits(t *testing.T) {
	t.Parallel()
	// An action may be in a directory of its repository, which has one version.
	pinned := regexp.MustCompile(`^uses: ([\w-]+/[\w-]+)(?:/[\w-]+)?@([0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	versions := map[string]string{} // by repository
	for name := range workflows(t) {
		for line := range strings.Lines(tree.Read(t, root, filepath.Join(".github/workflows", name))) {
			_, use, found := strings.Cut(line, "uses:")
			if !found {
				continue
			}
			use = "uses:" + strings.TrimRight(use, "\n")
			match := pinned.FindStringSubmatch(use)
			if match == nil {
				t.Errorf("%s: got %s, want a full commit and its version", name, use)
				continue
			}
			if before, ok := versions[match[1]]; ok && before != match[2] {
				t.Errorf("%s: got %s of %s, elsewhere %s", name, match[2], match[1], before)
			}
			versions[match[1]] = match[2]
		}
	}
	if len(versions) == 0 {
		t.Error("got no action")
	}
}

// Only four jobs may write, and each only what it must.
func TestWorkflowsMayOnlyRead(t *testing.T) {
	t.Parallel()
	writers := map[string]map[string]string{
		"release.yaml publish":    {"contents": "write", "packages": "write", "id-token": "write", "attestations": "write"},
		"codeql.yaml analyze":     {"contents": "read", "security-events": "write"},
		"scorecard.yaml analysis": {"contents": "read", "security-events": "write", "id-token": "write"},
		"site.yaml publish":       {"pages": "write", "id-token": "write"},
	}
	for name, w := range workflows(t) {
		if w.Permissions == nil {
			t.Errorf("%s: got no permissions, which means all", name)
		}
		for id, job := range w.Jobs {
			permissions := job.Permissions
			if permissions == nil {
				permissions = w.Permissions
			}
			want := writers[name+" "+id]
			if want == nil {
				want = map[string]string{"contents": "read"}
			}
			if !maps.Equal(permissions, want) {
				t.Errorf("%s, job %s: got permissions %v, want %v", name, id, permissions, want)
			}
		}
	}
}

// A job that compiles runs the code of every dependency. So the job that may publish
// compiles nothing, and a person approves it.
func TestTheJobThatPublishesCompilesNothing(t *testing.T) {
	t.Parallel()
	jobs := workflows(t)["release.yaml"].Jobs
	build, publish := jobs["build"], jobs["publish"]
	if publish.Environment != "release" || publish.Needs != "build" {
		t.Errorf("got environment %q and needs %q, want release and build", publish.Environment, publish.Needs)
	}
	var runs, attested []string
	for _, step := range publish.Steps {
		if strings.HasPrefix(step.Uses, "actions/setup-go@") {
			t.Error("got Go in the job publish, want it only in the job build")
		}
		if strings.HasPrefix(step.Uses, "actions/attest-build-provenance@") {
			attested = append(attested, fmt.Sprint(step.With["subject-name"], step.With["subject-checksums"]))
		}
		if step.Run != "" {
			runs = append(runs, strings.Fields(step.Run)[0])
		}
		if strings.HasPrefix(step.Run, "hack/release.sh") && step.Env["RELEASE_SUMS"] != "${{ needs.build.outputs.sums }}" {
			t.Errorf("got RELEASE_SUMS %q, want the output of the job build", step.Env["RELEASE_SUMS"])
		}
	}
	if want := []string{"docker", "hack/release.sh"}; !slices.Equal(runs, want) {
		t.Errorf("the job publish: got the commands %q, want %q", runs, want)
	}
	want := []string{
		"ghcr.io/lanyard-dev/lanyard-webhook<nil>", "ghcr.io/lanyard-dev/lanyard<nil>", "ghcr.io/lanyard-dev/charts/lanyard<nil>",
		"<nil>bin/release/files/checksums.txt",
	}
	if !slices.Equal(attested, want) {
		t.Errorf("got provenance of %q, want it of %q", attested, want)
	}
	for _, step := range build.Steps {
		if strings.Contains(fmt.Sprint(step.Run, step.With, step.Env), "token") {
			t.Errorf("the job build: got %+v, want no token", step)
		}
	}
}

// The website is built with the code of many packages.
func TestTheJobThatPublishesTheSiteRunsNothing(t *testing.T) {
	t.Parallel()
	publish := workflows(t)["site.yaml"].Jobs["publish"]
	if publish.Environment != "github-pages" || publish.Needs != "build" {
		t.Errorf("got environment %q and needs %q, want github-pages and build", publish.Environment, publish.Needs)
	}
	if len(publish.Steps) != 1 || !strings.HasPrefix(publish.Steps[0].Uses, "actions/deploy-pages@") {
		t.Errorf("got the steps %+v, want only actions/deploy-pages", publish.Steps)
	}
}

// Others choose the names of branches and tags, and the texts of pull requests.
func TestWorkflowsDoNotRunUntrustedText(t *testing.T) {
	t.Parallel()
	expression := regexp.MustCompile(`\$\{\{ *([^}]*?) *\}\}`)
	for name, w := range workflows(t) {
		for id, job := range w.Jobs {
			for _, step := range job.Steps {
				for _, match := range expression.FindAllStringSubmatch(step.Run, -1) {
					if !strings.HasPrefix(match[1], "matrix.") {
						t.Errorf("%s, job %s: got %s in %q, want it in env", name, id, match[0], step.Run)
					}
				}
			}
		}
		text := tree.Read(t, root, filepath.Join(".github/workflows", name))
		if host := regexp.MustCompile(`https?://\S+|\w+_MIRROR|GOPROXY`).FindString(text); host != "" {
			t.Errorf("%s: got %s, want no package mirror: the machine's own sources have one", name, host)
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

// One version of Go builds the product, its tests and all tools.
func TestEveryModuleNeedsTheSameGo(t *testing.T) {
	t.Parallel()
	want := find(t, "go.mod", `(?m)^go (\S+)$`)
	for _, file := range tree.Files(t, root) {
		if path.Base(file) != "go.mod" {
			continue
		}
		if got := find(t, file, `(?m)^go (\S+)$`); got != want {
			t.Errorf("%s: got Go %s, want %s as in go.mod", file, got, want)
		}
	}
}

// The list of versions, the rows of the table, and the workflow must agree.
func TestEveryKubernetesVersionIsInTheTable(t *testing.T) {
	t.Parallel()
	versions := strings.Fields(find(t, "hack/test-versions.sh", `(?m)^versions=\((.*)\)$`))
	pinned := find(t, "hack/tools/kubernetes/go.mod", `k8s\.io/kubernetes v([\d.]+)`)
	if !slices.Contains(versions, pinned) {
		t.Errorf("got the versions %s, want one of them to be %s, as in hack/tools/kubernetes", versions, pinned)
	}
	table := tree.Read(t, root, "docs/reference/versions.md")
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
