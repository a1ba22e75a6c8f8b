package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quoted is text in backquotes.
var quoted = regexp.MustCompile("`([^`\n]+)`")

func TestArchitectureHasASentenceForEachPackage(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile("(?m)^\\| `([^|]+)` \\| .{10,} \\|$").FindAllStringSubmatch(readText(t, "../ARCHITECTURE.md"), -1)
	listed := map[string]bool{}
	for _, row := range rows {
		for name := range strings.SplitSeq(row[1], "`, `") {
			listed[name] = true
		}
	}
	for _, p := range list(t, "linux", "./...") {
		if path := local(p.ImportPath); len(p.GoFiles) > 0 && !listed[path] {
			t.Errorf("ARCHITECTURE.md has no sentence for %s", path)
		}
	}
	for path := range listed {
		if strings.Contains(path, "/") {
			checkPath(t, "ARCHITECTURE.md", path)
		}
	}
}

func TestWhatDocumentsNameExists(t *testing.T) {
	names := declared(t)
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, m := range quoted.FindAllStringSubmatch(readText(t, "../"+document), -1) {
			switch text := m[1]; {
			case strings.Contains(text, "NAME"), strings.HasPrefix(text, "testing/"):
			case isPath.MatchString(text):
				checkPath(t, document, strings.TrimSuffix(text, "/*"))
			case isName.MatchString(text) && !isFile.MatchString(text) && !names[text]:
				t.Errorf("%s names %s, which does not exist", document, text)
			}
		}
	}
}

var (
	isPath = regexp.MustCompile(`^(\.?[a-z]\w*/)+[\w.*-]+$`)
	isFile = regexp.MustCompile(`\.(go|md|hcl|wit|h|rs|ts|wasm)$`)
	isName = regexp.MustCompile(`^(\w+\.\w+|[a-z]+[A-Z]\w*|Test\w+)$`)
)

func checkPath(t *testing.T, document, path string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("..", path)); err != nil {
		t.Errorf("%s names %s, which does not exist", document, path)
	}
}

// declared returns what the Go files declare: "name", "package.Name", "Type.Method" and
// "Type.field".
func declared(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for path := range textFiles(t) {
		if filepath.Ext(path) != ".go" || strings.Contains(path, "/oracle/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			continue // a test's own input
		}
		for _, d := range file.Decls {
			declare(names, file.Name.Name, d)
		}
	}
	return names
}

func declare(names map[string]bool, pkg string, d ast.Decl) {
	add := func(name string) { names[name], names[pkg+"."+name] = true, true }
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name.Name)
			return
		}
		if receiver := typeName(d.Recv.List[0].Type); receiver != "" {
			names[receiver+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add(name.Name)
				}
			case *ast.TypeSpec:
				add(spec.Name.Name)
				declareFields(names, spec)
			}
		}
	}
}

func declareFields(names map[string]bool, spec *ast.TypeSpec) {
	var fields *ast.FieldList
	switch of := spec.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			names[spec.Name.Name+"."+name.Name] = true
		}
	}
}

// typeName returns the name of a receiver's type, without a pointer and type parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return ""
}
