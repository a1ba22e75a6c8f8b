package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

var reloads = tier.Flag("reloads", 20, 200, 10_000, "`number` of reloads whose memory is measured")

// maxLeak is the maximum growth of the heap, in bytes, independent of the number of reloads.
const maxLeak = 1 << 20

// Each reload loads a plugin with other limits, validates a probe's settings with it, makes an attempt with the new probe, and
// unloads the previous plugin.
func TestReloadsDoNotLeak(t *testing.T) {
	tier.Slow(t)
	dir := t.TempDir()
	module := wattest.Assemble(`(memory 1) (func $run (result i32) i32.const 1) (func $configure (result i32) i32.const 0)
		(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run)) (export "sonde_configure" (func $configure))`)
	module, err := abi.WriteManifest(module, abi.Manifest{Name: "steady", ABI: 1})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("steady.wasm", module)
	d := &daemon{parts: parts{beats: beatprobe.NewRegistry()}, flags: &flags{}, paths: []string{dir}, log: slog.New(slog.DiscardHandler), level: &slog.LevelVar{}, queue: cli.NewLogQueue(io.Discard)}
	defer d.queue.Close(time.Minute)
	load := func(n int) (r loadResult) {
		write("sonde.hcl", fmt.Appendf(nil, `
			engine {
				listen       = "127.0.0.1:0"
				plugin_cache = ""
			}
			plugin "steady" {
				source         = %q
				allow_unpinned = true
				limits { memory = "%dMiB" }
			}
			target "web" {
				address = "127.0.0.1"
				probe "readiness" {
					steady {}
				}
			}`, filepath.Join(dir, "steady.wasm"), 1+n%2))
		r.plugins = handlers.NewPlugins(t.Context(), handlers.WaitForAll, func(config.Engine) *slog.Logger { return d.log })
		r.plugins.Previous = d.plugins.Load()
		r.config, r.diags = d.flags.load(d.paths, nil, nil, r.plugins)
		if err := r.diags.Err(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	reload := func(n int) {
		r := load(n)
		d.reload(&job{}, r)
		for _, p := range r.config.Set {
			p.Rule.Timeout = testsync.Timeout
			if got := engine.Once(t.Context(), p); got.Outcome != probe.Success {
				t.Fatalf("after reload %d: %+v", n, got)
			}
		}
	}
	first := load(0)
	d.plugins.Store(first.plugins)
	if err := d.prepare(first.config); err != nil {
		t.Fatal(err)
	}
	defer func() { d.plugins.Load().Close() }()
	goroutines := runtime.NumGoroutine()
	measure := func() (heap int64, mappings int) {
		testsync.Until(t, "the end of what unloads plugins", func() bool { return runtime.NumGoroutine() <= goroutines })
		for range 3 { // finalizers free more
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		maps, _ := os.ReadFile("/proc/self/maps") // compiled code is not on the heap; the file is missing on other systems
		return int64(m.HeapAlloc), bytes.Count(maps, []byte("\n"))
	}
	warmUp := min(100, reloads())
	for n := range warmUp {
		reload(n + 1)
	}
	heap, mappings := measure()
	for n := range reloads() {
		reload(n + 1)
	}
	heapAfter, mappingsAfter := measure()
	t.Logf("%d reloads: the heap grew by %d KiB to %d KiB, and there are %d mappings, after %d", reloads(), (heapAfter-heap)>>10, heapAfter>>10, mappingsAfter, mappings)
	if heapAfter-heap > maxLeak || mappingsAfter-mappings > warmUp {
		t.Errorf("%d reloads have left %d bytes and %d mappings", reloads(), heapAfter-heap, mappingsAfter-mappings)
	}
}
