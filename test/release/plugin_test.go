// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// build contains the fields of a build of .goreleaser.yaml that the tests need.
type build struct {
	ID      string   `json:"id"`
	Main    string   `json:"main"`
	Env     []string `json:"env"`
	Flags   []string `json:"flags"`
	LDFlags []string `json:"ldflags"`
}

// goreleaserBuild returns the build with the ID.
func goreleaserBuild(t *testing.T, id string) *build {
	t.Helper()
	var config struct {
		Builds []build `json:"builds"`
	}
	if err := yaml.Unmarshal([]byte(tree.Read(t, root, ".goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	for i := range config.Builds {
		if config.Builds[i].ID == id {
			return &config.Builds[i]
		}
	}
	t.Fatalf("got no build %s", id)
	return nil
}

// goRun runs the go command in a directory, without the user's flags.
func goRun(t *testing.T, directory string, env []string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = directory
	command.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off"), env...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", arguments, err, output)
	}
}

// There are two ways to get the program without a release.
//
//nolint:paralleltest // it builds
func TestTheProgramIsAPluginOfKubectl(t *testing.T) {
	t.Run("by go install in a clone", func(t *testing.T) {
		directory := t.TempDir()
		clone, commit := filepath.Join(directory, "clone"), git(t, "rev-parse", "HEAD")
		git(t, "clone", "--quiet", "--shared", "--no-checkout", ".", clone)
		git(t, "-C", clone, "checkout", "--quiet", "--detach", commit)
		goRun(t, clone, []string{"GOBIN=" + directory}, "install", "./cmd/lanyard")
		binary := filepath.Join(directory, "lanyard")
		expectPlugin(t, binary)
		_, version := execute(t, binary, "--version")
		expectVersion(t, version)
	})
	t.Run("as GoReleaser builds it", func(t *testing.T) {
		b := goreleaserBuild(t, "lanyard")
		binary := filepath.Join(t.TempDir(), "lanyard")
		arguments := append([]string{"build", "-o", binary, "-ldflags=" + strings.Join(b.LDFlags, " ")}, b.Flags...)
		goRun(t, root, b.Env, append(arguments, b.Main)...)
		expectPlugin(t, binary)
	})
}

// expectPlugin runs a binary as lanyard, and as kubectl runs its plugins: under the name
// kubectl-lanyard. The end-to-end suite cli has a kubectl that runs it.
func expectPlugin(t *testing.T, binary string) {
	t.Helper()
	code, version := execute(t, binary, "--version")
	if code != 0 || !strings.HasPrefix(version, "lanyard version ") {
		t.Fatalf("got %q and exit code %d", version, code)
	}
	plugin := filepath.Join(t.TempDir(), "kubectl-lanyard")
	if err := os.Symlink(binary, plugin); err != nil {
		t.Fatal(err)
	}
	if code, got := execute(t, plugin, "--version"); code != 0 || got != strings.Replace(version, "lanyard", "kubectl lanyard", 1) {
		t.Errorf("kubectl-lanyard --version: got %q and exit code %d, want that of lanyard: %q", got, code, version)
	}
}

// expectVersion compares what --version prints with the commit, or its tag.
func expectVersion(t *testing.T, printed string) {
	t.Helper()
	fields := regexp.MustCompile(`version (\S+) \(go`).FindStringSubmatch(printed)
	if fields == nil {
		t.Fatalf("got %q, want a version", printed)
	}
	commit := git(t, "rev-parse", "HEAD")
	for tag := range strings.FieldsSeq(git(t, "tag", "--points-at", "HEAD")) {
		if strings.TrimSuffix(fields[1], "+dirty") == tag {
			return
		}
	}
	if !strings.Contains(fields[1], commit[:12]) {
		t.Errorf("got version %s, want a tag of commit %s, or a version with it", fields[1], commit)
	}
}
