package wasmhost_test

import (
	"context"
	"testing"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

// talk is a module that sends PING and expects five bytes, as the built-in handler in this
// benchmark does.
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

// handlers are the handlers to compare.
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

// BenchmarkAttempt makes one attempt after another.
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

// BenchmarkNothing measures the cost of a call that does nothing.
func BenchmarkNothing(b *testing.B) {
	h := handler(b, load(b, wasmhost.Config{Module: wat(idle)}), nil)
	b.ReportAllocs()
	for b.Loop() {
		succeed(b, h, probe.Target{Name: "web"})
	}
}

func succeed(b *testing.B, h probe.Handler, t probe.Target) {
	ctx, cancel := context.WithTimeout(context.Background(), plenty)
	defer cancel()
	if got := h.Probe(ctx, t); got.Outcome != probe.Success {
		b.Errorf("got %+v", got)
	}
}
