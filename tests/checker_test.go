package tests

import (
	"slices"
	"strings"
	"testing"
)

// at returns a package of this module. "~" in imports stands for the module's path.
func at(path string, imports ...string) pkg {
	return pkg{ImportPath: module + "/" + path, Imports: own(imports)}
}

func own(imports []string) []string {
	var full []string
	for _, i := range imports {
		if rest, ok := strings.CutPrefix(i, "~"); ok {
			i = module + "/" + rest
		}
		full = append(full, i)
	}
	return full
}

// tested returns a package of this module whose tests have these imports.
func tested(path string, imports ...string) pkg {
	p := at(path)
	p.TestImports, p.XTestImports = own(imports[:1]), own(imports[1:])
	return p
}

func TestImportCheckFindsForbiddenImports(t *testing.T) {
	cases := []struct {
		name string
		pkg  pkg
		want string // part of the only problem
	}{
		{"no floor", at("utils"), "utils has no floor"},
		{"no floor for the root", pkg{ImportPath: module}, "has no floor"},
		{"upward", at("probe", "~engine/verdict"), "not lower"},
		{"upward to a far floor", at("engine", "~api/metrics"), "not lower"},
		{"a sibling", at("builtin/http", "~builtin/tcp"), "not lower"},
		{"siblings without a group", at("api/blackbox", "~api"), "not lower"},
		{"another group on the same floor", at("restart/process", "~api/metrics"), "not lower"},
		{"a higher order of the group", at("restart", "~restart/process"), "not lower"},
		{"a neighbour of the same order", at("config/internal/tree", "~config/internal/function"), "not lower"},
		{"engine imports builtin", at("engine", "~builtin/exec"), "must not import"},
		{"builtin imports engine", at("builtin/tcp", "~engine/verdict"), "must not import"},
		{"a room of floor 4 imports config", at("kube", "~config"), "must not import"},
		{"config imports a handler", at("config", "~builtin/http"), "must not import"},
		{"a module in another package", at("engine", "github.com/tetratelabs/wazero/api"), "which only wasmhost"},
		{"an unlisted module", at("cmd/engine", "example.com/thing"), "not in thirdParty"},
		{"a module with a common prefix", at("config", "github.com/zclconf/go-cty-debug"), "not in thirdParty"},
		{"x/sync on floor 1", at("engine/verdict", "golang.org/x/sync/errgroup"), "which only engine"},
		{"a test's module in code", at("cmd/engine", "github.com/rogpeppe/go-internal/testscript"), "which only cmd"},
		{"a test with a module of another package", tested("probe", "testing", "github.com/spf13/cobra"), "which only cmd"},
		{"a lock in a pure package", at("engine/internal/slots", "sync/atomic"), "is pure and imports sync/atomic"},
		{"random numbers in a pure package", at("engine/verdict", "math/rand/v2"), "is pure and imports math/rand/v2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := problems(c.pkg)
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("got %q, want one problem with %q", got, c.want)
			}
		})
	}
}

func TestImportCheckAllowsPermittedImports(t *testing.T) {
	cases := map[string]pkg{
		"the standard library":         at("probe", "context", "fmt"),
		"a lower floor":                at("engine", "~engine/verdict", "~engine/internal/timeline", "~probe", "sync"),
		"a floor far below":            at("cmd/engine", "~probe", "github.com/spf13/cobra", "golang.org/x/sync/errgroup"),
		"a lower order of the group":   at("restart/process", "~restart", "golang.org/x/sys/unix"),
		"the group of config":          at("config/document", "~config", "~config/internal/tree", "github.com/hashicorp/hcl/v2/hclwrite"),
		"arithmetic in a pure package": at("engine/verdict", "math", "math/bits", "time", "fmt"),
		"a test that imports upward":   tested("probe", "~engine", "~api/metrics"),
		"a test's module in a test":    tested("cmd/engine", "testing", "github.com/rogpeppe/go-internal/testscript"),
		"a test that needs a lock":     tested("engine/verdict", "sync", "os"),
		"a name with a common prefix":  at("engine/internal/osmosis", "iter"),
	}
	for name, p := range cases {
		t.Run(name, func(t *testing.T) {
			if got := problems(p); len(got) != 0 {
				t.Errorf("got %q, want no problem", got)
			}
		})
	}
}

func TestClockCheckFindsClocks(t *testing.T) {
	cases := []struct {
		name, source string
		want         []string
	}{
		{"a call", `import "time"; var t = time.Now()`, []string{"time.Now"}},
		{"a value", `import "time"; var now = time.Since`, []string{"time.Since"}},
		{"another name", `import clock "time"; var t = clock.Until(x)`, []string{"time.Until"}},
		{"a dot import", `import . "time"; var t = Now()`, []string{"a dot import of time"}},
		{"a timer", `import "time"; var t = time.NewTimer(1)`, []string{"time.NewTimer"}},
		{"arithmetic", `import "time"; var t = time.Unix(0, 0).Add(time.Second)`, nil},
		{"another's Now", `import "example.com/time2"; var t = time2.Now()`, nil},
		{"no import at all", `var t = time.Now()`, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := clocksIn([]byte("package p; " + c.source))
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
