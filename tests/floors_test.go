// Package tests checks rules that concern all packages, such as which package may import which. Tests of the whole program are in
// its folders.
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

// Run these tests with -count=1: the go command's test cache does not notice that another package has a new import.

// rule assigns packages to a floor. A package may import packages of lower floors,
// and packages of its own floor that have the same group and a lower order.
type rule struct {
	path  string // relative to the module's root; "x/..." is x and everything below it
	floor int
	group string // empty: no import within the floor
	order int    // within the group
}

// rules covers all packages of the module. The first match counts.
var rules = []rule{
	{path: "probe", floor: 0},
	{path: "internal/anchors", floor: 0},
	{path: "internal/boot", floor: 0},
	{path: "internal/bytesize", floor: 0},
	{path: "internal/cgroup", floor: 0},
	{path: "internal/clock", floor: 0},
	{path: "internal/cron", floor: 0},
	{path: "internal/cycle", floor: 0},
	{path: "internal/files", floor: 0, group: "private", order: 1},
	{path: "internal/journal", floor: 0, group: "private", order: 1},
	{path: "internal/logfile", floor: 0},
	{path: "internal/private", floor: 0, group: "private"},
	{path: "internal/dbus", floor: 0},
	{path: "internal/reexec", floor: 0},
	{path: "internal/shortage", floor: 0},
	{path: "internal/sparselog", floor: 0},
	{path: "internal/wake", floor: 0},
	{path: "wasmhost/abi/...", floor: 0},
	{path: "guest/...", floor: 0},
	{path: "engine/verdict", floor: 1},
	{path: "engine/internal/timeline", floor: 1, group: "schedule"},
	{path: "engine/internal/...", floor: 1, group: "schedule", order: 1},
	{path: "internal/httpauth", floor: 1},
	{path: "internal/redact", floor: 1},
	{path: "internal/quota", floor: 1, group: "command"},
	{path: "internal/command", floor: 1, group: "command", order: 1},
	{path: "internal/docker", floor: 1, group: "command", order: 2},
	{path: "internal/limits", floor: 1, group: "network"},
	{path: "internal/nonblock", floor: 1, group: "network"},
	{path: "internal/dial/...", floor: 1, group: "network", order: 1},
	{path: "internal/listener", floor: 1, group: "network", order: 2},
	{path: "wasmhost/internal/module", floor: 1},
	{path: "fleet/doubt", floor: 1},
	{path: "fleet/shard", floor: 1, group: "quorum"},
	{path: "fleet/quorum", floor: 1, group: "quorum", order: 1},
	{path: "engine", floor: 2},
	{path: "discover", floor: 2},
	{path: "builtin/...", floor: 2},
	{path: "wasmhost/internal/sandbox", floor: 2, group: "wasmhost", order: 1},
	{path: "wasmhost/internal/...", floor: 2, group: "wasmhost"},
	{path: "wasmhost/stats", floor: 2, group: "wasmhost"},
	{path: "wasmhost", floor: 2, group: "wasmhost", order: 2},
	{path: "wasmhost/tck/...", floor: 2, group: "wasmhost", order: 3},
	{path: "group", floor: 3},
	{path: "fleet/coord", floor: 3, group: "coord"},
	{path: "fleet/revision", floor: 3, group: "coord", order: 1},
	{path: "config/suggest", floor: 3, group: "config"},
	{path: "config/internal/...", floor: 3, group: "config", order: 1},
	{path: "config", floor: 3, group: "config", order: 2},
	{path: "config/document", floor: 3, group: "config", order: 3},
	{path: "agent/store", floor: 4},
	{path: "agent", floor: 4},
	{path: "restart", floor: 4, group: "restart"},
	{path: "restart/process/internal/guard", floor: 4, group: "restart"},
	{path: "restart/...", floor: 4, group: "restart", order: 1},
	{path: "fleet", floor: 4, group: "restart", order: 2},
	{path: "gateway/follow", floor: 4, group: "follow", order: 1},
	{path: "gateway", floor: 4, group: "gateway"},
	{path: "gateway/...", floor: 4, group: "gateway", order: 1},
	{path: "notify", floor: 4, group: "notify"},
	{path: "notify/...", floor: 4, group: "notify", order: 1},
	{path: "kube/internal/validate", floor: 4, group: "kube"},
	{path: "kube", floor: 4, group: "kube", order: 1},
	{path: "kube/upstream", floor: 4},
	{path: "api", floor: 4, group: "follow"},
	{path: "api/metrics", floor: 4, group: "follow", order: 1},
	{path: "api/...", floor: 4},
	{path: "pause", floor: 4},
	{path: "cmd/engine/internal/accepted", floor: 5, group: "cmd"},
	{path: "cmd/engine/internal/control", floor: 5, group: "cmd"},
	{path: "cmd/engine/internal/cli", floor: 5, group: "cmd"},
	{path: "cmd/engine/internal/simulate", floor: 5, group: "cmd", order: 2},
	{path: "cmd/engine/internal/embedded", floor: 5, group: "cmd"},
	{path: "cmd/engine/internal/handlers", floor: 5, group: "cmd", order: 1},
	{path: "cmd/engine/internal/status", floor: 5, group: "cmd", order: 1},
	{path: "cmd/engine/internal/manifests", floor: 5, group: "cmd", order: 2},
	{path: "cmd/engine/internal/plugindev", floor: 5, group: "cmd", order: 2},
	{path: "cmd/engine/internal/reference", floor: 5, group: "cmd", order: 2},
	{path: "cmd/engine/internal/blackboximport", floor: 5, group: "cmd"},
	{path: "cmd/engine/internal/peerimport", floor: 5, group: "cmd"},
	{path: "cmd/engine/internal/compose", floor: 5, group: "cmd"},
	{path: "cmd/engine/internal/daemon", floor: 5, group: "cmd", order: 4},
	{path: "cmd/engine/internal/cluster", floor: 5, group: "cmd", order: 5},
	{path: "cmd/engine/internal/root", floor: 5, group: "cmd", order: 6},
	{path: "cmd/engine", floor: 5, group: "cmd", order: 7},
	{path: "tests/tier", floor: 5, group: "tests"},
	{path: "tests/program", floor: 5, group: "tests"},
	{path: "tests/testsync", floor: 5, group: "tests"},
	{path: "tests/plant", floor: 5, group: "tests"},
	{path: "tests/wattest", floor: 5, group: "tests"},
	{path: "tests/notifytest", floor: 5, group: "tests"},
	{path: "tests/coordtest", floor: 5, group: "tests"},
	{path: "tests/followtest", floor: 5, group: "tests"},
	{path: "tests/faulttest", floor: 5, group: "tests", order: 1},
	{path: "tests/...", floor: 5, group: "tests", order: 2},
	{path: "examples/...", floor: 5},
	{path: "dist/...", floor: 5},
}

