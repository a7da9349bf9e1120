// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supplychain tests the files that a release and the workflows are made of. It needs
// neither Git nor the network, and builds nothing.
package supplychain

import (
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// root is the root of the repository.
const root = "../.."

// run runs make in the root of the repository and returns its output.
func run(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory"}, arguments...)...)
	command.Dir = root
	output, err := command.CombinedOutput()
	return string(output), err
}

// Every module of the repository must be scanned: a go.mod that is missing in the
// Makefile would never be.
func TestEveryModuleIsScanned(t *testing.T) {
	t.Parallel()
	files, err := tree.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	output, err := run(t, "--dry-run", "vuln")
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	_, list, _ := strings.Cut(output, "hack/vuln.sh ")
	scanned := map[string]bool{}
	for module := range strings.FieldsSeq(list) {
		scanned[module] = true
	}
	for _, file := range files {
		module := path.Dir(file)
		if path.Base(file) != "go.mod" {
			continue
		}
		if testdata := strings.Contains(module, "testdata"); scanned[module] == testdata {
			t.Errorf("module %s: got scanned %t, want %t; the modules are in the Makefile", module, scanned[module], !testdata)
		}
	}
}
