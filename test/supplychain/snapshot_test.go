// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var dist = flag.String("dist", "", "directory with what GoReleaser built; \"make snapshot\" sets it")

// Each way to install the program has the archives that GoReleaser built, and the
// program in them works.
//
//nolint:paralleltest // the parts report what belongs together
func TestSnapshot(t *testing.T) {
	if *dist == "" {
		t.Skip("make snapshot runs this test, after it has built the archives")
	}
	archives := checksums(t)
	t.Run("archives are those of checksums.txt", func(t *testing.T) {
		for name, want := range archives {
			if got := hexSum(t, name); got != want {
				t.Errorf("%s: got SHA-256 %s, want %s", name, got, want)
			}
		}
	})
	t.Run("the krew manifest", func(t *testing.T) { expectKrew(t, archives) })
	t.Run("the cask", func(t *testing.T) { expectCask(t, archives) })
	t.Run("the program of this platform", func(t *testing.T) {
		for name := range archives {
			if strings.HasPrefix(name, "lanyard_") && strings.HasSuffix(name, "_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz") {
				binary := unpack(t, name, "lanyard")
				expectPlugin(t, binary)
				// Go does not know the commit in a worktree of Git, where .git is a file.
				if info, err := os.Stat(filepath.Join(root, ".git")); err == nil && info.IsDir() {
					_, version := execute(t, nil, binary, "--version")
					expectVersion(t, version)
				}
				return
			}
		}
		t.Errorf("got no archive for %s/%s in %v", runtime.GOOS, runtime.GOARCH, archives)
	})
}

// checksums returns the files of checksums.txt and their SHA-256.
func checksums(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for line := range strings.Lines(string(distFile(t, "checksums.txt"))) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("checksums.txt: got %q", line)
		}
		files[fields[1]] = fields[0]
	}
	return files
}

func distFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(*dist, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func hexSum(t *testing.T, name string) string {
	t.Helper()
	sum := sha256.Sum256(distFile(t, name))
	return hex.EncodeToString(sum[:])
}

// expectKrew holds the manifest to krew's schema, and to the archives.
func expectKrew(t *testing.T, archives map[string]string) {
	t.Helper()
	plugin, problems := krewProblems("lanyard", distFile(t, "krew/lanyard.yaml"))
	for _, problem := range problems {
		t.Error(problem)
	}
	var platforms []string
	for i := range plugin.Spec.Platforms {
		p := &plugin.Spec.Platforms[i]
		system, architecture := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
		platforms = append(platforms, system+"/"+architecture)
		name := path.Base(p.URI)
		if want := "https://github.com/lanyard-dev/lanyard/releases/download/"; !strings.HasPrefix(p.URI, want) || !strings.Contains(name, "_"+system+"_"+architecture+".") {
			t.Errorf("%s/%s: got URI %s, want one of its archive at %s", system, architecture, p.URI, want)
		}
		if archives[name] != p.SHA256 {
			t.Errorf("%s: got SHA-256 %s, want that of checksums.txt: %q", name, p.SHA256, archives[name])
		}
		unpack(t, name, p.Bin)
	}
	want := strings.Fields(find(t, "Makefile", `(?m)^PLUGIN_PLATFORMS *:= (.*)$`))
	slices.Sort(platforms)
	slices.Sort(want)
	if !slices.Equal(platforms, want) {
		t.Errorf("got platforms %q, want %q as in the Makefile", platforms, want)
	}
}

// expectCask checks that the cask of Homebrew has the archives of its platforms.
func expectCask(t *testing.T, archives map[string]string) {
	t.Helper()
	text := string(distFile(t, "homebrew/Casks/lanyard.rb"))
	sums := regexp.MustCompile(`sha256 "([0-9a-f]{64})"`).FindAllStringSubmatch(text, -1)
	var got, want []string
	for _, match := range sums {
		got = append(got, match[1])
	}
	for name, sum := range archives {
		if strings.HasPrefix(name, "lanyard_") && strings.HasSuffix(name, ".tar.gz") && !strings.Contains(name, "_windows_") {
			want = append(want, sum)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) != 4 || !slices.Equal(got, want) {
		t.Errorf("got the archives %q, want %q", got, want)
	}
	if !strings.Contains(text, "\n  binary \"lanyard\"\n") {
		t.Errorf("got no binary lanyard in\n%s", text)
	}
}

// unpack returns the path of a file that it takes from an archive, which must also
// have the license.
func unpack(t *testing.T, archive, file string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(*dist, archive))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", archive, err)
	}
	directory := t.TempDir()
	var names []string
	for reader := tar.NewReader(zipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		names = append(names, header.Name)
		if header.Name == file {
			if err := save(filepath.Join(directory, file), header.FileInfo().Mode().Perm(), reader); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{"LICENSE", file}
	if !strings.HasPrefix(file, "lanyard-webhook") {
		want = []string{"LICENSE", "kubectl_complete-lanyard", file}
	}
	if !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("%s: got %q, want %q", archive, names, want)
	}
	return filepath.Join(directory, file)
}

func save(name string, mode os.FileMode, content io.Reader) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
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
	text := read(t, ".goreleaser.yaml")
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
