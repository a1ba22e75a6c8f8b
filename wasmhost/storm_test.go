package wasmhost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

const importWrite = `(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))`

// At the first trap the runtime prefixes the names of all functions with the name of the module; at
// each trap it joins the names of thirty functions.
func TestLongNamesTakeNoMemoryWhenACallTraps(t *testing.T) {
	const long, functions, traps = 1 << 20, 64, 4
	module := wat(`(func $run (result i32) i32.const 30 call $deep)
		(func $deep (param $n i32) (result i32) local.get $n i32.eqz if unreachable end local.get $n i32.const 1 i32.sub call $deep) %s`,
		strings.Repeat("(func) ", functions))
	name := strings.Repeat("x", long)
	sized := func(text string) string { return string(abi.AppendUint32(nil, uint32(len(text)))) + text }
	names := sized("name") + "\x00" + sized(sized(name)) + "\x01" + sized("\x01\x01"+sized(name)) // name of the second function
	module = append(append(module, abi.SectionCustom), sized(names)...)
	h := handler(t, load(t, wasmhost.Config{Module: module}), nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range traps {
		wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Unknown, "plugin.trap")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("%d traps took %d bytes", traps, took)
	}
}

// logOf returns the texts that a module logs in an attempt.
func logOf(t *testing.T, module []byte) (texts []string) {
	t.Helper()
	logger := slog.New(recordHandler{slog.DiscardHandler, func(r slog.Record) {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "text" {
				texts = append(texts, a.Value.String())
			}
			return true
		})
	}})
	attempt(t, handler(t, load(t, wasmhost.Config{Module: module, Logger: logger}), nil), probe.Target{Name: "web"}, plenty)
	return texts
}

// recordHandler is a slog.Handler that calls a function for each record.
type recordHandler struct {
	slog.Handler
	handle func(slog.Record)
}

func (h recordHandler) Enabled(context.Context, slog.Level) bool      { return true }
func (h recordHandler) Handle(_ context.Context, r slog.Record) error { h.handle(r); return nil }
func (h recordHandler) WithAttrs([]slog.Attr) slog.Handler            { return h }

// A log has a limited queue: empty records would displace those of the engine.
func TestTheRecordsOfALogAreBounded(t *testing.T) {
	const limit, most = 4 << 10, 4 << 10 / 64 // the default of limits.log
	for name, call := range map[string]string{
		"empty records":       `i32.const 2 i32.const 0 i32.const 0 call $log drop`,
		"records of a letter": `i32.const 2 i32.const 0 i32.const 1 call $log drop`,
		"lines of output":     `i32.const 1 i32.const 16 i32.const 1 i32.const 32 call $write drop`,
		"long lines of error": `i32.const 2 i32.const 24 i32.const 1 i32.const 32 call $write drop`,
		"long records":        `i32.const 2 i32.const 0 i32.const 65536 call $log drop`,
	} {
		t.Run(name, func(t *testing.T) {
			texts := logOf(t, wat("%s", importLog+importWrite+`(memory 1) (data 0 "x\n") (data 16 "\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00")
				(func $run (result i32) (local $n i32) i32.const 64 i32.const 120 i32.const 65000 memory.fill loop `+call+` local.get $n i32.const 1 i32.add local.tee $n i32.const 1000 i32.lt_s br_if 0 end i32.const 1)`))
			all := utf8.RuneCountInString(strings.Join(texts, "")) // each invalid byte is replaced by one rune
			if len(texts) == 0 || len(texts) > most || all+64*len(texts) > limit {
				t.Errorf("%d records of %d bytes together", len(texts), all)
			}
		})
	}
}

// Go's runtime writes each word of a traceback separately.
func TestStandardErrorIsLoggedByLines(t *testing.T) {
	const text = "panic: a b\n\n \ngoroutine 1\nat the end"
	var writes strings.Builder
	for n := range len(text) {
		fmt.Fprintf(&writes, `i32.const 100 i32.const %d i32.store i32.const 104 i32.const 1 i32.store
			i32.const 2 i32.const 100 i32.const 1 i32.const 108 call $write drop `, n)
	}
	for name, end := range map[string]string{"returns": "i32.const 1", "traps": "unreachable"} {
		got := logOf(t, wat(`%s (memory 1) (data 0 %q) (func $run (result i32) %s %s)`, importWrite, text, writes.String(), end))
		if want := []string{"panic: a b", "goroutine 1", "at the end"}; !slices.Equal(got, want) {
			t.Errorf("a module that %s: got %q, want %q", name, got, want)
		}
	}
}

// A detail of any length is truncated.
func TestALongDetailIsCut(t *testing.T) {
	for _, length := range []int{abi.MaxDetail, abi.MaxDetail + 1, 2 << 20, -1} {
		got := try(t, wat(`%s (memory 64) (func $run (result i32)
			i32.const 0 i32.const 120 i32.const 4194304 memory.fill i32.const 1 i32.const 0 i32.const %d call $output i32.eqz)`, importOutput, length))
		wantResult(t, got, probe.Success, "")
		if len(got.Detail) != abi.MaxDetail {
			t.Errorf("of %d bytes %d are left", length, len(got.Detail))
		}
	}
}

