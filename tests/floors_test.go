// Package tests holds what no single package can: who may import whom, and, in
// folders of their own, how the whole behaves.
package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sonde-probe/sonde"

// The go command's cache does not see a new import in another package: run
// these tests with -count=1.

// place is where packages stand. A package imports packages of lower floors
// only; on one floor, only those of its own house that stand a step lower.
type place struct {
	path  string // in this module; "x/..." is x and all below it
	floor int
	house string // empty: it has no neighbours that it may import
	step  int
}

// places is the plan of the house. The first entry that matches counts.
var places = []place{
	{path: "probe", floor: 0},
	{path: "wasmhost/abi/...", floor: 0},
	{path: "guest/...", floor: 0},
	{path: "engine/verdict", floor: 1},
	{path: "engine/internal/...", floor: 1},
	{path: "internal/command", floor: 1},
	{path: "internal/files", floor: 1},
	{path: "internal/nonblock", floor: 1, house: "network"},
	{path: "internal/nonblock/nonblocktest", floor: 1, house: "network", step: 1},
	{path: "internal/dial/...", floor: 1, house: "network", step: 1},
	{path: "engine", floor: 2},
	{path: "builtin/...", floor: 2},
	{path: "wasmhost/internal/...", floor: 2, house: "wasmhost"},
	{path: "wasmhost", floor: 2, house: "wasmhost", step: 2},
	{path: "wasmhost/tck/...", floor: 2, house: "wasmhost", step: 3},
	{path: "config/suggest", floor: 3, house: "config"},
	{path: "config/internal/...", floor: 3, house: "config", step: 1},
	{path: "config", floor: 3, house: "config", step: 2},
	{path: "config/format", floor: 3, house: "config", step: 3},
	{path: "adapter/restart", floor: 4, house: "restart"},
	{path: "adapter/restart/...", floor: 4, house: "restart", step: 1},
	{path: "adapter/...", floor: 4},
	{path: "cmd/...", floor: 5},
	{path: "tests/...", floor: 5},
	{path: "examples/...", floor: 5},
}

// strangers are packages that must not know each other, whatever their floors.
var strangers = []struct{ from, to string }{
	{"engine/...", "builtin/..."},
	{"builtin/...", "engine/..."},
	{"config/...", "builtin/..."},
	{"config/...", "wasmhost/..."},
	{"adapter/...", "config/..."},
}

// guests are the modules of others and the places that may import them.
var guests = []struct {
	module    string // with all below it
	at        []string
	testsOnly bool
}{
	{module: "github.com/tetratelabs/wazero", at: []string{"wasmhost/..."}},
	{module: "github.com/hashicorp/hcl/v2", at: []string{"config/..."}},
	{module: "github.com/zclconf/go-cty", at: []string{"config/..."}},
	{module: "github.com/zclconf/go-cty-yaml", at: []string{"config/..."}},
	{module: "github.com/apparentlymart/go-cidr", at: []string{"config/..."}},
	{module: "github.com/agext/levenshtein", at: []string{"config/..."}},
	{module: "github.com/prometheus/client_golang", at: []string{"adapter/prom/..."}},
	{module: "k8s.io", at: []string{"adapter/kube/..."}},
	{module: "sigs.k8s.io/yaml", at: []string{"adapter/kube/..."}},
	{module: "github.com/spf13/cobra", at: []string{"cmd/..."}},
	{module: "golang.org/x/term", at: []string{"cmd/..."}},
	{module: "golang.org/x/sys", at: []string{"internal/command", "adapter/restart/process", "cmd/..."}},
	{module: "golang.org/x/sync", at: []string{
		"engine", "builtin/...", "wasmhost/...", "config/...", "adapter/...", "cmd/...", "tests/...", "examples/..."}},
	{module: "github.com/rogpeppe/go-internal", at: []string{"cmd/...", "tests/..."}, testsOnly: true},
}

// pure are the packages that decide and remember, and do nothing else.
var pure = []string{"engine/verdict", "engine/internal/..."}

// impure are the parts of the standard library that pure packages do without,
// each with all below it.
var impure = []string{"context", "crypto/rand", "io", "log", "math/rand", "net", "os", "sync", "syscall"}

// clocks are the functions of package time that ask what time it is, or wait.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// pkg is what "go list -json" says about a package.
type pkg struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Standard     bool
}

func TestPackagesImportLowerFloorsOnly(t *testing.T) {
	for _, system := range systems {
		for _, p := range list(t, system, "./...") {
			for _, problem := range problems(p) {
				t.Errorf("on %s: %s", system, problem)
			}
		}
	}
}

