package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
)

// manyTargets returns a configuration with ten blocks of targets, each with a tcp probe. address is the address of one target.
func manyTargets(perBlock int, address string) string {
	var s strings.Builder
	s.WriteString("engine {\n  listen = \"\"\n}\n")
	for block := range 10 {
		fmt.Fprintf(&s, `
target "web-%d" {
  for_each = merge({ for p in setproduct(range(%d), range(100)) : "${p[0]}-${p[1]}" => "${p[1]}.${p[0]}.web-%d.example" }, { "7-7" = %q })
  address  = each.value

  probe "readiness" {
    tcp { port = 9 }
    period        = "100s"
    initial_delay = "24h"
  }
}
`, block, perBlock/100, block, address)
		address = "192.0.2.1"
	}
	return s.String()
}

// BenchmarkReload reloads a configuration in which the address of one target has changed. Its metrics are the CPU time of a
// reload, including garbage collection, and the retained memory.
func BenchmarkReload(b *testing.B) {
	for _, targets := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(targets), func(b *testing.B) { benchmarkReload(b, targets) })
	}
}

func benchmarkReload(b *testing.B, targets int) {
	path := filepath.Join(b.TempDir(), "sonde.hcl")
	d := &daemon{parts: parts{beats: beatprobe.NewRegistry()}, flags: &flags{}, paths: []string{path}, log: slog.New(slog.DiscardHandler), level: &slog.LevelVar{}, queue: cli.NewLogQueue(io.Discard)}
	defer d.queue.Close(time.Minute)
	load := func(address string) (r loadResult) {
		if err := os.WriteFile(path, []byte(manyTargets(targets/10, address)), 0o600); err != nil {
			b.Fatal(err)
		}
		r.plugins = handlers.NewPlugins(b.Context(), handlers.WaitForAll, func(config.Engine) *slog.Logger { return d.log })
		r.plugins.Previous = d.plugins.Load()
		r.config, r.diags = d.flags.load(d.paths, nil, nil, r.plugins)
		if err := r.diags.Err(); err != nil {
			b.Fatal(err)
		}
		return r
	}
	began := processorTime(b)
	first := load("192.0.2.1")
	d.plugins.Store(first.plugins)
	if err := d.prepare(first.config); err != nil {
		b.Fatal(err)
	}
	defer func() { d.plugins.Load().Close() }()
	first = loadResult{}
	defer runParts(b, d)()
	heap, start, n := heapInUse(), processorTime(b)-began, 0
	began = processorTime(b)
	for b.Loop() {
		n++
		done := d.reload(&job{}, load(fmt.Sprintf("192.0.2.%d", 1+n%2)))
		if done.Error != nil || done.Probes.Replaced != 1 || done.Probes.Kept != targets-1 {
			b.Fatalf("%+v", done)
		}
	}
	b.ReportMetric(start.Seconds(), "start-cpu-s")
	b.ReportMetric((processorTime(b)-began).Seconds()/float64(n), "cpu-s/op")
	b.ReportMetric(float64(heapInUse()-heap)/(1<<20), "left-MB")
}

// runParts runs the engine and the restarts of a daemon until stop is called.
func runParts(b *testing.B, d *daemon) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = d.engine.Run(ctx) })
	parts.Go(func() { _ = d.restarts.Run(ctx) })
	return func() {
		cancel()
		parts.Wait()
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processorTime returns the CPU time used by this process.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
