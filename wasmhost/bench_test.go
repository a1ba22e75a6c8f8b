package wasmhost_test

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

// talk is a module that sends PING and expects five bytes, as the built-in handler does
// beside it.
const talk = importNet + `(data 32 "PING\n") (func $run (result i32) (local $fd i32) ` + dial + ` local.set $fd
	local.get $fd i32.const 32 i32.const 5 call $write drop
	local.get $fd i32.const 64 i32.const 16 call $read i32.const 5 i32.ne if i32.const 3 return end
	local.get $fd call $close drop i32.const 1)`

func builtin(b *testing.B) probe.Handler {
	h, err := tcpprobe.New(tcpprobe.Config{Port: "db", Send: "PING\n", Expect: "PONG"})
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// handlers are those that are compared.
func handlers(b *testing.B) map[string]func(*testing.B) probe.Handler {
	return map[string]func(*testing.B) probe.Handler{
		"builtin": builtin,
		"wasm": func(b *testing.B) probe.Handler {
			return handler(b, load(b, wasmhost.Config{Module: wat("%s", talk)}), nil)
		},
		"go wasm": func(b *testing.B) probe.Handler {
			return handler(b, shared.load(b), map[string]any{"text": "line"})
		},
	}
}

// BenchmarkAttempt makes one attempt after the other.
func BenchmarkAttempt(b *testing.B) {
	target := serve(b, pong(0))
	all := handlers(b)
	for _, name := range []string{"builtin", "wasm", "go wasm"} {
		b.Run(name, func(b *testing.B) {
			h := all[name](b)
			succeed(b, h, target)
			b.ReportAllocs()
			for b.Loop() {
				succeed(b, h, target)
			}
		})
	}
}

// BenchmarkNothing is the cost of a call alone.
func BenchmarkNothing(b *testing.B) {
	h := handler(b, load(b, wasmhost.Config{Module: wat(idle)}), nil)
	b.ReportAllocs()
	for b.Loop() {
		succeed(b, h, probe.Target{Name: "web"})
	}
}

// BenchmarkTargets makes attempts at 10,000 targets, each with a handler of its own,
// 64 at once. It reports attempts per second and the memory in use at the end.
func BenchmarkTargets(b *testing.B) {
	const targets, atOnce = 10000, 64
	server := serve(b, func(conn net.Conn) { pong(0)(conn) })
	all := handlers(b)
	for _, name := range []string{"builtin", "wasm"} {
		b.Run(name, func(b *testing.B) {
			first := all[name](b)
			list := make([]probe.Handler, targets)
			for i := range list {
				list[i] = first
				if h, ok := first.(*wasmhost.Handler); ok {
					list[i] = h.Fork()
				}
			}
			var next atomic.Int64
			b.ResetTimer()
			var group errgroup.Group
			for range atOnce {
				group.Go(func() error {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						succeed(b, list[i%targets], server)
					}
					return nil
				})
			}
			_ = group.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "attempts/s")
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapInuse+m.StackInuse)/(1<<20), "MB")
			runtime.KeepAlive(list)
		})
	}
}

func succeed(b *testing.B, h probe.Handler, t probe.Target) {
	ctx, cancel := context.WithTimeout(context.Background(), plenty)
	defer cancel()
	if got := h.Probe(ctx, t); got.Outcome != probe.Success {
		b.Errorf("got %+v", got)
	}
}
