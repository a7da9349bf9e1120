// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// examples is the directory of the Terraform configurations.
const examples = "../../../examples/terraform"

// attributes are the values of a block by name. A nested block is an object.
type attributes map[string]cty.Value

// text returns a string attribute. The path leads into objects.
func (a attributes) text(path ...string) string {
	value := a[path[0]]
	for _, name := range path[1:] {
		value = value.GetAttr(name)
	}
	return value.AsString()
}

// texts returns an attribute that is an object of strings.
func (a attributes) texts(name string) map[string]string {
	all := map[string]string{}
	for key, value := range a[name].AsValueMap() {
		all[key] = value.AsString()
	}
	return all
}

// configuration maps addresses, such as aws_iam_role.shop_cart, to the resources of a
// Terraform configuration.
type configuration map[string]attributes

// resource returns the only resource of a type.
func (c configuration) resource(t testing.TB, kind string) attributes {
	t.Helper()
	var found []attributes
	for address, resource := range c {
		if strings.HasPrefix(address, kind+".") {
			found = append(found, resource)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d resources of type %s, want 1 in the configuration", len(found), kind)
	}
	return found[0]
}

// evaluate evaluates the Terraform configuration of a cloud in the examples, which
// must be formatted. applied adds the attributes that the cloud would set to a
// resource or data source of a type.
func evaluate(t testing.TB, cloud string, variables attributes, applied func(kind string, a attributes)) configuration {
	t.Helper()
	name := filepath.Join(examples, cloud, "main.tf")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkHCL(t, string(text)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	file, diagnostics := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
	if diagnostics.HasErrors() {
		t.Fatal(diagnostics)
	}
	e := evaluation{variables: variables, locals: attributes{}, resources: configuration{}, applied: applied}
	pending := file.Body.(*hclsyntax.Body).Blocks
	for len(pending) > 0 {
		var later []*hclsyntax.Block
		var failed hcl.Diagnostics
		for _, b := range pending {
			// A block may refer to one that comes later.
			if diagnostics := e.block(b); diagnostics.HasErrors() {
				later, failed = append(later, b), append(failed, diagnostics...)
			}
		}
		if len(later) == len(pending) {
			t.Fatal(failed)
		}
		pending = later
	}
	return e.resources
}

// evaluation is the state of evaluating a configuration.
type evaluation struct {
	variables, locals attributes
	resources         configuration
	applied           func(kind string, a attributes)
}

// block evaluates a block of the file.
func (e *evaluation) block(b *hclsyntax.Block) hcl.Diagnostics {
	scope := e.scope()
	switch b.Type {
	case "variable":
		if _, set := e.variables[b.Labels[0]]; !set {
			return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "the test has no value for variable " + b.Labels[0]}}
		}
	case "locals":
		values, diagnostics := valuesOf(b.Body, scope)
		maps.Copy(e.locals, values)
		return diagnostics
	case "resource", "data":
		values, diagnostics := valuesOf(b.Body, scope)
		if diagnostics.HasErrors() {
			return diagnostics
		}
		e.applied(b.Labels[0], values)
		address := strings.Join(b.Labels, ".")
		if b.Type == "data" {
			address = "data." + address
		}
		e.resources[address] = values
	default:
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: fmt.Sprintf("got a block %q, want a variable, locals, a resource or data", b.Type)}}
	}
	return nil
}

// scope returns everything that expressions can refer to so far.
func (e *evaluation) scope() *hcl.EvalContext {
	tree := map[string]map[string]cty.Value{"var": e.variables, "local": e.locals}
	data := map[string]map[string]cty.Value{}
	for address, resource := range e.resources {
		branches := tree
		if rest, ok := strings.CutPrefix(address, "data."); ok {
			branches, address = data, rest
		}
		kind, name, _ := strings.Cut(address, ".")
		if branches[kind] == nil {
			branches[kind] = map[string]cty.Value{}
		}
		branches[kind][name] = cty.ObjectVal(resource)
	}
	values := objects(tree)
	values["data"] = cty.ObjectVal(objects(data))
	return &hcl.EvalContext{Variables: values, Functions: map[string]function.Function{
		"jsonencode": stdlib.JSONEncodeFunc,
		"trimprefix": stdlib.TrimPrefixFunc,
	}}
}

func objects(tree map[string]map[string]cty.Value) map[string]cty.Value {
	values := map[string]cty.Value{}
	for name, branch := range tree {
		values[name] = cty.ObjectVal(branch)
	}
	return values
}

// valuesOf returns the attributes and nested blocks of a body.
func valuesOf(body *hclsyntax.Body, scope *hcl.EvalContext) (attributes, hcl.Diagnostics) {
	values := attributes{}
	var all hcl.Diagnostics
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		value, diagnostics := body.Attributes[name].Expr.Value(scope)
		values[name], all = value, append(all, diagnostics...)
	}
	for _, b := range body.Blocks {
		inner, diagnostics := valuesOf(b.Body, scope)
		values[b.Type], all = cty.ObjectVal(inner), append(all, diagnostics...)
	}
	return values, all
}
