// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package release

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

var dist = flag.String("dist", "", "directory with what GoReleaser built; \"make snapshot\" sets it")

// Each way to install the program uses the archives that GoReleaser built, and the
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
					_, version := execute(t, binary, "--version")
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

// krewPlugin contains the fields of the plugin's manifest that krew reads to install it.
type krewPlugin struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Platforms []struct {
			URI      string               `json:"uri"`
			SHA256   string               `json:"sha256"`
			Bin      string               `json:"bin"`
			Selector metav1.LabelSelector `json:"selector"`
		} `json:"platforms"`
	} `json:"spec"`
}

// expectKrew checks that the manifest has the archive of each platform. krew's own checks
// read all other fields.
func expectKrew(t *testing.T, archives map[string]string) {
	t.Helper()
	var plugin krewPlugin
	if err := yaml.Unmarshal(distFile(t, "krew/lanyard.yaml"), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Metadata.Name != "lanyard" {
		t.Errorf("got the plugin %q, want lanyard", plugin.Metadata.Name)
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
	want := pluginPlatforms(t)
	slices.Sort(platforms)
	slices.Sort(want)
	if !slices.Equal(platforms, want) {
		t.Errorf("got platforms %q, want %q as in the Makefile", platforms, want)
	}
}

// pluginPlatforms returns the platforms of the Makefile.
func pluginPlatforms(t *testing.T) []string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^PLUGIN_PLATFORMS *:= (.*)$`).FindStringSubmatch(tree.Read(t, root, "Makefile"))
	if match == nil {
		t.Fatal("got no PLUGIN_PLATFORMS in the Makefile")
	}
	return strings.Fields(match[1])
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

// unpack extracts a file from an archive, which must also contain the license, and
// returns its path.
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
