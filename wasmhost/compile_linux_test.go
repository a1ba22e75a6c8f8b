package wasmhost_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/internal/codecache"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// manyValues returns a module that takes 100 MiB to compile: each of its locals may get a new value
// at the start of each loop.
func manyValues() []byte {
	const locals, loops = 1700, 200
	var names, reads strings.Builder
	for n := range locals {
		fmt.Fprintf(&names, "(local $%d i64) ", n)
		fmt.Fprintf(&reads, "local.get %d drop ", n)
	}
	return wat(`(func $run (result i32) %s %s %s %s i32.const 1)`, names.String(),
		strings.Repeat("loop ", loops), reads.String(), strings.Repeat("end ", loops))
}

func TestACachedModuleNeedsNoChild(t *testing.T) {
	c := wasmhost.Config{Module: wat(idle), CacheDir: filepath.Join(t.TempDir(), "cache")}
	load(t, c)
	before := childFaults(t)
	if p := load(t, c); !p.Stats().CacheHit || childFaults(t) != before {
		t.Errorf("a child ran: page faults of children were %d, and are %d", before, childFaults(t))
	}
}

// childFaults returns the number of page faults of this process's children that have exited.
func childFaults(t *testing.T) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	return usage.Minflt
}

// withoutCompiler makes this program unable to start itself until the returned function is called.
func withoutCompiler(t *testing.T) (permit func()) {
	before := reexec.Executable
	reexec.Executable = filepath.Join(t.TempDir(), "sonde")
	undo := wasmhost.SetRetryPause(time.Millisecond)
	t.Cleanup(func() {
		reexec.Executable = before
		undo()
	})
	return func() {
		self, err := os.Executable()
		if err == nil {
			err = os.Symlink(self, reexec.Executable)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantShortage(t *testing.T, p *wasmhost.Plugin, want string) {
	t.Helper()
	err := p.Wait(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "plugin test: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestAPluginIsCompiledAfterAShortage(t *testing.T) {
	permit := withoutCompiler(t)
	p := loadLater(t, wasmhost.Config{Module: wat(idle)})
	wantShortage(t, p, "compiler cannot run now: ")
	h := handler(t, p, nil)
	wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Unknown, "plugin.compiling")
	permit()
	testsync.Receive(t, "the handler of a compiled plugin", h.Ready())
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Success, "")
}

// entryOf returns the entry of a module in a cache.
func entryOf(t *testing.T, root string, wasm []byte) *codecache.Entry {
	t.Helper()
	m, err := module.Parse(wasm)
	if err != nil {
		t.Fatal(err)
	}
	rewritten, err := m.Rewrite()
	if err != nil {
		t.Fatal(err)
	}
	entry, err := codecache.Open(root, 1<<30, rewritten.Wasm)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// Each case would succeed without a child if this process compiled.
func TestNothingIsCompiledInThisProcess(t *testing.T) {
	t.Run("code for another processor", func(t *testing.T) {
		root := filepath.Join(t.TempDir(), "cache")
		if p := load(t, wasmhost.Config{Module: wat(idle), CacheDir: root}); p.Stats().CacheHit {
			t.Error("there was code")
		}
		entry := entryOf(t, root, wat(idle))
		defer entry.Close()
		cached := entry.Code()
		if cached == nil {
			t.Fatal("no code is kept")
		}
		defer cached.Close()
		code, err := io.ReadAll(cached)
		if err != nil {
			t.Fatal(err)
		}
		code[0]++ // wazero's key, which includes the features of the processor
		if err := entry.Store(bytes.NewReader(code)); err != nil {
			t.Fatal(err)
		}
		withoutCompiler(t)
		wantShortage(t, loadLater(t, wasmhost.Config{Module: wat(idle), CacheDir: root}), "compiler cannot run now: ")
	})
	t.Run("damaged code", func(t *testing.T) {
		root := filepath.Join(t.TempDir(), "cache")
		load(t, wasmhost.Config{Module: wat(idle), CacheDir: root})
		damage(t, root)
		withoutCompiler(t)
		wantShortage(t, loadLater(t, wasmhost.Config{Module: wat(idle), CacheDir: root}), "compiler cannot run now: ")
	})
	t.Run("by choice", func(t *testing.T) {
		withoutCompiler(t)
		for range 2 {
			p := load(t, wasmhost.Config{Module: wat(idle), Compile: wasmhost.Compile{InProcess: true}, CacheDir: filepath.Join(t.TempDir(), "cache")})
			wantResult(t, attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
		}
	})
}

// In a container, the directory for temporary files may be missing, or read-only; an emptyDir of
// Kubernetes may be written by all users, and has no sticky bit.
func TestAPluginIsCompiledWithoutAPlaceForTemporaryFiles(t *testing.T) {
	all := t.TempDir()
	if err := os.Chmod(all, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"emptyDir": all, "none": filepath.Join(t.TempDir(), "missing")} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", dir)
			p := load(t, wasmhost.Config{Module: wat(idle)})
			wantResult(t, attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
		})
	}
	for _, want := range []bool{false, true} {
		p := load(t, wasmhost.Config{Module: wat(idle), CacheDir: filepath.Join(all, "cache")})
		if got := p.Stats().CacheHit; got != want {
			t.Errorf("loaded from a cache in an emptyDir: %v, want %v", got, want)
		}
	}
}

// During a reload both configurations have the module loaded, and one must not break the cache for
// the other.
func TestPluginsShareTheirCompiledCode(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache")
	var plugins []*wasmhost.Plugin
	for range 4 {
		plugins = append(plugins, loadLater(t, wasmhost.Config{Module: wat(idle), CacheDir: root, CacheSize: 1}))
	}
	if err := plugins[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := loadLater(t, wasmhost.Config{Module: wat("%s", idle+"(func)"), CacheDir: root, CacheSize: 1}) // evicts other code
	for _, p := range append(plugins[1:], other) {
		if err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		wantResult(t, attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
	}
}

func TestClosingAPluginCancelsItsCompilation(t *testing.T) {
	p, err := wasmhost.Load(wasmhost.Config{Module: manyValues()})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "plugin was unloaded") {
		t.Errorf("got %v", err)
	}
}
