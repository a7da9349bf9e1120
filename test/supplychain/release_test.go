// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestGoReleaserBuildsProgramsThatExist(t *testing.T) {
	t.Parallel()
	var config struct {
		Builds []struct {
			Main   string   `json:"main"`
			Binary string   `json:"binary"`
			GOOS   []string `json:"goos"`
			GOARCH []string `json:"goarch"`
		} `json:"builds"`
	}
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	var binaries []string
	for _, build := range config.Builds {
		binaries = append(binaries, build.Binary)
		name, err := exec.CommandContext(t.Context(), "go", "list", "-C", root, "-f", "{{.Name}}", build.Main).CombinedOutput()
		if got := strings.TrimSpace(string(name)); err != nil || got != "main" {
			t.Errorf("%s: got package %s (%v), want main", build.Main, got, err)
		}
		var platforms []string
		for _, system := range build.GOOS {
			for _, architecture := range build.GOARCH {
				platforms = append(platforms, system+"/"+architecture)
			}
		}
		variable := map[string]string{"lanyard-webhook": "RELEASE_PLATFORMS", "lanyard": "PLUGIN_PLATFORMS"}[build.Binary]
		if want := strings.Fields(find(t, "Makefile", `(?m)^`+variable+` *:= (.*)$`)); !slices.Equal(platforms, want) {
			t.Errorf("%s: got platforms %q, want %q as in the Makefile", build.Binary, platforms, want)
		}
	}
	if want := []string{"lanyard-webhook", "lanyard"}; !slices.Equal(binaries, want) {
		t.Errorf("got binaries %q, want %q", binaries, want)
	}
}

func TestCodeOwnersOwnFilesThatExist(t *testing.T) {
	t.Parallel()
	owned := 0
	for line := range strings.Lines(read(t, ".github/CODEOWNERS")) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		owned++
		path := filepath.Join(root, fields[0])
		if matches, err := filepath.Glob(path); err != nil || len(matches) == 0 {
			t.Errorf("got owners of %s, which does not exist (%v)", fields[0], err)
		}
		if len(fields) < 2 {
			t.Errorf("%s: got no owner", fields[0])
		}
	}
	if owned < 2 {
		t.Errorf("got %d lines with owners", owned)
	}
}

// Renovate's recommended configuration leaves out test/ and examples/, where half of
// the modules are.
func TestRenovateCoversEveryModule(t *testing.T) {
	t.Parallel()
	var config struct {
		IgnorePaths     []string `json:"ignorePaths"`
		EnabledManagers []string `json:"enabledManagers"`
	}
	if err := json.Unmarshal([]byte(read(t, "renovate.json")), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.EnabledManagers) > 0 {
		t.Errorf("got only the managers %q, want all: Go, npm, Docker and GitHub Actions", config.EnabledManagers)
	}
	if len(config.IgnorePaths) == 0 {
		t.Error("got no ignorePaths, so those of config:recommended count")
	}
	ignored := func(file string) bool {
		return slices.ContainsFunc(config.IgnorePaths, func(pattern string) bool {
			directory := strings.TrimSuffix(strings.TrimPrefix(pattern, "**"), "**")
			return strings.Contains("/"+file, directory)
		})
	}
	files, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--", "*go.mod", "*package.json", "*Dockerfile").Output()
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.FieldsSeq(string(files)) {
		if want := strings.Contains(file, "testdata/"); ignored(file) != want {
			t.Errorf("%s: got ignored %t, want %t", file, !want, want)
		}
	}
}

// releaseFiles are the files that name the version, and how they do.
var releaseFiles = map[string][]struct{ pattern, replacement string }{
	"charts/lanyard/Chart.yaml": {
		{`(?m)^version: .*`, `version: 9.8.7`}, {`(?m)^appVersion: .*`, `appVersion: 9.8.7`},
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
		{`image: lanyard:.*`, `image: registry.example/team/lanyard:9.8.7`},
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
		text := read(t, name)
		for _, change := range changes {
			if name != stale {
				text = regexp.MustCompile(change.pattern).ReplaceAllString(text, change.replacement)
			}
		}
		write(name, text)
	}
	write("hack/release.sh", read(t, "hack/release.sh"))
	write(".goreleaser.yaml", read(t, ".goreleaser.yaml"))
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

// release runs hack/release.sh in the directory. To run a file that was just written
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