// everyCall is a module that calls host functions one after another, with a connection on which the
// server responds.
const everyCall = importNet + importIO + importHold + importLog + `
	(import "sonde_v1" "clock" (func $clock (param i32) (result i64)))
	(import "sonde_v1" "random" (func $random (param i32 i32) (result i32)))
	(import "sonde_v1" "deadline" (func $deadline (param i32 i32 i64) (result i32)))
	(import "sonde_v1" "conn_info" (func $info (param i32 i32 i32 i32) (result i32)))
	(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
	(import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
	(memory 2) (data 32 "key")
	(func $run (result i32) (local $fd i32)
		i32.const 1 call $clock drop
		i32.const 1000 i32.const 64 call $random drop
		i32.const 2 i32.const 1000 i32.const 1000 call $input drop
		i32.const 3 i32.const 32 i32.const 3 call $output drop
		i32.const 2 i32.const 32 i32.const 3 call $log drop
		` + dial + ` local.set $fd
		` + dial + ` drop
		local.get $fd i32.const 1 i32.const 1000 i32.const 100 call $info drop
		local.get $fd i32.const 3 i64.const 0 call $deadline drop
		local.get $fd i32.const 32 i32.const 3 call $write drop
		i32.const 208 i32.const 1 i32.store8 i32.const 216 local.get $fd i32.store
		i32.const 200 i32.const 300 i32.const 1 i32.const 400 call $poll drop
		local.get $fd i32.const 500 i32.const 1 call $read i32.const 1 i32.ne if i32.const 3 return end
		local.get $fd i32.const 32 i32.const 3 call $hold drop
		i32.const 32 i32.const 3 i32.const 0 call $held local.set $fd
		call $yield drop
		local.get $fd i32.const 500 i32.const 1 call $read i32.const 1 i32.ne if i32.const 3 return end
		local.get $fd call $close drop
		i32.const 1)`

// An attempt can be cancelled during any host call. It leaves no resources behind, and the next
// attempt works normally.
func TestAnAttemptIsCancelledAtEachHostCall(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	cancelAt, cancel := 0, func() {}
	trace := func(c wasmhost.HostCall) {
		mu.Lock()
		defer mu.Unlock()
		if calls = append(calls, c.Function); len(calls) == cancelAt {
			cancel()
		}
	}
	p := load(t, wasmhost.Config{Module: wat("%s", everyCall), Trace: trace})
	h := handler(t, p, nil)
	var open atomic.Int32 // open connections at the server
	target := serve(t, func(conn net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		io.WriteString(conn, "ok")
		io.Copy(io.Discard, conn)
	})
	whole := func() probe.Result {
		mu.Lock()
		calls, cancelAt = nil, 0
		mu.Unlock()
		return attempt(t, h, target, plenty)
	}
	wantResult(t, whole(), probe.Success, "")
	all, memory := slices.Clone(calls), p.Stats().Memory
	if len(all) != 17 {
		t.Fatalf("the module calls %q", all)
	}
	for at := range all {
		ctx, stop := context.WithCancelCause(t.Context())
		mu.Lock()
		calls, cancelAt, cancel = nil, at+1, func() { stop(errors.New("enough")) }
		mu.Unlock()
		got := h.Probe(ctx, target)
		stop(nil)
		if got.Outcome != probe.Success && got.Reason != probe.ReasonStopped {
			t.Errorf("cancelled after %s: got %+v", all[at], got)
		}
		wantResult(t, whole(), probe.Success, "")
		if s := p.Stats(); s.Memory != memory || s.Held != 0 || s.Started != 1 {
			t.Errorf("cancelled after %s: got %+v", all[at], s)
		}
	}
	testsync.Until(t, "the end of all connections", func() bool { return open.Load() == 0 })
}

// A waiting attempt continues while its plugin is being closed. Close returns after the attempt.
func TestClosingAPluginWaitsForItsAttempts(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat("%s", meeting)})
	h := handler(t, p, nil)
	arrived, answer := make(chan struct{}), make(chan struct{})
	target := serve(t, func(conn net.Conn) {
		close(arrived)
		<-answer
		io.WriteString(conn, "!")
	})
	ended := make(chan probe.Result, 1)
	go func() { ended <- attempt(t, h, target, time.Hour) }()
	testsync.Receive(t, "the attempt", arrived)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantResult(t, attempt(t, h, target, plenty), probe.Unknown, "plugin.closed")
	close(answer)
	wantResult(t, testsync.Receive(t, "the result", ended), probe.Success, "")
	testsync.Until(t, "the end of the instances", func() bool { s := p.Stats(); return s.Instances == 0 && s.Memory == 0 })
}
