// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestImageIsTheDockerfiles holds the image to the Dockerfile's final stage,
// which is what users run.
func TestImageIsTheDockerfiles(t *testing.T) {
	t.Parallel()
	img, err := New(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var wantConfig v1.Config
	wantFiles := map[string]file{}
	for _, line := range finalStage(t, "../../../../Dockerfile") {
		instruction, arguments, _ := strings.Cut(line, " ")
		switch instruction {
		case "FROM":
			if arguments != "scratch" {
				t.Errorf("got the base image %s, want scratch", arguments)
			}
		case "LABEL", "EXPOSE": // They say something to people and change nothing.
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
			t.Errorf("got the instruction %q in the Dockerfile, which the image does not follow", line)
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
		"a name without a registry stays as it is":  {tag: "lanyard-webhook:e2e", want: "lanyard-webhook:e2e"},
		"a name with a registry stays as it is":     {tag: "registry.test/lanyard:1", want: "registry.test/lanyard:1"},
		"a name that no image can have is an error": {tag: "Lanyard Webhook", wantErr: "writing the archive"},
	}
	img, err := New(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "image.tar")
			err := WriteArchive(path, test.tag, img)
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

func TestAnImageNeedsABinary(t *testing.T) {
	t.Parallel()
	if _, err := New(filepath.Join(t.TempDir(), "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want one of a file that does not exist", err)
	}
}

// binary writes what stands for the program.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lanyard-webhook")
	if err := os.WriteFile(path, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// finalStage returns the instructions from the last FROM on, each in one line.
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

// file is a file of an image.
type file struct {
	Mode    int64
	Content string
}

// files returns the files of an image by path.
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
		found["/"+header.Name] = file{Mode: header.Mode, Content: string(text)}
	}
}
