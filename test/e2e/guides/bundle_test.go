// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/lanyard-dev/lanyard/test/support/golden"
)

// Terraform can read the output of lanyard trust for CredentialsRequests: each reference names
// a resource of the output, and the permissions are those of the requests, including variables
// of IAM.
func TestTerraformOfABundle(t *testing.T) {
	t.Parallel()
	texts, err := golden.Read("../../../internal/cli/cloud/testdata/bundle.txt")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(texts, func(text golden.Text) bool { return text.Heading == "bundle as terraform" })
	if i < 0 {
		t.Fatal("the output as Terraform is not in the golden file")
	}
	file, diagnostics := hclsyntax.ParseConfig([]byte(texts[i].Body), "bundle", hcl.InitialPos)
	if diagnostics.HasErrors() {
		t.Fatal(diagnostics)
	}
	addresses := map[string]*hclsyntax.Block{}
	for _, block := range file.Body.(*hclsyntax.Body).Blocks {
		address := ""
		switch block.Type {
		case "resource":
			address = block.Labels[0] + "." + block.Labels[1]
		case "data":
			address = "data." + block.Labels[0]
		case "variable":
			address = "var." + block.Labels[0]
		}
		if addresses[address] != nil {
			t.Errorf("%s is there twice", address)
		}
		addresses[address] = block
	}
	for address, block := range addresses {
		_ = hclsyntax.VisitAll(block.Body, func(node hclsyntax.Node) hcl.Diagnostics {
			expression, isReference := node.(*hclsyntax.ScopeTraversalExpr)
			if !isReference || expression.Traversal.RootName() == "each" {
				return nil
			}
			root := expression.Traversal.RootName()
			step, _ := expression.Traversal[1].(hcl.TraverseAttr)
			if addresses[root+"."+step.Name] == nil {
				t.Errorf("%s refers to %s.%s, which is not in the output", address, root, step.Name)
			}
			return nil
		})
	}
	policy := addresses["aws_iam_role_policy.example_registry_registry_operator"]
	if policy == nil {
		t.Fatal("the role of the registry has no policy")
	}
	value, diagnostics := policy.Body.Attributes["policy"].Expr.Value(nil)
	if diagnostics.HasErrors() {
		t.Fatal(diagnostics)
	}
	var document struct {
		Statement []struct{ Resource string }
	}
	if err := json.Unmarshal([]byte(value.AsString()), &document); err != nil {
		t.Fatal(err)
	}
	if got, want := document.Statement[1].Resource, "arn:aws:s3:::example-${aws:PrincipalTag/team}/*"; got != want {
		t.Errorf("got the resource %q, want %q", got, want)
	}
}
