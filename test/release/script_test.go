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

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// releaseFiles lists the files that contain the version, and the form in which they do.
var releaseFiles = map[string][]struct{ pattern, replacement string }{
	"charts/lanyard/Chart.yaml": {
		{`(?m)^version: .*`, `version: 9.8.7`}, {`(?m)^appVersion: .*`, `appVersion: 9.8.7`},
		{`image: ghcr.io/lanyard-dev/lanyard:.*`, `image: registry.example/team/lanyard:9.8.7`},
		{`image: ghcr.io/lanyard-dev/lanyard-webhook:.*`, `image: registry.example/team/lanyard-webhook:9.8.7`},
	},
	"charts/lanyard/values.yaml":     {{`(?m)^  registry: .*`, `  registry: registry.example/team`}},
	"deploy/base/40-deployment.yaml": {{`image: "[^"]*lanyard-webhook:[^"]*"`, `image: "registry.example/team/lanyard-webhook:9.8.7"`}},
	"deploy/kustomization.yaml": {
		{`- name: .*`, `- name: registry.example/team/lanyard-webhook`}, {`newName: .*`, `newName: registry.example/team/lanyard-webhook`},
		{`newTag: .*`, `newTag: 9.8.7`},
	},
	"deploy/checks/kustomization.yaml": {
		{`- name: lanyard\b.*`, `- name: registry.example/team/lanyard`}, {`newName: .*`, `newName: registry.example/team/lanyard`},
		{`newTag: .*`, `newTag: 9.8.7`},
	},
	"deploy/checks/checks.yaml": {
		{`image: "[^"]*lanyard:[^"]*"`, `image: "registry.example/team/lanyard:9.8.7"`},
	},
	"Makefile":     {{`(?m)^(IMAGE .*):.*`, `$1:9.8.7`}},
	"Dockerfile":   {{`(?m)^(ARG GO_IMAGE=golang:[\d.]+).*`, "$1@sha256:" + strings.Repeat("0a", 32)}},
	"CHANGELOG.md": {{`(?m)^## \[Unreleased\]`, "## [Unreleased]\n\nnext\n\n## [9.8.7] - 2000-01-02\n\nnotes of 9.8.7\n\n## [9.8.6] - 2000-01-01"}},
}

// releaseTree writes hack/release.sh and the files above to a directory, with the
// version 9.8.7 except in the file named stale. GoReleaser always succeeds there.
func releaseTree(t *testing.T, stale string) string {
	t.Helper()
	directory := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, changes := range releaseFiles {
		text := tree.Read(t, root, name)
		for _, change := range changes {
			if name != stale {
				text = regexp.MustCompile(change.pattern).ReplaceAllString(text, change.replacement)
			}
		}
		write(name, text)
	}
	write("hack/release.sh", tree.Read(t, root, "hack/release.sh"))
	write(".goreleaser.yaml", tree.Read(t, root, ".goreleaser.yaml"))
	succeeds, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(directory, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(succeeds, filepath.Join(directory, "bin/goreleaser")); err != nil {
		t.Fatal(err)
	}
	if output, err := release(t, directory, "links", "v9.8.7"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return directory
}

// release runs hack/release.sh in the directory. Running a file that was just written
// may fail ("text file busy"), so bash reads it.
func release(t *testing.T, directory string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(directory, "hack/release.sh")}, arguments...)...)
	command.Env = append(command.Environ(), "REGISTRY=registry.example/team")
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestAReleaseNeedsFilesThatAgree(t *testing.T) {
	t.Parallel()
	output, err := release(t, releaseTree(t, ""), "check", "v9.8.7")
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for stale := range releaseFiles {
		t.Run("except "+stale, func(t *testing.T) {
			t.Parallel()
			output, err := release(t, releaseTree(t, stale), "check", "v9.8.7")
			if err == nil || !strings.Contains(output, stale+": no line matches") {
				t.Errorf("got error %v, want one about %s\n%s", err, stale, output)
			}
			if lines := strings.Count(output, "no line matches"); lines != len(releaseFiles[stale]) {
				t.Errorf("got %d lines that do not match, want %d\n%s", lines, len(releaseFiles[stale]), output)
			}
		})
	}
}

func TestLinksOfAReleaseAreToItsVersion(t *testing.T) {
	t.Parallel()
	directory := releaseTree(t, "")
	chart := filepath.Join(directory, "charts/lanyard/Chart.yaml")
	for version, want := range map[string]string{
		"v9.8.7": "all files agree",
		"v9.8.6": "Chart.yaml:github.com/lanyard-dev/lanyard/blob/v9.8.6/\n",
		"main":   "Chart.yaml:github.com/lanyard-dev/lanyard/blob/main/\n",
	} {
		if output, err := release(t, directory, "links", version); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		text, err := os.ReadFile(chart)
		if link := "lanyard/blob/" + version + "/docs/"; err != nil || !strings.Contains(string(text), link) {
			t.Errorf("got no link %s (%v) in\n%s", link, err, text)
		}
		if output, err := release(t, directory, "check", "v9.8.7"); (err == nil) != (version == "v9.8.7") || !strings.Contains(output, want) {
			t.Errorf("links to %s: got error %v and %s, want %q", version, err, output, want)
		}
	}
	for _, version := range []string{"", "9.8.7", "master", "v9.8"} {
		if output, err := release(t, directory, "links", version); err == nil {
			t.Errorf("version %q: got %q, want an error", version, output)
		}
	}
}

func TestReleaseNotesAreTheSectionOfTheChangelog(t *testing.T) {
	t.Parallel()
	directory := releaseTree(t, "")
	output, err := release(t, directory, "notes", "v9.8.7")
	if want := "notes of 9.8.7"; err != nil || strings.TrimSpace(output) != want {
		t.Errorf("got %q and error %v, want %q", output, err, want)
	}
	for _, version := range []string{"", "9.8.7", "v9.8", "v9.8.7.6", "v9.8.5", "v9x8.7"} {
		if output, err := release(t, directory, "notes", version); err == nil {
			t.Errorf("version %q: got %q, want an error", version, output)
		}
	}
}
