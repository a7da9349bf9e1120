// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestImageEqualsDockerfile compares the image with the final stage of the
// Dockerfile, which users run.
func TestImageEqualsDockerfile(t *testing.T) {
	t.Parallel()
	img, err := fromBinary(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var wantConfig v1.Config
	wantFiles := map[string]file{}
	for _, line := range finalStage(t, "../../../Dockerfile") {
		instruction, arguments, _ := strings.Cut(line, " ")
		switch instruction {
		case "FROM":
			if arguments != "scratch" {
				t.Errorf("got base image %s, want scratch", arguments)
			}
		case "LABEL", "EXPOSE": // They are only metadata.
		case "USER":
			wantConfig.User = arguments
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(arguments), &wantConfig.Entrypoint); err != nil {
				t.Fatal(err)
			}
		case "COPY":
			fields := strings.Fields(arguments)
			wantFiles[fields[len(fields)-1]] = file{Mode: 0o755, Content: "program"}
		default:
			t.Errorf("got the instruction %q in the Dockerfile, which this test does not know", line)
		}
	}
	if diff := cmp.Diff(wantConfig, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantFiles, files(t, img)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got, want := config.OS+"/"+config.Architecture, "linux/"+runtime.GOARCH; got != want {
		t.Errorf("got platform %s, want %s", got, want)
	}
}

func TestWriteArchive(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ tag, want, wantErr string }{
		"a name without a registry is not changed": {tag: "lanyard-webhook:e2e", want: "lanyard-webhook:e2e"},
		"a name with a registry is not changed":    {tag: "registry.test/lanyard:1", want: "registry.test/lanyard:1"},
		"an invalid name is an error":              {tag: "Lanyard Webhook", wantErr: "want one like lanyard-webhook:e2e"},
	}
	img, err := fromBinary(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "image.tar")
			err := writeArchive(path, test.tag, img)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
			if err != nil {
				t.Fatal(err)
			}
			if len(manifest) != 1 {
				t.Fatalf("got %d images, want 1", len(manifest))
			}
			if diff := cmp.Diff([]string{test.want}, manifest[0].RepoTags); diff != "" {
				t.Errorf("tags (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImageOfMissingBinary(t *testing.T) {
	t.Parallel()
	if _, err := fromBinary(filepath.Join(t.TempDir(), "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want one about a missing file", err)
	}
}

func TestImageOfDirectories(t *testing.T) {
	t.Parallel()
	img, err := fromTrees([]string{"/usr/bin/program", "/app/script"}, tree(t, 0o700), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/usr/bin/program", "/app/script"}}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if got := len(config.RootFS.DiffIDs); got != 2 {
		t.Errorf("got %d layers, want one for each directory", got)
	}
	wantFiles := map[string]file{
		"/app":              {Mode: 0o755},
		"/app/script":       {Mode: 0o644, Content: "script"},
		"/bin":              {Mode: 0o777, Target: "usr/bin"},
		"/usr":              {Mode: 0o755},
		"/usr/bin":          {Mode: 0o755},
		"/usr/bin/absolute": {Mode: 0o777, Target: "/usr/bin/program"},
		"/usr/bin/program":  {Mode: 0o755, Content: "program"},
	}
	if diff := cmp.Diff(wantFiles, files(t, img)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestArchiveIsReproducible writes the files twice, with different
// umasks and at different times.
func TestArchiveIsReproducible(t *testing.T) {
	t.Parallel()
	var archives [][]byte
	for _, mask := range []fs.FileMode{0o700, 0o755} {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := run(options{Tag: "a:e2e", Output: path, Entrypoint: []string{"/app/script"}, Paths: []string{tree(t, mask)}}); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("got different archives for the same files")
	}
}

func TestImageWithPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := fromTrees([]string{"/program"}, dir)
	if err == nil || !strings.Contains(err.Error(), "want files, directories and symbolic links") {
		t.Errorf("got error %v, want one about the pipe", err)
	}
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args    []string
		want    options
		wantErr string
	}{
		"a binary": {
			args: []string{"--tag", "a:e2e", "--output", "a.tar", "bin/a"},
			want: options{Tag: "a:e2e", Output: "a.tar", Paths: []string{"bin/a"}},
		},
		"directories with an entrypoint of two words": {
			args: []string{"--tag", "a:e2e", "--output", "a.tar", "--entrypoint", "/node", "--entrypoint", "/a.mjs", "base", "app"},
			want: options{Tag: "a:e2e", Output: "a.tar", Entrypoint: []string{"/node", "/a.mjs"}, Paths: []string{"base", "app"}},
		},
		"a tag is required":         {args: []string{"--output", "a.tar", "bin/a"}, wantErr: "want both"},
		"an archive is required":    {args: []string{"--tag", "a:e2e", "bin/a"}, wantErr: "want both"},
		"a path is required":        {args: []string{"--tag", "a:e2e", "--output", "a.tar"}, wantErr: "no path given"},
		"two binaries are an error": {args: []string{"--tag", "a:e2e", "--output", "a.tar", "bin/a", "bin/b"}, wantErr: "want one binary"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseOptions(test.args, io.Discard)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %+v and error %v, want an error with %q", got, err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// tree writes a directory with all kinds of entries, with permissions reduced
// by the mask.
func tree(t *testing.T, mask fs.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"usr", "usr/bin", "app"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o777&mask); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "usr/bin/program")
	for path, content := range map[string]string{program: "program", filepath.Join(dir, "app/script"): "script"} {
		if err := os.WriteFile(path, []byte(content), 0o666&mask); err != nil {
			t.Fatal(err)
		}
	}
	// Set the mode after writing, because writing clears this bit.
	if err := os.Chmod(program, fs.ModeSetuid|(0o777&mask)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(program, time.Time{}, time.Unix(int64(mask), 0)); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{"bin": "usr/bin", "usr/bin/absolute": "/usr/bin/program"} {
		if err := os.Symlink(target, filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// binary writes a file that stands in for the program.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lanyard-webhook")
	if err := os.WriteFile(path, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// finalStage returns the instructions from the last FROM on, one per line.
func finalStage(t *testing.T, dockerfile string) []string {
	t.Helper()
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	var stage []string
	for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "FROM ") {
			stage = nil
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			stage = append(stage, line)
		}
	}
	return stage
}

// file is a file in an image.
type file struct {
	Mode    int64
	Content string
	// Target is the target of a symbolic link.
	Target string
}

// files returns the files in an image by path.
func files(t *testing.T, img v1.Image) map[string]file {
	t.Helper()
	content := mutate.Extract(img)
	defer content.Close()
	found := map[string]file{}
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		found["/"+header.Name] = file{Mode: header.Mode, Content: string(text), Target: header.Linkname}
	}
}
