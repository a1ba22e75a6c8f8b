package wasmhost_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

// plenty is longer than any operation that finishes at all.
const plenty = time.Minute

// load loads a module and waits until it is compiled.
func load(tb testing.TB, c wasmhost.Config) *wasmhost.Plugin {
	tb.Helper()
	p := loadLater(tb, c)
	if err := p.Wait(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return p
}

// loadLater loads a module without waiting for the compilation. Functions such as withoutCompiler,
// which must be undone after the plugin is closed, must be called before.
func loadLater(tb testing.TB, c wasmhost.Config) *wasmhost.Plugin {
	tb.Helper()
	p, err := wasmhost.Load(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return p
}

func handler(tb testing.TB, p *wasmhost.Plugin, settings map[string]any) *wasmhost.Handler {
	tb.Helper()
	h, err := p.New(settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { h.Close() })
	return h
}

// attempt makes one attempt.
func attempt(tb testing.TB, h probe.Handler, t probe.Target, timeout time.Duration) probe.Result {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	return h.Probe(ctx, t)
}

// try makes one attempt by a module that ignores its target.
func try(tb testing.TB, module []byte) probe.Result {
	tb.Helper()
	return attempt(tb, handler(tb, load(tb, wasmhost.Config{Module: module}), nil), probe.Target{Name: "web"}, plenty)
}

func wantResult(tb testing.TB, got probe.Result, outcome probe.Outcome, reason probe.Reason) {
	tb.Helper()
	if got.Outcome != outcome || got.Reason != reason {
		tb.Errorf("got %v %q: %s\nwant %v %q", got.Outcome, got.Reason, got.Detail, outcome, reason)
	}
}

// serve serves connections until the test ends, and returns a target whose port is called "db".
func serve(tb testing.TB, answer func(net.Conn)) probe.Target {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	return targetOf(listener.Addr())
}

func targetOf(addr net.Addr) probe.Target {
	at := netip.MustParseAddrPort(addr.String())
	return probe.Target{Name: "shop/db", Address: at.Addr().String(), Ports: map[string]uint16{"db": at.Port()}}
}

func TestOutcomesAreReturned(t *testing.T) {
	for number, want := range map[int]struct {
		outcome probe.Outcome
		reason  probe.Reason
	}{
		0:         {probe.Unknown, ""},
		1:         {probe.Success, ""},
		2:         {probe.Warning, ""},
		3:         {probe.Failure, wasmhost.ReasonFailure},
		4:         {probe.Unknown, "plugin.outcome"},
		-1:        {probe.Unknown, "plugin.outcome"},
		-1 << 31:  {probe.Unknown, "plugin.outcome"},
		1<<31 - 1: {probe.Unknown, "plugin.outcome"},
	} {
		got := try(t, wat(`(func $run (result i32) i32.const %d)`, number))
		wantResult(t, got, want.outcome, want.reason)
	}
}
