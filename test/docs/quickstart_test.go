// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// The quick start builds lanyard, and its output and the page contain the same command that
// adds lanyard to the PATH.
func TestTheQuickStartHasTheCommandLineTool(t *testing.T) {
	script := tree.Read(t, root, "hack/kind/quickstart.sh")
	if !strings.Contains(script, "go build -o bin/lanyard ./cmd/lanyard\n") {
		t.Error("hack/kind/quickstart.sh: got no build of bin/lanyard")
	}
	_, output, _ := strings.Cut(script, "what_next() {")
	output = strings.NewReplacer(`\$`, "$", "$kubeconfig", "bin/quickstart/kubeconfig").Replace(output)
	const line = "export KUBECONFIG=$PWD/bin/quickstart/kubeconfig PATH=$PWD/bin:$PATH\n"
	if !strings.Contains(output, line) {
		t.Errorf("hack/kind/quickstart.sh: want in the output: %s", line)
	}
	if page := tree.Read(t, root, "docs/quickstart-kind.md"); !strings.Contains(page, line) {
		t.Errorf("docs/quickstart-kind.md: want %s", line)
	}
}

// Without a container engine, the message names a way to see the same.
func TestWithoutAnEngineTheMessageNamesTheDemo(t *testing.T) {
	stubs := t.TempDir()
	for _, engine := range []string{"docker", "podman"} {
		if err := process.WriteScript(filepath.Join(stubs, engine), "#!/bin/sh\necho cannot connect >&2\nexit 1\n"); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), filepath.Join(root, "hack/kind/engine.sh"))
	command.Env = []string{"PATH=" + stubs + ":/usr/bin:/bin"}
	output, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "cannot connect") || !strings.Contains(string(output), "make demo") {
		t.Errorf("got error %v and %q, want the cause and make demo", err, output)
	}
}
