// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pkg_test checks the API of the packages for other modules.
package pkg_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	internal = "github.com/lanyard-dev/lanyard/internal/"
	// maxNames limits the exported names of all packages together. Of these, 31 are reasons, 60
	// are about reading an injection back, and 7 about the verified start.
	maxNames = 393
)

// packages returns the files below pkg/ by their folders, with the tests.
func packages(t *testing.T) map[string][]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*/*.go")
	below, errBelow := filepath.Glob("*/*/*.go")
	if err := errors.Join(err, errBelow); err != nil || len(names) == 0 || len(below) == 0 {
		t.Fatalf("got files %q and %q and error %v, want the files of the packages", names, below, err)
	}
	files := map[string][]*ast.File{}
	for _, name := range slices.Concat(names, below) {
		if filepath.Base(name) == "export_test.go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Dir(name)] = append(files[filepath.Dir(name)], file)
	}
	return files
}

func isTest(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` }) || strings.HasSuffix(file.Name.Name, "_test")
}

// api contains the exported names of a file, and those whose types other modules cannot use:
// types of internal packages, or unexported types.
type api struct {
	hidden map[string]bool // the names of internal packages in the file
	names  []string
	unfit  []string
}

func apiOf(file *ast.File) *api {
	a := &api{hidden: map[string]bool{}}
	for _, s := range file.Imports {
		if name := strings.Trim(s.Path.Value, `"`); strings.HasPrefix(name, internal) {
			a.hidden[path.Base(name)] = true
			if s.Name != nil {
				a.hidden[s.Name.Name] = true
			}
		}
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || exportedReceiver(d.Recv) {
				a.add([]*ast.Ident{d.Name}, d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				a.spec(s, d.Tok)
			}
		}
	}
	return a
}

func exportedReceiver(receiver *ast.FieldList) bool {
	t := receiver.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		t = pointer.X
	}
	return ast.IsExported(types.ExprString(t))
}

func (a *api) spec(s ast.Spec, keyword token.Token) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		structure, ok := s.Type.(*ast.StructType)
		if !ok || !s.Name.IsExported() {
			a.add([]*ast.Ident{s.Name}, s.Type)
			return
		}
		a.add([]*ast.Ident{s.Name}, nil)
		for _, field := range structure.Fields.List {
			a.add(field.Names, field.Type)
			if len(field.Names) == 0 { // embedded
				a.check(s.Name.Name, field.Type)
			}
		}
	case *ast.ValueSpec:
		if keyword == token.VAR && s.Type == nil { // the type is not in the text
			s.Type = ast.NewIdent("unknown")
		}
		a.add(s.Names, s.Type)
	}
}

// add adds the exported names with their type, if it is written.
func (a *api) add(names []*ast.Ident, t ast.Expr) {
	for _, name := range names {
		if name.IsExported() {
			a.names = append(a.names, name.Name)
			a.check(name.Name, t)
		}
	}
}

func (a *api) check(name string, t ast.Expr) {
	if t == nil {
		return
	}
	report := func(n ast.Node) { a.unfit = append(a.unfit, fmt.Sprintf("%s: %s", name, n)) }
	ast.Inspect(t, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field: // a parameter, a result or a method: its name is no type
			a.check(name, n.Type)
			return false
		case *ast.SelectorExpr:
			if a.hidden[n.X.(*ast.Ident).Name] {
				report(n.Sel)
			}
			return false
		case *ast.Ident:
			if !n.IsExported() && types.Universe.Lookup(n.Name) == nil {
				report(n)
			}
		}
		return true
	})
}

func TestTheAPIIsSmallAndOtherModulesCanUseIt(t *testing.T) {
	t.Parallel()
	var names []string
	for folder, files := range packages(t) {
		for _, file := range files {
			if isTest(file) {
				continue
			}
			a := apiOf(file)
			names = append(names, a.names...)
			for _, use := range a.unfit {
				t.Errorf("%s: %s: got an internal type, want a type that other modules can use", folder, use)
			}
		}
	}
	if len(names) > maxNames {
		t.Errorf("got %d exported names, want at most %d: %q", len(names), maxNames, names)
	}
	t.Logf("%d exported names", len(names))
}

func TestEachUseOfAnInternalTypeIsFound(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "a.go", `package a

import (
	"`+internal+`b"
	other "`+internal+`c"
)

type hidden = b.T
type Alias = b.T
type Struct struct {
	Field   map[string][]*b.T
	private b.T
}
type Embedding struct{ *b.T }
type Interface interface{ Method(other.T) }
type Fit struct{ private b.T; Text string }
const Constant = b.Constant
var Variable = b.New()
func Function(x int) hidden { return nil }
func (s *Struct) Method(func(b.T)) {}
func (s hidden) Method(b.T) {}
func Generic(list List[b.T], text string) error { return nil }
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Alias: T", "Field: T", "Embedding: T", "Interface: T", "Variable: unknown", "Function: hidden", "Method: T", "Generic: T",
	}
	if diff := cmp.Diff(want, apiOf(file).unfit); diff != "" {
		t.Errorf("uses of internal types (-want +got):\n%s", diff)
	}
}

func TestEachPackageHasAnExampleAndASentenceOnStability(t *testing.T) {
	t.Parallel()
	for folder, files := range packages(t) {
		if strings.Contains(folder, "/") { // a part of the package above
			continue
		}
		var comment string
		var outside []*ast.File
		for _, file := range files {
			comment += file.Doc.Text()
			if isTest(file) && len(apiOf(file).hidden) == 0 {
				outside = append(outside, file)
			}
		}
		if !strings.Contains(comment, "Unstable before v1: ") {
			t.Errorf("%s: got a package comment without a sentence on stability", folder)
		}
		if !slices.ContainsFunc(doc.Examples(outside...), func(e *doc.Example) bool { return e.Output != "" }) {
			t.Errorf("%s: got no example that runs, without internal packages", folder)
		}
	}
}

// The example of pkg/mutate also works in another module: it needs only the packages
// below pkg/ of this module.
func TestAProgramOfAnotherModuleDecides(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const module = "github.com/lanyard-dev/lanyard"
	program, output, found := strings.Cut(read("pkg/mutate/example_test.go"), "\t// Output:\n")
	program = strings.NewReplacer("package mutate_test", "package main", "func Example()", "func main()").Replace(program) + "}\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": program,
		"go.mod": strings.Replace(read("go.mod"), "module "+module+"\n", "module operator.example.com\n", 1) +
			"\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n",
		"go.sum": read("go.sum"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	command.Dir = dir
	var errOut strings.Builder
	command.Stderr = &errOut
	got, err := command.Output()
	want := strings.ReplaceAll(strings.TrimSuffix(output, "}\n"), "\t// ", "")
	if err != nil || !found || string(got) != want {
		t.Errorf("got %q and error %v, want %q\n%s", got, err, want, &errOut)
	}
}

// Users write keys as constants of pkg/annotations.
func TestEachKeyHasAConstant(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	want := append(s.ServiceAccountKeys(),
		annotations.Inject, annotations.Containers, annotations.SkipContainers, annotations.Injected, annotations.Denied, annotations.AllowedIdentities,
		annotations.IdentityLabel, annotations.PoliciesSource, annotations.Adopted, annotations.Probe)
	for _, key := range s.ProfileKeys() {
		want = append(want, strings.TrimSuffix(key, ".PROFILE"))
	}
	slices.Sort(want)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "annotations/annotations.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	config := types.Config{Error: func(error) {}} // the imports are missing, and constants need none
	p, _ := config.Check("annotations", fset, []*ast.File{file}, nil)
	var got []string
	for _, name := range p.Scope().Names() {
		if c, ok := p.Scope().Lookup(name).(*types.Const); ok {
			if key := constant.StringVal(c.Val()); strings.HasPrefix(key, annotations.Prefix) && key != annotations.Prefix {
				got = append(got, key)
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("constants of pkg/annotations (-want +got):\n%s", diff)
	}
}

// An operator that validates annotations or injects its own pods must link neither flags
// nor a Kubernetes client.
func TestThePackagesLinkNeitherFlagsNorAClient(t *testing.T) {
	t.Parallel()
	unwanted := []string{"github.com/spf13/pflag", "github.com/spf13/cobra", "k8s.io/component-base", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "net/http"}
	for folder := range packages(t) {
		if folder == "webhook" { // it is about a webhook server
			continue
		}
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+folder).Output() // downloads are printed as errors
			if err != nil || !strings.Contains(string(out), "/pkg/"+folder+"\n") {
				t.Fatalf("go list: got error %v and %d bytes, want the packages that %s links", err, len(out), folder)
			}
			for linked := range strings.Lines(string(out)) {
				linked = strings.TrimSpace(linked)
				if slices.ContainsFunc(unwanted, func(name string) bool { return linked == name || strings.HasPrefix(linked, name+"/") }) {
					t.Errorf("links %s", linked)
				}
			}
		})
	}
}