func TestPurePackagesNeverAskWhatTimeItIs(t *testing.T) {
	for _, system := range systems {
		for _, p := range list(t, system, "./engine/...") {
			if !matchesAny(pure, local(p.ImportPath)) {
				continue
			}
			for _, file := range p.GoFiles {
				checkClocks(t, filepath.Join(p.Dir, file))
			}
		}
	}
}

func checkClocks(t *testing.T, file string) {
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found, err := clocksIn(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range found {
		t.Errorf("%s uses %s", file, use)
	}
}

func TestAnEmbedderLinksNoForeignCode(t *testing.T) {
	for _, system := range systems {
		for _, p := range list(t, system, "-deps", "./engine", "./builtin/...") {
			if !p.Standard && foreign(p.ImportPath) && !within("golang.org/x", p.ImportPath) {
				t.Errorf("on %s, engine and builtin link %s", system, p.ImportPath)
			}
		}
	}
}

// systems are those whose files are looked at, by GOOS.
var systems = []string{"linux", "darwin", "windows"}

// list returns what "go list" says about packages of this module on a system. A
// package is listed even where it does not build, since only its imports count.
func list(t *testing.T, system string, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json"}, args...)...)
	cmd.Dir = ".." // the module's root
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatalf("go list %v found no package", args)
	}
	return all
}

// problems says what is wrong with a package's imports.
func problems(p pkg) []string {
	path := local(p.ImportPath)
	from, ok := placeOf(path)
	if !ok {
		return []string{path + " is on no floor"}
	}
	var found []string
	for _, to := range p.Imports {
		switch {
		case ours(to):
			found = append(found, upward(path, from, local(to))...)
		case foreign(to):
			found = append(found, misplaced(path, to, false)...)
		case matchesAny(pure, path) && matchesBelow(impure, to):
			found = append(found, path+" is pure and imports "+to)
		}
	}
	for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
		if foreign(to) { // tests may look at any floor of ours
			found = append(found, misplaced(path, to, true)...)
		}
	}
	return found
}

// upward says what is wrong with an import within this module.
func upward(path string, from place, to string) []string {
	for _, s := range strangers {
		if matches(s.from, path) && matches(s.to, to) {
			return []string{path + " must not know " + to}
		}
	}
	if at, ok := placeOf(to); ok && !at.below(from) {
		return []string{fmt.Sprintf("%s (floor %d) imports %s (floor %d), which is not lower", path, from.floor, to, at.floor)}
	}
	return nil
}

func (p place) below(q place) bool {
	if p.floor != q.floor {
		return p.floor < q.floor
	}
	return p.house != "" && p.house == q.house && p.step < q.step
}

// misplaced says what is wrong with an import of another's module.
func misplaced(path, to string, test bool) []string {
	for _, g := range guests {
		if !within(g.module, to) {
			continue
		}
		if matchesAny(g.at, path) && (test || !g.testsOnly) {
			return nil
		}
		return []string{fmt.Sprintf("%s imports %s, which belongs to %s", path, to, strings.Join(g.at, ", "))}
	}
	return []string{path + " imports " + to + ", which has no place"}
}

// clocksIn returns each use of a clock in a Go file.
func clocksIn(source []byte) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	name := timeName(file)
	if name == "." {
		return []string{"a dot import of time"}, nil
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			x, ok := s.X.(*ast.Ident)
			if ok && x.Name == name && slices.Contains(clocks, s.Sel.Name) {
				found = append(found, "time."+s.Sel.Name)
			}
		}
		return true
	})
	return found, nil
}

// timeName returns what a file calls package time, or "" when it does not
// import it.
func timeName(file *ast.File) string {
	for _, s := range file.Imports {
		if path, _ := strconv.Unquote(s.Path.Value); path != "time" {
			continue
		}
		if s.Name != nil {
			return s.Name.Name
		}
		return "time"
	}
	return ""
}

func placeOf(path string) (place, bool) {
	i := slices.IndexFunc(places, func(p place) bool { return matches(p.path, path) })
	if i < 0 {
		return place{}, false
	}
	return places[i], true
}

func matches(pattern, path string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(root, path)
	}
	return pattern == path
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

func matchesBelow(roots []string, path string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return within(r, path) })
}

func within(root, path string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func ours(path string) bool    { return within(module, path) }
func local(path string) string { return strings.TrimPrefix(path, module+"/") }

// foreign reports whether a path is neither ours nor of the standard library,
// whose first elements have no dot.
func foreign(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && !ours(path)
}