// forbidden lists imports that the floors would allow.
var forbidden = []struct{ from, to string }{
	{"engine/...", "builtin/..."},
	{"builtin/...", "engine/..."},
	{"config/...", "builtin/..."},
	{"group", "builtin/..."},
	{"group", "wasmhost/..."},
	{"config/...", "wasmhost/..."},
	{"agent/store", "config/..."},
	{"api/...", "config/..."},
	{"fleet/...", "config/..."},
	{"gateway/...", "config/..."},
	{"kube/...", "config/..."},
	{"notify/...", "config/..."},
	{"pause", "config/..."},
	{"restart/...", "config/..."},
	{"examples/gateway", "agent/..."}, // it shows what an embedder needs
	{"examples/gateway", "api/..."},
	{"examples/gateway", "gateway/..."},
	{"examples/gateway", "notify/..."},
	{"examples/gateway", "restart/..."},
	{"examples/gateway", "config/..."},
	{"examples/gateway", "internal/..."},
	{"examples/gateway", "wasmhost/..."},
}

// thirdParty lists the modules that may be imported at all, and by which packages.
var thirdParty = []struct {
	module    string   // or a path prefix of several modules
	in        []string // packages, as in rule.path
	testsOnly bool
}{
	{module: "github.com/tetratelabs/wazero", in: []string{"wasmhost/..."}},
	{module: "github.com/hashicorp/hcl/v2", in: []string{"config/..."}},
	{module: "github.com/zclconf/go-cty", in: []string{"config/..."}},
	{module: "github.com/zclconf/go-cty-yaml", in: []string{"config/..."}},
	{module: "github.com/apparentlymart/go-cidr", in: []string{"config/..."}},
	{module: "github.com/agext/levenshtein", in: []string{"config/..."}},
	{module: "github.com/prometheus/client_golang", in: []string{"api/blackbox", "api/metrics/...", "tests"}},
	{module: "github.com/prometheus/common", in: []string{"api/blackbox"}},
	{module: "golang.org/x/net", in: []string{"discover", "internal/dial"}},
	{module: "k8s.io", in: []string{"kube/..."}},
	{module: "sigs.k8s.io/yaml", in: []string{"kube/...", "cmd/engine/internal/blackboximport", "cmd/engine/internal/peerimport", "discover", "tests"}},
	{module: "go.yaml.in/yaml/v2", in: []string{"internal/anchors", "cmd/engine/internal/compose"}},
	{module: "github.com/spf13/cobra", in: []string{"cmd/..."}},
	{module: "github.com/spf13/pflag", in: []string{"cmd/..."}},
	{module: "golang.org/x/term", in: []string{"cmd/..."}},
	{module: "golang.org/x/sys", in: []string{"internal/command", "internal/docker", "internal/files", "internal/nonblock", "internal/quota", "restart/process/...", "agent/store", "internal/clock", "cmd/...", "tests/etcdtest", "tests/faulttest", "wasmhost/internal/image"}},
	{module: "golang.org/x/sync", in: []string{
		"engine", "agent", "builtin/...", "wasmhost/...", "config/...", "fleet/...", "gateway/...", "kube/...", "notify/...", "restart/...", "api/...", "cmd/...", "tests/...", "examples/..."}},
	{module: "github.com/rogpeppe/go-internal", in: []string{"cmd/...", "tests/..."}, testsOnly: true},
}

