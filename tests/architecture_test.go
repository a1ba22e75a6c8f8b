package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// quoted is text in backquotes.
var quoted = regexp.MustCompile("`([^`\n]+)`")

func TestArchitectureHasASentenceForEachRoom(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .{10,} \\|$").FindAllStringSubmatch(readText(t, "../ARCHITECTURE.md"), -1) {
		listed[row[1]] = true
	}
	for path := range textFiles(t) {
		room, isBelow := topFolder(path)
		if filepath.Ext(path) == ".go" && isBelow && !listed[room] {
			listed[room] = true // one error is enough
			t.Errorf("ARCHITECTURE.md has no sentence for %s", room)
		}
	}
	for room := range listed {
		checkPath(t, "ARCHITECTURE.md", room)
	}
}

// topFolder returns the top-level folder of a file in the repository, and false for a file in none.
func topFolder(path string) (string, bool) {
	room, _, isBelow := strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), "../"), "/")
	return room, isBelow
}

func TestArchitectureHasTheFloorsThatAreHeld(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^([0-5])   (.+)$`).FindAllStringSubmatch(readText(t, "../ARCHITECTURE.md"), -1) {
		for path := range strings.FieldsSeq(line[2]) {
			shown[strings.Split(path, "/")[0]] = true
			if r, ok := ruleOf(path); (ok || !hasRuleBelow(path, line[1])) && strconv.Itoa(r.floor) != line[1] {
				t.Errorf("ARCHITECTURE.md has %s on floor %s, and rules of floors_test.go do not", path, line[1])
			}
		}
	}
	for _, r := range rules {
		if room := strings.Split(r.path, "/")[0]; !shown[room] {
			shown[room] = true
			t.Errorf("ARCHITECTURE.md has no floor for %s", room)
		}
	}
}

// hasRuleBelow reports whether a rule assigns packages at or below a path to a floor.
func hasRuleBelow(path, floor string) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return within(path, r.path) && strconv.Itoa(r.floor) == floor })
}

func TestEachPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "linux", "./...") {
		if len(p.GoFiles) > 0 && len(p.Doc) < 20 {
			t.Errorf("%s has no package comment that says what it is for", local(p.ImportPath))
		}
	}
}

// A lock says in a comment on its field, or right above it, what it guards.
func TestEachLockSaysWhatItGuards(t *testing.T) {
	t.Parallel()
	for path := range textFiles(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../tests/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			continue // a test's own input
		}
		for _, lock := range undescribedLocks(file) {
			t.Errorf("%s: the lock %s does not say what it guards", path, lock)
		}
	}
}

func undescribedLocks(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		fields, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range fields.Fields.List {
			if isLock(f.Type) && f.Doc == nil && f.Comment == nil {
				for _, name := range f.Names {
					names = append(names, name.Name)
				}
			}
		}
		return true
	})
	return names
}

func isLock(e ast.Expr) bool {
	of, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := of.X.(*ast.Ident)
	return ok && pkg.Name == "sync" && (of.Sel.Name == "Mutex" || of.Sel.Name == "RWMutex")
}

func TestALockWithoutACommentIsFound(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "", `package p
type a struct {
	mu sync.Mutex
	said sync.Mutex // guards b
	// readMu guards c.
	readMu sync.RWMutex
	n int
}`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if found := undescribedLocks(file); !slices.Equal(found, []string{"mu"}) {
		t.Errorf("found %q, want mu only", found)
	}
}

// Documents for maintainers must stay short: nobody reads long ones.
func TestDocumentsKeepTheirSize(t *testing.T) {
	t.Parallel()
	limits := []struct {
		pattern string
		size    int // bytes
	}{
		{"../README.md", 8 << 10},
		{"../CHANGELOG.md", 8 << 10},
		{"../ARCHITECTURE.md", 8 << 10},
		{"../CONTRIBUTING.md", 10 << 10},
		{"../GLOSSARY.md", 8 << 10},
		{"../fleet/DESIGN.md", 10 << 10}, // a protocol, with the tests of its invariants
		{"../*/DESIGN.md", 6 << 10},
		{"../*/*/DESIGN.md", 6 << 10},
		{"../docs/decisions/*.md", 4 << 10},
		{"../docs/images/*.png", 150 << 10},
	}
	checked := map[string]bool{}
	for _, l := range limits {
		paths, err := filepath.Glob(l.pattern)
		if err != nil || len(paths) == 0 {
			t.Errorf("no document is %s: %v", l.pattern, err)
		}
		for _, path := range paths {
			if size := len(readText(t, path)); size > l.size && !checked[path] {
				t.Errorf("%s has %d bytes, and may have %d", path, size, l.size)
			}
			checked[path] = true // the first limit counts
		}
	}
}

func TestTheReadmeHasFewWords(t *testing.T) {
	t.Parallel()
	const most = 1100
	if n := len(strings.Fields(readText(t, "../README.md"))); n > most {
		t.Errorf("README.md has %d words, and may have %d", n, most)
	}
}

func TestTheGlossaryHasALineForEachOfFewWords(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile(`(?m)^\| (.+?) \| (.+) \|$`).FindAllStringSubmatch(readText(t, "../GLOSSARY.md"), -1)
	words := len(rows) - 1 // without the table's header
	if words < 10 || words > 40 {
		t.Errorf("GLOSSARY.md has %d words, and may have 40", words)
	}
}

func TestWhatDocumentsNameExists(t *testing.T) {
	names := declared(t)
	documents := []string{"ARCHITECTURE.md", "CONTRIBUTING.md"}
	for path := range textFiles(t) {
		if filepath.Base(path) == "DESIGN.md" {
			documents = append(documents, filepath.ToSlash(strings.TrimPrefix(path, "../")))
		}
	}
	for _, document := range documents {
		for _, name := range isTest.FindAllString(readText(t, "../"+document), -1) {
			if !names[name] {
				t.Errorf("%s names the test %s, which does not exist", document, name)
			}
		}
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
	isName = regexp.MustCompile(`^(\w+\.\w+|[a-z]+[A-Z]\w*)$`)
	isTest = regexp.MustCompile(`\bTest[A-Z]\w+`) // quoted or not
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

// typeName returns the name of a receiver's type, without pointer and type parameters.
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
