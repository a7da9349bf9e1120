// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/tree"
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
	if err := yaml.Unmarshal([]byte(tree.Read(t, root, ".goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	var binaries []string
	for _, build := range config.Builds {
		binaries = append(binaries, build.Binary)
		name, err := exec.CommandContext(t.Context(), "go", "list", "-C", root, "-f", "{{.Name}}", build.Main).Output() // "go list" reports downloads on the error stream
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
	for line := range strings.Lines(tree.Read(t, root, ".github/CODEOWNERS")) {
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

// The security team reviews the files that limit attackers, and those that the job of a release
// runs. The last line that matches a file counts.
func TestTheSecurityTeamOwnsWhatLimitsAttackers(t *testing.T) {
	t.Parallel()
	owners := map[string]string{}
	for line := range strings.Lines(tree.Read(t, root, ".github/CODEOWNERS")) {
		pattern, who, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, file := range tree.Files(t, root) {
			path := "/" + file
			if pattern == "*" || path == pattern || strings.HasSuffix(pattern, "/") && strings.HasPrefix(path, pattern) {
				owners[path] = who
			}
		}
	}
	for _, file := range []string{
		"/charts/lanyard/templates/rbac.yaml", "/charts/lanyard/templates/guard.yaml", "/charts/lanyard/templates/fences.yaml",
		"/charts/lanyard/templates/tokenaudiences.yaml", "/policies/templates/policies.yaml", "/policies/cel.go", "/deploy/base/71-fences.yaml",
		"/internal/webhook/servingcert/authority.go", "/internal/webhook/httpserver/connlimit.go", "/internal/webhook/admission/budget.go",
		"/internal/webhook/metadatacache/live.go", "/pkg/webhook/server.go", "/Makefile", "/Dockerfile", "/hack/image.sh", "/hack/release.sh",
		"/.goreleaser.yaml", "/.github/CODEOWNERS", "/SECURITY.md", "/test/threat-model.md",
	} {
		if !strings.Contains(owners[file], "@lanyard-dev/security") {
			t.Errorf("%s: got the owners %q, want the security team among them", file, owners[file])
		}
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
	if err := json.Unmarshal([]byte(tree.Read(t, root, "renovate.json")), &config); err != nil {
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
	for _, file := range tree.Files(t, root) {
		if !slices.Contains([]string{"go.mod", "package.json", "Dockerfile"}, path.Base(file)) {
			continue
		}
		if want := strings.Contains(file, "testdata/"); ignored(file) != want {
			t.Errorf("%s: got ignored %t, want %t", file, !want, want)
		}
	}
}

// GoReleaser runs in the job without rights. hack/release.sh publishes.
func TestGoReleaserPublishesNothing(t *testing.T) {
	t.Parallel()
	type publisher struct {
		SkipUpload bool `json:"skip_upload"`
	}
	var config struct {
		Krews []publisher `json:"krews"`
		Casks []publisher `json:"homebrew_casks"`
		Signs []any       `json:"signs"`
	}
	text := tree.Read(t, root, ".goreleaser.yaml")
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(config.Krews, config.Casks...) {
		if !p.SkipUpload {
			t.Error("got skip_upload: false, want true")
		}
	}
	if len(config.Krews) != 1 || len(config.Casks) != 1 {
		t.Errorf("got %d krew manifests and %d casks, want 1 and 1", len(config.Krews), len(config.Casks))
	}
	if len(config.Signs) > 0 || strings.Contains(text, ".Env.") {
		t.Error("got a signature or a variable of the environment in .goreleaser.yaml, want neither")
	}
}
