// Package linetest tests the line plugins, which are the same probe in several languages, against
// real servers. Its tests run in .ci/run, not in make test, since they need compilers.
package linetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// plenty is longer than any operation that finishes at all.
const plenty = time.Minute

// missingTools is the exit code of build.sh if a tool is missing.
const missingTools = 77

// builds runs build.sh of each folder, once for all tests, and returns the directory of the
// plugins.
var builds = map[string]func() (string, error){
	"line-c":    sync.OnceValues(func() (string, error) { return build("line-c") }),
	"line-rust": sync.OnceValues(func() (string, error) { return build("line-rust") }),
	"line-as":   sync.OnceValues(func() (string, error) { return build("line-as") }),
}

// errMissing wraps the output of build.sh if a tool is missing.
var errMissing = errors.New("a tool is missing")

// temp is the directory of all builds. TestMain creates and removes it.
var temp string

func TestMain(m *testing.M) {
	var err error
	if temp, err = os.MkdirTemp("", "linetest"); err != nil {
		panic(err)
	}
	if err = trustOwnCertificates(temp); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(temp)
	os.Exit(code)
}

// build runs a folder's build.sh and returns the directory of the plugins.
func build(folder string) (string, error) {
	dir := filepath.Join(temp, folder)
	out, err := exec.Command("../../"+folder+"/build.sh", dir).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == missingTools:
		return "", fmt.Errorf("%w: %s", errMissing, out)
	case err != nil:
		return "", fmt.Errorf("build.sh: %w\n%s", err, out)
	}
	return dir, nil
}

// plugin returns the content of a plugin that a folder's build.sh builds.
func plugin(t *testing.T, folder, name string) []byte {
	t.Helper()
	tier.CI(t)
	dir, err := builds[folder]()
	if errors.Is(err, errMissing) {
		tier.Lacks(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		tier.Lacks(t, "build.sh has not built "+name+": its tools are missing")
	}
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func TestCWithoutALibc(t *testing.T)  { testPlugin(t, plugin(t, "line-c", "line.wasm")) }
func TestCWithALibc(t *testing.T)     { testPlugin(t, plugin(t, "line-c", "line-posix.wasm")) }
func TestRustWithoutStd(t *testing.T) { testPlugin(t, plugin(t, "line-rust", "line.wasm")) }
func TestRustWithStd(t *testing.T)    { testPlugin(t, plugin(t, "line-rust", "line-std.wasm")) }
func TestAssemblyScript(t *testing.T) { testPlugin(t, plugin(t, "line-as", "line.wasm")) }

// testPlugin runs all tests on one plugin.
func testPlugin(t *testing.T, module []byte) {
	p := lab.LoadAs(t, wasmhost.Config{Module: module})
	t.Run("Answers", func(t *testing.T) { testAnswers(t, p) })
	t.Run("Errors", func(t *testing.T) { testErrors(t, p) })
	t.Run("TLS", func(t *testing.T) { testTLS(t, p) })
	t.Run("Settings", func(t *testing.T) { testSettings(t, p) })
	t.Run("Texts", func(t *testing.T) { testTexts(t, p) })
	t.Run("Kept", func(t *testing.T) { testKept(t, p) })
	t.Run("Rules", func(t *testing.T) { testRules(t, module) })
	t.Run("Restarts", func(t *testing.T) { testRestarts(t, p) })
	t.Run("Change", func(t *testing.T) { testChange(t, p) })
	t.Run("Grants", func(t *testing.T) { testGrants(t, module) })
	t.Run("Instances", func(t *testing.T) { testInstances(t, module) })
}

// settings are the settings of a handler block.
type settings = map[string]any

func handler(t *testing.T, p *wasmhost.Plugin, s settings) *wasmhost.Handler {
	t.Helper()
	h, err := p.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// attempt makes one attempt.
func attempt(t *testing.T, h *wasmhost.Handler, target probe.Target, timeout time.Duration) probe.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return h.Probe(ctx, target)
}

// want is an expected result; the detail must contain the text.
type want struct {
	outcome probe.Outcome
	reason  probe.Reason
	detail  string
}
