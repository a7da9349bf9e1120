// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// bom contains the fields of a CycloneDX bill of materials that the test reads.
type bom struct {
	Metadata struct {
		Component  component  `json:"component"`
		Properties []property `json:"properties"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// The image contains nothing but the binary, so both have the same bill of materials.
//
//nolint:paralleltest // it builds
func TestTheBillOfMaterialsIsThatOfTheBinary(t *testing.T) {
	if output, err := tree.Make(t, root, "sbom"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	binary := filepath.Join(root, "bin", "lanyard-webhook")
	text, err := os.ReadFile(binary + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary) // as "go version -m"
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Metadata.Component.Name; got != info.Main.Path {
		t.Errorf("got the bill of materials of %q, want %q", got, info.Main.Path)
	}
	want := map[string]string{"std": info.GoVersion}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		want[module.Path] = module.Version
	}
	got := map[string]string{}
	for _, c := range b.Components {
		got[c.Name] = c.Version
		if purl := "pkg:golang/" + c.Name + "@" + c.Version; !strings.HasPrefix(c.PURL, purl+"?") {
			t.Errorf("component %s: purl: got %q, want %s", c.Name, c.PURL, purl)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modules (-binary +bill of materials):\n%s", diff)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if hash := (property{"cdx:gomod:binary:hash:SHA-256", hex.EncodeToString(sum[:])}); !slices.Contains(b.Metadata.Properties, hash) {
		t.Errorf("no property %+v in %+v", hash, b.Metadata.Properties)
	}
}
