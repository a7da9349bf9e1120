// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bom is what the tests need of a CycloneDX bill of materials.
type bom struct {
	BOMFormat    string      `json:"bomFormat"`
	SpecVersion  string      `json:"specVersion"`
	SerialNumber string      `json:"serialNumber"`
	Version      int         `json:"version"`
	Metadata     metadata    `json:"metadata"`
	Components   []component `json:"components"`
	Dependencies []struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	} `json:"dependencies"`
}

type metadata struct {
	Timestamp  time.Time  `json:"timestamp"`
	Component  component  `json:"component"`
	Properties []property `json:"properties"`
}

type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// problems lists where the bill of materials violates the schema of CycloneDX 1.6:
// required fields, and references to components.
func (b *bom) problems() []string {
	var found []string
	check := func(ok bool, format string, arguments ...any) {
		if !ok {
			found = append(found, fmt.Sprintf(format, arguments...))
		}
	}
	check(b.BOMFormat == "CycloneDX", "bomFormat: got %q, want CycloneDX", b.BOMFormat)
	check(b.SpecVersion == "1.6", "specVersion: got %q, want 1.6", b.SpecVersion)
	check(serialNumber.MatchString(b.SerialNumber), "serialNumber: got %q, want a UUID", b.SerialNumber)
	check(b.Version >= 1, "version: got %d, want 1 or more", b.Version)
	check(!b.Metadata.Timestamp.IsZero(), "metadata.timestamp: got none")
	refs := map[string]bool{}
	for _, c := range append([]component{b.Metadata.Component}, b.Components...) {
		check(c.Type == "application" || c.Type == "library", "component %s: type: got %q, want application or library", c.Name, c.Type)
		check(c.Name != "", "component %s: name: got none", c.Ref)
		check(c.Ref != "" && !refs[c.Ref], "component %s: bom-ref: got %q, want it once", c.Name, c.Ref)
		refs[c.Ref] = true
		for _, h := range c.Hashes {
			check(h.Algorithm == "SHA-256" && sha.MatchString(h.Content), "component %s: got hash %+v, want SHA-256 and 64 hexadecimal digits", c.Name, h)
		}
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			check(refs[ref], "dependencies: got %q, want the bom-ref of a component", ref)
		}
	}
	for _, p := range b.Metadata.Properties {
		check(p.Name != "", "metadata.properties: got one without a name")
	}
	return found
}

var (
	serialNumber = regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	sha          = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// readBOM reads a bill of materials.
func readBOM(t *testing.T, text []byte) *bom {
	t.Helper()
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// The image holds the binary and nothing else, so the bill of materials of the
// binary is the image's.
//
//nolint:paralleltest // it builds
func TestTheBillOfMaterialsIsThatOfTheBinary(t *testing.T) {
	if output, err := run(t, "sbom"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	binary := filepath.Join(root, "bin", "lanyard-webhook")
	text, err := os.ReadFile(binary + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	b := readBOM(t, text)
	for _, problem := range b.problems() {
		t.Error(problem)
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

// What the previous test would not notice must not pass.
func TestAMalformedBillOfMaterialsIsNoticed(t *testing.T) {
	t.Parallel()
	const valid = `{"bomFormat":"CycloneDX","specVersion":"1.6","serialNumber":"urn:uuid:01234567-89ab-cdef-0123-456789abcdef","version":1,` +
		`"metadata":{"timestamp":"2026-01-01T00:00:00Z","component":{"bom-ref":"m","type":"application","name":"m"}},` +
		`"components":[{"bom-ref":"a","type":"library","name":"a","version":"v1"}],"dependencies":[{"ref":"m","dependsOn":["a"]}]}`
	if problems := readBOM(t, []byte(valid)).problems(); len(problems) > 0 {
		t.Fatalf("got %q, want no problem", problems)
	}
	tests := map[string]struct{ old, now, want string }{
		"another format":            {`"CycloneDX"`, `"SPDX"`, "bomFormat"},
		"another version":           {`"1.6"`, `"1.7"`, "specVersion"},
		"a serial number":           {`urn:uuid:0`, `urn:uuid:`, "serialNumber"},
		"no version":                {`"version":1`, `"version":0`, "version"},
		"no timestamp":              {`"timestamp"`, `"time"`, "timestamp"},
		"a component without type":  {`"type":"library",`, "", "type"},
		"a component without name":  {`"name":"a"`, `"name":""`, "name"},
		"a reference that is there": {`"bom-ref":"a"`, `"bom-ref":"m"`, "bom-ref"},
		"a reference to nothing":    {`["a"]`, `["b"]`, "dependencies"},
		"a short hash":              {`"version":"v1"`, `"hashes":[{"alg":"SHA-256","content":"00"}]`, "hash"},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := readBOM(t, []byte(strings.Replace(valid, test.old, test.now, 1))).problems()
			if len(problems) == 0 || !strings.Contains(problems[0], test.want) {
				t.Errorf("got %q, want %q", problems, test.want)
			}
		})
	}
}