// pure lists the packages without clock, I/O, and concurrency.
var pure = []string{"fleet/doubt", "fleet/quorum", "fleet/shard", "engine/verdict", "engine/internal/..."}

// locking lists the pure packages that may import sync for their own lock.
var locking = []string{"engine/internal/health"}

// impure lists the parts of the standard library that pure packages must not
// import, each with everything below it.
var impure = []string{"context", "crypto/rand", "io", "log", "math/rand", "net", "os", "sync", "syscall"}

// clocks lists the functions of package time that read the clock or wait.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// pkg holds the fields of "go list -json" that the tests need.
type pkg struct {
	ImportPath   string
	Doc          string // the first sentence of the package comment
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Standard     bool
}

func TestPackagesImportLowerFloorsOnly(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		for _, p := range list(t, system, "./...") {
			for _, problem := range problems(p) {
				t.Errorf("on %s: %s", system, problem)
			}
		}
	}
}

func TestPurePackagesNeverReadTheClock(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		for _, p := range list(t, system, "./fleet/...", "./engine/...") {
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

func TestAnEmbedderLinksNoThirdPartyCode(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		for _, p := range list(t, system, "-deps", "./engine", "./builtin/...", "./group", "./examples/gateway") {
			if !p.Standard && foreign(p.ImportPath) && !within("golang.org/x", p.ImportPath) {
				t.Errorf("on %s, engine, builtin, group and examples/gateway link %s", system, p.ImportPath)
			}
		}
	}
}

// The memory of a guard depends on the packages that are initialized before it starts.
func TestAGuardLinksLittle(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "linux", "-deps", "./restart/process/internal/guard") {
		if p.ImportPath == "net" || p.ImportPath == "log/slog" || !p.Standard && foreign(p.ImportPath) && !within("golang.org/x/sys", p.ImportPath) {
			t.Errorf("a guard links %s", p.ImportPath)
		}
	}
}

// systems are the values of GOOS whose files are checked.
var systems = []string{"linux", "darwin", "windows"}

// list returns the packages of this module that match args, with the files that system builds. It includes packages that do not
// build there (go list -e).
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

// problems returns the imports of a package that break a rule, with the rules.
func problems(p pkg) []string {
	path := local(p.ImportPath)
	from, ok := ruleOf(path)
	if !ok {
		return []string{path + " has no floor: add it to rules"}
	}
	var found []string
	for _, to := range p.Imports {
		switch {
		case ours(to):
			found = append(found, notLower(path, from, local(to))...)
		case foreign(to):
			found = append(found, notAllowed(path, to, false)...)
		case to == "sync" && matchesAny(locking, path):
		case matchesAny(pure, path) && matchesBelow(impure, to):
			found = append(found, path+" is pure and imports "+to)
		}
	}
	for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
		if foreign(to) { // tests may import any package of this module
			found = append(found, notAllowed(path, to, true)...)
		}
	}
	return found
}

// notLower returns the problems with an import within this module.
func notLower(path string, from rule, to string) []string {
	for _, s := range forbidden {
		if matches(s.from, path) && matches(s.to, to) {
			return []string{path + " must not import " + to}
		}
	}
	if at, ok := ruleOf(to); ok && !at.below(from) {
		return []string{fmt.Sprintf("%s (floor %d) imports %s (floor %d), which is not lower", path, from.floor, to, at.floor)}
	}
	return nil
}

// below reports whether packages of q may import those of r.
func (r rule) below(q rule) bool {
	if r.floor != q.floor {
		return r.floor < q.floor
	}
	return r.group != "" && r.group == q.group && r.order < q.order
}

// notAllowed returns the problems with an import of a third-party package.
func notAllowed(path, to string, test bool) []string {
	for _, g := range thirdParty {
		if !within(g.module, to) {
			continue
		}
		if matchesAny(g.in, path) && (test || !g.testsOnly) {
			return nil
		}
		return []string{fmt.Sprintf("%s imports %s, which only %s may", path, to, strings.Join(g.in, ", "))}
	}
	return []string{path + " imports " + to + ", which is not in thirdParty"}
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

// timeName returns the name under which a file imports package time, or "".
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

func ruleOf(path string) (rule, bool) {
	i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.path, path) })
	if i < 0 {
		return rule{}, false
	}
	return rules[i], true
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

// foreign reports whether a path belongs to a third-party module. The first path elements of the standard library have no dot.
func foreign(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && !ours(path)
}
