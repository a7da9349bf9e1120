// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// build is what the tests need of a build of .goreleaser.yaml.
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
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &config); err != nil {
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

// goRun runs the go command in a directory. Flags of the user's do not count.
func goRun(t *testing.T, directory string, env []string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = directory
	command.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off"), env...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", arguments, err, output)
	}
}

// Both ways to get the program without a release.
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
		_, version := execute(t, nil, binary, "--version")
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

// expectPlugin runs a binary as lanyard, and as a plugin of a real kubectl.
func expectPlugin(t *testing.T, binary string) {
	t.Helper()
	code, version := execute(t, nil, binary, "--version")
	if code != 0 || !strings.HasPrefix(version, "lanyard version ") {
		t.Fatalf("got %q and exit code %d", version, code)
	}
	plugins := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(plugins, "kubectl-lanyard")); err != nil {
		t.Fatal(err)
	}
	kubectl := kubectl(t)
	path := []string{"PATH=" + plugins}
	if code, list := execute(t, path, kubectl, "plugin", "list"); code != 0 || !strings.Contains(list, filepath.Join(plugins, "kubectl-lanyard")) || strings.Contains(list, "warning") {
		t.Errorf("kubectl plugin list: got exit code %d and\n%s", code, list)
	}
	if code, got := execute(t, path, kubectl, "lanyard", "--version"); code != 0 || got != strings.Replace(version, "lanyard", "kubectl lanyard", 1) {
		t.Errorf("kubectl lanyard --version: got %q and exit code %d, want that of lanyard: %q", got, code, version)
	}
	if code, help := execute(t, path, kubectl, "lanyard", "check", "--help"); code != 0 || !strings.Contains(help, "\n  kubectl lanyard check --pre\n") {
		t.Errorf("kubectl lanyard check --help: got exit code %d and\n%s", code, help)
	}
	if code, got := execute(t, path, kubectl, "lanyard", "frobnicate"); code != 2 || !strings.HasPrefix(got, `error: unknown command "frobnicate"`) {
		t.Errorf("kubectl lanyard frobnicate: got exit code %d and %q, want 2", code, got)
	}
}

// execute returns the exit code and the output of a program.
func execute(t *testing.T, env []string, name string, arguments ...string) (code int, output string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Env = append(os.Environ(), env...)
	text, err := command.CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return exit.ExitCode(), string(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(text)
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

// git runs git in the root of the repository, and returns its output.
func git(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", arguments, err, output)
	}
	return strings.TrimSpace(string(output))
}

// kubectl returns the path of kubectl, which is built if it is missing.
func kubectl(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(context.Background(), filepath.Join(root, "hack/controlplane.sh"), "kubectl") //nolint:usetesting // it must not be killed
	command.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	path, err := filepath.Abs(filepath.Join(root, "bin/controlplane/kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
