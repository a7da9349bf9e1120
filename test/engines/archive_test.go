// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// image is an archive of hack/archive.sh.
type image struct {
	platform, user, tag string
	entrypoint          []string
	layers              []map[string]file
}

// file is a file of a layer.
type file struct{ mode, content string }

// TestTheImagesEqualTheDockerfile compares the images with the stages of the
// Dockerfile that users run.
func TestTheImagesEqualTheDockerfile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lanyard-webhook", "lanyard"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := stage(t, name)
			got := archive(t, want.tag, "/"+name, tree(t, map[string]file{name: {"-rwx------", "program"}}))
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(image{}, file{})); diff != "" {
				t.Errorf("image (-want +got):\n%s", diff)
			}
		})
	}
}

// stage returns the image that a stage of the Dockerfile builds, without the CAs of
// public servers, because the clusters of the tests have no internet.
func stage(t *testing.T, name string) image {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, stage, found := strings.Cut(strings.ReplaceAll(string(text), "\\\n", ""), "\nFROM scratch AS "+name+"\n")
	stage, _, _ = strings.Cut(stage, "\nFROM ")
	want := image{platform: "linux/" + runtime.GOARCH, tag: name + ":e2e", layers: []map[string]file{{}}}
	for line := range strings.Lines(stage) {
		instruction, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "USER":
			want.user = arguments
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(arguments), &want.entrypoint)
		case "COPY":
			if path := arguments[strings.LastIndex(arguments, " ")+1:]; path != "/etc/ssl/certs/ca-certificates.crt" {
				want.layers[0][path] = file{"-rwxr-xr-x", "program"}
			}
		case "", "#", "LABEL", "EXPOSE": // They have no effect on the process.
		default:
			t.Errorf("got the instruction %q in the Dockerfile, which this test does not know", line)
		}
	}
	if !found || err != nil {
		t.Fatalf("the Dockerfile's stage %s is not understood: %v", name, err)
	}
	return want
}

func TestEachDirectoryIsALayer(t *testing.T) {
	t.Parallel()
	base := tree(t, map[string]file{"usr/bin/node": {"-rwx------", "node"}})
	if err := os.Symlink("usr/bin", filepath.Join(base, "bin")); err != nil {
		t.Fatal(err)
	}
	got := archive(t, "a:e2e", "/usr/bin/node /app/a.mjs", base, tree(t, map[string]file{"app/a.mjs": {"-rw-------", "script"}}))
	want := []map[string]file{
		{"/usr/bin/node": {"-rwxr-xr-x", "node"}, "/bin": {"Lrwxrwxrwx", "usr/bin"}},
		{"/app/a.mjs": {"-rw-r--r--", "script"}},
	}
	if diff := cmp.Diff(want, got.layers, cmp.AllowUnexported(file{})); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/usr/bin/node", "/app/a.mjs"}, got.entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
}

func TestAFailureKeepsTheOldArchive(t *testing.T) {
	t.Parallel()
	output := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(output, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string][]string{
		"no directory":               {"a:e2e", output, "/a"},
		"a directory that is absent": {"a:e2e", output, "/a", filepath.Join(t.TempDir(), "nothing")},
	} {
		if text, err := exec.CommandContext(t.Context(), "../../hack/archive.sh", arguments...).CombinedOutput(); err == nil {
			t.Errorf("%s: got no error, want one:\n%s", name, text)
		}
	}
	files, err := filepath.Glob(filepath.Dir(output) + "/*")
	text, readErr := os.ReadFile(output)
	if errors.Join(err, readErr) != nil || len(files) != 1 || string(text) != "old" {
		t.Errorf("got the files %q and the archive %q, want only the old archive", files, text)
	}
}

// tree returns a directory with the files.
func tree(t *testing.T, files map[string]file) string {
	t.Helper()
	directory := t.TempDir()
	for name, f := range files {
		path := filepath.Join(directory, name)
		mode := os.FileMode(0o600)
		if strings.Contains(f.mode, "x") {
			mode = 0o700
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(f.content), mode)); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// archive calls hack/archive.sh and reads the archive.
func archive(t *testing.T, tag, entrypoint string, directories ...string) image {
	t.Helper()
	output := filepath.Join(t.TempDir(), "image.tar")
	command := exec.CommandContext(t.Context(), "../../hack/archive.sh", append([]string{tag, output, entrypoint}, directories...)...)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	parts := unpack(t, text)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	var config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	err = json.Unmarshal([]byte(parts["/manifest.json"].content), &manifest)
	if err != nil || len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
		t.Fatalf("got the manifest %s, want one image with one tag: %v", parts["/manifest.json"].content, err)
	}
	if err := json.Unmarshal([]byte(parts["/"+manifest[0].Config].content), &config); err != nil {
		t.Fatal(err)
	}
	i := image{config.OS + "/" + config.Architecture, config.Config.User, manifest[0].RepoTags[0], config.Config.Entrypoint, nil}
	var ids []string
	for _, name := range manifest[0].Layers {
		layer := []byte(parts["/"+name].content)
		ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(layer)))
		i.layers = append(i.layers, unpack(t, layer))
	}
	if diff := cmp.Diff(ids, config.RootFS.DiffIDs); diff != "" {
		t.Errorf("hashes of the layers (-layers +config):\n%s", diff)
	}
	return i
}

// unpack returns the files of a tar archive by path. Directories must be readable by
// everyone.
func unpack(t *testing.T, text []byte) map[string]file {
	t.Helper()
	files := map[string]file{}
	for reader := tar.NewReader(bytes.NewReader(text)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		mode := header.FileInfo().Mode().String()
		if header.Typeflag == tar.TypeDir {
			if mode != "drwxr-xr-x" {
				t.Errorf("got the mode %s of %s, want drwxr-xr-x", mode, header.Name)
			}
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files["/"+strings.TrimPrefix(header.Name, "./")] = file{mode, header.Linkname + string(content)}
	}
}
