// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supplychain tests the files that define the release and the workflows. It needs
// neither Git nor the network, and builds nothing.
package supplychain

import (
	"path"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// root is the root of the repository.
const root = "../.."

// Every module of the repository must be scanned. One whose go.mod is missing in the
// Makefile never would be.
func TestEveryModuleIsScanned(t *testing.T) {
	t.Parallel()
	output, err := tree.Make(t, root, "--dry-run", "vuln")
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	_, list, _ := strings.Cut(output, "hack/vuln.sh ")
	scanned := map[string]bool{}
	for module := range strings.FieldsSeq(list) {
		scanned[module] = true
	}
	for _, file := range tree.Files(t, root) {
		module := path.Dir(file)
		if path.Base(file) != "go.mod" {
			continue
		}
		if testdata := strings.Contains(module, "testdata"); scanned[module] == testdata {
			t.Errorf("module %s: got scanned %t, want %t; the modules are in the Makefile", module, scanned[module], !testdata)
		}
	}
}
