// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// krewPlugin has the fields of a manifest of krew, and no others:
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
type krewPlugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	URI      string                `json:"uri"`
	SHA256   string                `json:"sha256"`
	Bin      string                `json:"bin"`
	Selector *metav1.LabelSelector `json:"selector"`
	// Without files, krew takes all files of the archive.
	Files []struct {
		From string `json:"from"`
		To   string `json:"to"`
	} `json:"files"`
}

var pluginName = regexp.MustCompile(`^[\w-]+$`)

// maxShortDescription is what "kubectl krew search" shows of it.
const maxShortDescription = 50

// krewProblems lists where the manifest of the plugin NAME violates the schema.
func krewProblems(name string, text []byte) (plugin krewPlugin, found []string) {
	if err := yaml.UnmarshalStrict(text, &plugin); err != nil {
		return plugin, []string{err.Error()}
	}
	check := func(ok bool, format string, arguments ...any) {
		if !ok {
			found = append(found, fmt.Sprintf(format, arguments...))
		}
	}
	spec := &plugin.Spec
	check(plugin.APIVersion == "krew.googlecontainertools.github.com/v1alpha2", "apiVersion: got %q", plugin.APIVersion)
	check(plugin.Kind == "Plugin", "kind: got %q, want Plugin", plugin.Kind)
	check(plugin.Metadata.Name == name && pluginName.MatchString(name), "metadata.name: got %q, want %q as the file", plugin.Metadata.Name, name)
	_, err := utilversion.ParseSemantic(spec.Version)
	check(err == nil && strings.HasPrefix(spec.Version, "v"), "spec.version: got %q, want v and a semantic version", spec.Version)
	check(strings.HasPrefix(spec.Homepage, "https://"), "spec.homepage: got %q, want an https URL", spec.Homepage)
	check(spec.ShortDescription != "" && len(spec.ShortDescription) <= maxShortDescription, "spec.shortDescription: got %q, want at most %d characters", spec.ShortDescription, maxShortDescription)
	check(spec.Description != "", "spec.description: got none")
	check(len(spec.Platforms) > 0, "spec.platforms: got none")
	selected := map[string]bool{}
	for i := range spec.Platforms {
		p := &spec.Platforms[i]
		at := fmt.Sprintf("spec.platforms[%d]", i)
		check(strings.HasPrefix(p.URI, "https://"), "%s.uri: got %q, want an https URL", at, p.URI)
		check(sha.MatchString(p.SHA256), "%s.sha256: got %q, want 64 hexadecimal digits", at, p.SHA256)
		check(p.Bin != "" && p.Bin == path.Base(p.Bin), "%s.bin: got %q, want a file of the archive", at, p.Bin)
		for _, f := range p.Files {
			check(f.From != "", "%s.files: got a file without from", at)
		}
		if p.Selector == nil || len(p.Selector.MatchLabels) == 0 && len(p.Selector.MatchExpressions) == 0 {
			check(false, "%s.selector: got none", at)
			continue
		}
		keys := slices.Collect(maps.Keys(p.Selector.MatchLabels))
		for _, e := range p.Selector.MatchExpressions {
			keys = append(keys, e.Key)
		}
		for _, key := range keys {
			check(key == "os" || key == "arch", "%s.selector: got the key %q, want os or arch", at, key)
		}
		selector := metav1.FormatLabelSelector(p.Selector)
		check(!selected[selector], "%s.selector: got %s twice", at, selector)
		selected[selector] = true
	}
	return plugin, found
}

// What the test of the snapshot would not notice must not pass.
func TestAMalformedKrewManifestIsNoticed(t *testing.T) {
	t.Parallel()
	valid := `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: lanyard
spec:
  version: v1.2.3
  homepage: https://example.com
  shortDescription: Short
  description: Long
  platforms:
  - bin: lanyard
    uri: https://example.com/linux.tar.gz
    sha256: ` + strings.Repeat("0a", 32) + `
    selector: {matchLabels: {os: linux, arch: amd64}}
  - bin: lanyard
    uri: https://example.com/darwin.tar.gz
    sha256: ` + strings.Repeat("1a", 32) + `
    selector: {matchLabels: {os: darwin, arch: amd64}}
`
	if _, problems := krewProblems("lanyard", []byte(valid)); len(problems) > 0 {
		t.Fatalf("got %q, want no problem", problems)
	}
	tests := map[string]struct{ old, now, want string }{
		"another version of the API":   {"v1alpha2", "v1", "apiVersion"},
		"another kind":                 {"kind: Plugin", "kind: Other", "kind"},
		"another name":                 {"name: lanyard", "name: other", "metadata.name"},
		"a field that krew lacks":      {"  homepage:", "  website:", "website"},
		"a version without v":          {"v1.2.3", "1.2.3", "spec.version"},
		"a version of two numbers":     {"v1.2.3", "v1.2", "spec.version"},
		"no homepage":                  {"homepage: https://example.com\n", "homepage: example.com\n", "spec.homepage"},
		"no short description":         {"Short", `""`, "spec.shortDescription"},
		"a long short description":     {"Short", strings.Repeat("x", 51), "spec.shortDescription"},
		"no description":               {"Long", `""`, "spec.description"},
		"no URI":                       {"uri: https://example.com/linux.tar.gz", "uri: linux.tar.gz", "spec.platforms[0].uri"},
		"a short hash":                 {strings.Repeat("0a", 32), `"00"`, "spec.platforms[0].sha256"},
		"no binary":                    {"bin: lanyard", `bin: ""`, "spec.platforms[0].bin"},
		"a binary outside of the root": {"bin: lanyard", "bin: ../lanyard", "spec.platforms[0].bin"},
		"no selector":                  {"selector: {matchLabels: {os: linux, arch: amd64}}", "selector: {}", "spec.platforms[0].selector: got none"},
		"another key in a selector":    {"os: linux", "libc: musl", `got the key "libc"`},
		"a platform twice":             {"os: darwin", "os: linux", "twice"},
		"a file from nowhere":          {"bin: lanyard", "files: [{to: .}]\n    bin: lanyard", "spec.platforms[0].files"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(valid, test.old, test.now, 1)
			if _, problems := krewProblems("lanyard", []byte(changed)); changed == valid || len(problems) != 1 || !strings.Contains(problems[0], test.want) {
				t.Errorf("got %q, want one about %q", problems, test.want)
			}
		})
	}
	without, _, _ := strings.Cut(valid, "  - bin")
	if _, problems := krewProblems("lanyard", []byte(without)); len(problems) != 1 || problems[0] != "spec.platforms: got none" {
		t.Errorf("no platforms: got %q", problems)
	}
}
