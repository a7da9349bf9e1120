// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// fakes stand in for the programs that publish. Each appends its arguments to the file
// log. skopeo returns a fixed index, and the registry the one of $PUSHED, if it is set.
var fakes = map[string]string{
	"skopeo": `if [ "$1" = copy ]; then echo "skopeo $*" >>log; exit; fi
case $3 in oci-archive:*) printf index ;; *) printf '%s' "${PUSHED:-index}" ;; esac`,
	"helm":   `echo "helm $*" >>log; echo "Digest: sha256:chart"`,
	"cosign": `echo "cosign $*" >>log`,
	"gh":     `echo "gh $*" >>log`,
}

// built is a directory in which "hack/release.sh build v9.8.7" has run.
type built struct{ directory, sums string }

func newBuilt(t *testing.T) *built {
	t.Helper()
	b := &built{directory: releaseTree(t, "")}
	for name, text := range map[string]string{
		"lanyard-webhook.tar": "image", "lanyard.tar": "image", "lanyard-9.8.7.tgz": "chart", "notes.md": "notes",
		"files/checksums.txt": "sums", "files/lanyard_9.8.7_linux_amd64.tar.gz": "archive",
	} {
		b.write(t, "bin/release/"+name, text)
	}
	if err := os.Mkdir(filepath.Join(b.directory, "fakes"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, body := range fakes {
		if err := process.WriteScript(filepath.Join(b.directory, "fakes", name), "#!/usr/bin/env bash\n"+body+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	output, err := b.run(t, nil, `. <(sed '/^main "/d; /^cd /d' hack/release.sh) && sums`)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	b.sums = strings.TrimPrefix(strings.TrimSpace(output), "sums=")
	return b
}

func (b *built) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(b.directory, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs a script of bash in the directory, with the fakes.
func (b *built) run(t *testing.T, environment []string, script string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir = b.directory
	command.Env = append(command.Environ(), "PATH="+filepath.Join(b.directory, "fakes")+":"+os.Getenv("PATH"),
		"REGISTRY=registry.example/team", "RELEASE_SUMS="+b.sums, "GITHUB_OUTPUT="+filepath.Join(b.directory, "outputs"))
	command.Env = append(command.Env, environment...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// published returns the calls of the fakes.
func (b *built) published(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.directory, "log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func TestPublishPublishesTheBuiltFilesByDigest(t *testing.T) {
	t.Parallel()
	b := newBuilt(t)
	if output, err := b.run(t, nil, "bash hack/release.sh publish v9.8.7"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("index")))
	want := []string{
		"skopeo copy --all --preserve-digests oci-archive:bin/release/lanyard-webhook.tar docker://registry.example/team/lanyard-webhook:9.8.7",
		"cosign sign --yes registry.example/team/lanyard-webhook@" + digest,
		"skopeo copy --all --preserve-digests oci-archive:bin/release/lanyard.tar docker://registry.example/team/lanyard:9.8.7",
		"cosign sign --yes registry.example/team/lanyard@" + digest,
		"helm push bin/release/lanyard-9.8.7.tgz oci://registry.example/team/charts",
		"cosign sign --yes registry.example/team/charts/lanyard@sha256:chart",
		"cosign sign-blob --yes --bundle bin/release/files/checksums.txt.sigstore.json bin/release/files/checksums.txt",
		"gh release create v9.8.7 --verify-tag --draft --title v9.8.7 --notes-file bin/release/notes.md" +
			" bin/release/files/checksums.txt bin/release/files/lanyard_9.8.7_linux_amd64.tar.gz",
	}
	if diff := cmp.Diff(want, b.published(t)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	outputs, err := os.ReadFile(filepath.Join(b.directory, "outputs"))
	if wantOutputs := "sums=" + b.sums + "\nlanyard-webhook=" + digest + "\nlanyard=" + digest + "\nchart=sha256:chart\n"; err != nil || string(outputs) != wantOutputs {
		t.Errorf("got outputs %q (%v), want %q", outputs, err, wantOutputs)
	}
}

func TestPublishPublishesNothingElse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change      func(t *testing.T, b *built)
		environment string
		want        string
		calls       int
	}{
		"a file that was changed": {
			func(t *testing.T, b *built) { t.Helper(); b.write(t, "bin/release/lanyard.tar", "other") }, "", "is not what was built", 0,
		},
		"a file that was added": {
			func(t *testing.T, b *built) { t.Helper(); b.write(t, "bin/release/files/x", "other") }, "", "want those of SHA256SUMS", 0,
		},
		"checksums of other files":             {nil, "RELEASE_SUMS=0", "want 0", 0},
		"no checksums from the build":          {nil, "RELEASE_SUMS=", "want \n", 0},
		"a registry that stored another image": {nil, "PUSHED=other", "got the digest", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBuilt(t)
			if test.change != nil {
				test.change(t, b)
			}
			output, err := b.run(t, []string{test.environment}, "bash hack/release.sh publish v9.8.7")
			if err == nil || !strings.Contains(output, test.want) {
				t.Errorf("got error %v, want one with %q:\n%s", err, test.want, output)
			}
			var calls int
			for _, call := range b.published(t) {
				if call != "" {
					calls++
				}
			}
			if calls != test.calls {
				t.Errorf("got the calls %q, want %d", b.published(t), test.calls)
			}
		})
	}
}
