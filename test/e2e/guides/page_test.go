// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guides_test checks the code blocks of the cloud guides in docs. It runs
// the commands of a page with stand-ins for the clouds' command lines, and
// evaluates the Terraform configuration with the same result in examples/terraform.
// What a page sets up that way must get a pod a credential from the emulated cloud,
// and must not if one character of it differs.
package guides_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
	"sigs.k8s.io/yaml"
)

// docs is the directory of the pages.
const docs = "../../../docs"

// pages are the pages that this package checks.
var pages = []string{"clouds/aws.md", "clouds/azure.md", "clouds/gcp.md", "clouds/vault.md", "issuer.md"}

// block is a fenced code block.
type block struct {
	language string
	text     string
	line     int
}

// readPage returns the code blocks of a page.
func readPage(t testing.TB, name string) []block {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(docs, name))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	err = ast.Walk(goldmark.New().Parser().Parse(text.NewReader(source)), func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if fence, ok := node.(*ast.FencedCodeBlock); ok && entering {
			lines := fence.Lines()
			blocks = append(blocks, block{
				language: string(fence.Language(source)),
				text:     string(lines.Value(source)),
				line:     strings.Count(string(source[:lines.At(0).Start]), "\n") + 1,
			})
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// joined returns the text of all blocks in one of the languages.
func joined(blocks []block, language string) string {
	var all strings.Builder
	for _, b := range blocks {
		if b.language == language {
			all.WriteString(b.text + "\n")
		}
	}
	return all.String()
}

// checks contains the check for the blocks of each language. Other languages are mistakes.
var checks = map[string]func(testing.TB, string) error{
	"hcl":  checkHCL,
	"sh":   checkShell,
	"json": func(_ testing.TB, text string) error { return json.Unmarshal([]byte(text), new(any)) },
	"yaml": func(_ testing.TB, text string) error { return yaml.UnmarshalStrict([]byte(text), new(any)) },
	// Only nginx can check it.
	"nginx": func(testing.TB, string) error { return nil },
}

// checkHCL returns an error unless the text is valid and formatted.
func checkHCL(_ testing.TB, text string) error {
	if _, diagnostics := hclsyntax.ParseConfig([]byte(text), "block", hcl.InitialPos); diagnostics.HasErrors() {
		return diagnostics
	}
	if formatted := string(hclwrite.Format([]byte(text))); formatted != text {
		return fmt.Errorf("not formatted, want:\n%s", formatted)
	}
	return nil
}

// checkShell returns an error unless bash can parse the text.
func checkShell(t testing.TB, text string) error {
	command := exec.CommandContext(t.Context(), "bash", "-n")
	command.Stdin = strings.NewReader(text)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

func TestEveryBlockIsValid(t *testing.T) {
	t.Parallel()
	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			blocks := readPage(t, page)
			if len(blocks) < 5 {
				t.Errorf("got %d blocks, want at least 5", len(blocks))
			}
			for _, b := range blocks {
				check, known := checks[b.language]
				if !known {
					t.Errorf("line %d: got a block in %q, want one of the languages that are checked", b.line, b.language)
					continue
				}
				if err := check(t, b.text); err != nil {
					t.Errorf("line %d: %s: %v", b.line, b.language, err)
				}
			}
		})
	}
}
