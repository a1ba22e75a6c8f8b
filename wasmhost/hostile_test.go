package wasmhost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

const (
	spin      = `loop br 0 end`
	importLog = `(import "sonde_v1" "log" (func $log (param i32 i32 i32) (result i32)))`
	importNet = `(import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "read" (func $read (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "write" (func $write (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "close" (func $close (param i32) (result i32)))
		(data 0 "tcp:db")`
	// dial dials the target's port "db".
	dial = `i32.const 0 i32.const 3 i32.const 3 i32.const 3 i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $dial`
)

func TestHostileModulesEndWithTheirReason(t *testing.T) {
	tier.Slow(t)
	tests := map[string]struct {
		wat     string
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"an endless loop":           {`(func $run (result i32) ` + spin + ` i32.const 1)`, probe.Unknown, "plugin.timeout"},
		"a start that does not end": {`(func $spin ` + spin + `) (start $spin) (func $run (result i32) i32.const 1)`, probe.Unknown, "plugin.start"},
		"an endless _initialize": {`(func $spin ` + spin + `) (export "_initialize" (func $spin))
			(func $run (result i32) i32.const 1)`, probe.Unknown, "plugin.start"},
		"a start that sleeps": {`(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
			(func $sleep i32.const 24 i64.const 0x0fffffffffffffff i64.store i32.const 0 i32.const 64 i32.const 1 i32.const 128 call $poll drop)
			(start $sleep) (func $run (result i32) i32.const 1)`, probe.Unknown, "plugin.start"},
		"a start that calls the host": {`(import "sonde_v1" "random" (func $random (param i32 i32) (result i32)))
			(func $ask i32.const 0 i32.const 8 call $random drop) (start $ask)
			(func $run (result i32) i32.const 0 i64.load i64.eqz i32.eqz)`, probe.Success, ""},
		"endless recursion": {`(func $run (result i32) call $run i32.const 1 i32.add)`, probe.Unknown, "plugin.stack"},
		"endless recursion with a stack in memory": {`(global $sp (mut i32) 65536)
			(func $run (result i32) global.get $sp i32.const 64 i32.sub global.set $sp
				global.get $sp i32.const 7 i32.store call $run)`, probe.Unknown, "plugin.trap"},
		"endless memory growth": {`(func $run (result i32) block loop i32.const 1 memory.grow i32.const -1 i32.eq br_if 1 br 0 end end unreachable)`,
			probe.Unknown, "plugin.memory"},
		"much memory at once": {`(func $run (result i32) i32.const 65535 memory.grow i32.const -1 i32.eq if unreachable end i32.const 1)`,
			probe.Unknown, "plugin.memory"},
		"a division by zero":       {`(func $run (result i32) i32.const 1 i32.const 0 i32.div_s)`, probe.Unknown, "plugin.trap"},
		"an address out of bounds": {`(func $run (result i32) i32.const -4 i32.load)`, probe.Unknown, "plugin.trap"},
		"an exit": {`(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
			(func $run (result i32) i32.const 0 call $exit i32.const 1)`, probe.Unknown, "plugin.exit"},
		"endless logging": {importLog + `(func $run (result i32)
			loop i32.const 2 i32.const 0 i32.const 4096 call $log drop br 0 end i32.const 1)`, probe.Unknown, wasmhost.ReasonLimit},
		"endless dials": {importNet + `(func $run (result i32)
			loop ` + dial + ` call $close drop br 0 end i32.const 1)`, probe.Unknown, wasmhost.ReasonLimit},
		"endless writes": {importNet + `(func $run (result i32) (local $fd i32) ` + dial + ` local.set $fd
			loop local.get $fd i32.const 0 i32.const 65536 call $write drop br 0 end i32.const 1)`, probe.Unknown, wasmhost.ReasonLimit},
	}
	var logged, dialled, received atomic.Int64
	target := serve(t, func(conn net.Conn) {
		dialled.Add(1)
		n, _ := io.Copy(io.Discard, conn)
		received.Add(n)
	})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dialled.Store(0)
			received.Store(0)
			logger := slog.New(slog.NewTextHandler(countingWriter{&logged}, nil))
			config := wasmhost.Config{Module: wat("%s", test.wat), Logger: logger}
			timeout := plenty // the race detector makes recursion slow
			switch test.reason {
			case "plugin.timeout":
				timeout = 200 * time.Millisecond
			case "plugin.start":
				config.Limits.Start = 200 * time.Millisecond
			}
			p := load(t, config)
			if test.reason == "plugin.timeout" {
				wantStopped(t, handler(t, p, nil), target, timeout)
				return
			}
			began := time.Now()
			got := attempt(t, handler(t, p, nil), target, timeout)
			wantResult(t, got, test.outcome, test.reason)
			if late := "still ran 100ms after the deadline"; test.reason == "plugin.start" && !strings.Contains(got.Detail, late) {
				t.Errorf("the detail is %q, it should contain %q", got.Detail, late)
			}
			if took := time.Since(began); took > plenty {
				t.Errorf("it took %v", took)
			}
			if stats := p.Stats(); test.reason == "plugin.start" && stats.Instances != 0 {
				t.Errorf("its instance is kept: %+v", stats)
			}
		})
	}
	if n := logged.Load(); n > 100<<10 {
		t.Errorf("%d bytes were logged", n)
	}
	if n := dialled.Load(); n > 16 {
		t.Errorf("%d connections came", n)
	}
	if n := received.Load(); n > 256<<10 {
		t.Errorf("%d bytes came", n)
	}
}

// A fault of a module during its initialisation is described, and its instance is not kept.
func TestFailedInitialisationsAreDescribed(t *testing.T) {
	tier.Slow(t)
	const exit = `(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))`
	for code, want := range map[string]string{
		`(func $f unreachable)`:                                  "unreachable",
		`(func $f i32.const -4 i32.load drop)`:                   "out of bounds memory access",
		exit + `(func $f i32.const 0 call $exit)`:                "exited with code 0",
		`(func $f call $f call $f)`:                              "stack overflow",
		`(func $f i32.const 65535 memory.grow drop unreachable)`: "limits.memory is 32MiB, but initializing the module takes more",
	} {
		for function, caller := range map[string]string{"start": `(start $f)`, "_initialize": `(export "_initialize" (func $f))`} {
			p := load(t, wasmhost.Config{Module: wat("%s", code+caller+`(func $run (result i32) i32.const 1)`)})
			got := attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, time.Minute)
			wantResult(t, got, probe.Unknown, "plugin.start")
			if !strings.HasPrefix(got.Detail, function+": ") || !strings.Contains(got.Detail, want) || strings.Contains(got.Detail, "wazero") {
				t.Errorf("%s by %s: got %q", code, function, got.Detail)
			}
			if s := p.Stats(); s.Instances != 0 || s.Started != 0 {
				t.Errorf("%s by %s: got %+v", code, function, s)
			}
		}
	}
}

func TestFuelIsLimited(t *testing.T) {
	tier.Slow(t)
	for name, bad := range map[string]string{
		"a loop":    `(func $run (result i32) ` + spin + ` i32.const 1)`,
		"recursion": fib + `(func $run (result i32) i32.const 60 call $fib)`,
		"host calls": `(import "sonde_v1" "clock" (func $clock (param i32) (result i64)))
			(func $run (result i32) loop i32.const 1 call $clock drop br 0 end i32.const 1)`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, limit := range []int{10, 54321} {
				p := load(t, wasmhost.Config{Module: wat("%s", bad), Limits: wasmhost.Limits{Fuel: limit, HostCalls: 1 << 30}})
				got := handler(t, p, nil).Probe(t.Context(), probe.Target{Name: "bad"})
				wantResult(t, got, probe.Unknown, wasmhost.ReasonLimit)
				const charge = 64 // more than the largest charge of these modules
				if used := p.Stats().Fuel; used <= uint64(limit) || used > uint64(limit)+charge || got.Detail != "limit fuel was reached" {
					t.Errorf("%d units were used, %d are allowed: %s", used, limit, got.Detail)
				}
			}
		})
	}
	p := load(t, wasmhost.Config{Module: wat(`(func $run (result i32) i32.const 1)`), Limits: wasmhost.Limits{Fuel: 1}})
	wantResult(t, handler(t, p, nil).Probe(t.Context(), probe.Target{Name: "good"}), probe.Success, "")
}

// A plugin may use the exit codes that wazero itself uses.
func TestAnExitIsShownWithItsCode(t *testing.T) {
	tier.Slow(t)
	for _, code := range []uint32{0, 3, 0xefffffff, 0xffffffff} {
		exit := `(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))`
		got := try(t, wat(`%s (func $run (result i32) i32.const %d call $exit i32.const 1)`, exit, int32(code)))
		wantResult(t, got, probe.Unknown, "plugin.exit")
		if want := fmt.Sprintf("plugin exited with code %d", code); got.Detail != want {
			t.Errorf("got %q, want %q", got.Detail, want)
		}
		got = try(t, wat(`%s (func $start i32.const %d call $exit) (start $start) (func $run (result i32) i32.const 1)`, exit, int32(code)))
		wantResult(t, got, probe.Unknown, "plugin.start")
		if want := fmt.Sprintf("exited with code %d", code); !strings.HasSuffix(got.Detail, want) {
			t.Errorf("in the start function: got %q, want %q", got.Detail, want)
		}
	}
}

// countingWriter counts bytes.
type countingWriter struct{ n *atomic.Int64 }

func (w countingWriter) Write(p []byte) (int, error) {
	w.n.Add(int64(len(p)))
	return len(p), nil
}

// fib computes for hours without a loop.
const fib = `(func $fib (param $n i32) (result i32) local.get $n i32.const 2 i32.lt_s if i32 local.get $n else
	local.get $n i32.const 1 i32.sub call $fib local.get $n i32.const 2 i32.sub call $fib i32.add end)`

// A call that computes instead of waiting for its target does not fail the target, whether it is stopped or
// returns a failure. A call that has waited for the target does, even if it computes afterwards.
func TestACallThatComputesUntilItsDeadlineFailsNoTarget(t *testing.T) {
	tier.Slow(t)
	for name, test := range map[string]struct {
		wat     string
		outcome probe.Outcome
	}{
		"it is stopped": {`(func $run (result i32) ` + spin + ` i32.const 1)`, probe.Unknown},
		"it returns a failure": {`(import "sonde_v1" "remaining" (func $remaining (result i64)))
			(func $run (result i32) (local $i i32)
				loop
					i32.const 100000 local.set $i
					loop local.get $i i32.const 1 i32.sub local.tee $i br_if 0 end
					call $remaining i64.eqz i32.eqz br_if 0
				end i32.const 3)`, probe.Unknown},
		"it has waited for its target": {importNet + `(func $run (result i32) ` + dial + ` i32.const 64 i32.const 1 call $read drop
			` + spin + ` i32.const 1)`, probe.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			h := handler(t, load(t, wasmhost.Config{Module: wat("%s", test.wat)}), nil)
			target := serve(t, mute)
			var got probe.Result
			testsync.Longer(t, "an attempt that has computed", 200*time.Millisecond, testsync.Timeout, func(timeout time.Duration) bool {
				got = attempt(t, h.ForProbe(), target, timeout)
				return got.Reason != wasmhost.ReasonBusy && got.Reason != wasmhost.ReasonStarting
			})
			if isSlow := got.Reason == "plugin.limit" || got.Reason == "plugin.suspended"; isSlow && test.outcome == probe.Unknown && got.Outcome == probe.Unknown {
				return // on a busy machine its fuel was used up first, or earlier attempts were blamed
			}
			wantResult(t, got, test.outcome, "plugin.timeout")
		})
	}
}

// wantStopped makes attempts with a guest that never returns, until one is blamed or its probe is
// suspended because some were. On a busy machine none may be blamed: a call may not have the
// processor for long enough to be at fault.
func wantStopped(tb testing.TB, h probe.Handler, t probe.Target, timeout time.Duration) {
	tb.Helper()
	for range 10 {
		got := attempt(tb, h, t, timeout)
		if got.Reason == "plugin.suspended" {
			return
		}
		if got.Outcome != probe.Unknown || got.Reason != wasmhost.ReasonBusy && got.Reason != wasmhost.ReasonStarting {
			wantResult(tb, got, probe.Unknown, "plugin.timeout")
			return
		}
	}
	if computes(tb) {
		tb.Error("the guest is never blamed, although this machine is not busy")
	}
}

// computes reports whether a computing goroutine has a processor for most of the time.
func computes(tb testing.TB) bool {
	const long = 200 * time.Millisecond
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			tb.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before, began := used(), time.Now()
	for time.Since(began) < long {
	}
	return used()-before > long*3/4
}

// TestRunawayGuestsAreStopped runs more runaway guests than there are processors. They must not
// block a garbage collection or another plugin.
func TestRunawayGuestsAreStopped(t *testing.T) {
	tier.Slow(t)
	fills := strings.Repeat(`i32.const 0 i32.const 1 i32.const 16777216 memory.fill `, 1000)
	good := handler(t, load(t, wasmhost.Config{Module: wat("(func $run (result i32) i32.const 1)")}), nil)
	for name, bad := range map[string]string{
		"a loop":              `(func $run (result i32) ` + spin + ` i32.const 1)`,
		"recursion":           fib + `(func $run (result i32) i32.const 60 call $fib)`,
		"fills of its memory": `(memory 256) (func $fill ` + fills + `) (func $run (result i32) loop call $fill br 0 end i32.const 1)`,
		"calls of the host": `(import "sonde_v1" "clock" (func $clock (param i32) (result i64)))
			(func $run (result i32) loop i32.const 1 call $clock drop br 0 end i32.const 1)`,
	} {
		t.Run(name, func(t *testing.T) {
			c := wasmhost.Config{Module: wat("%s", bad)}
			c.Limits.HostCalls = 1 << 30
			h := handler(t, load(t, c), nil)
			wantStopped(t, h, probe.Target{Name: "bad"}, 50*time.Millisecond) // an instance has been started
			ctx, cancel := context.WithCancel(t.Context())
			var ended sync.WaitGroup
			for range 2 * runtime.GOMAXPROCS(0) {
				ended.Go(func() { h.Probe(ctx, probe.Target{Name: "bad"}) })
			}
			for range 10 {
				runtime.GC()
				wantResult(t, attempt(t, good, probe.Target{Name: "good"}, plenty), probe.Success, "")
			}
			cancel()
			ended.Wait()
		})
	}
}

func TestRecursionInConfigureIsStopped(t *testing.T) {
	c := wasmhost.Config{Module: wat("%s", fib+`(func $configure (result i32) i32.const 60 call $fib)
		(func $run (result i32) i32.const 1) (export "sonde_configure" (func $configure))`)}
	testsync.Longer(t, "the start of an instance", 200*time.Millisecond, testsync.Timeout, func(timeout time.Duration) bool {
		c.Limits.Start = timeout
		p := load(t, c)
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		h, err := p.New(nil)
		if err == nil {
			err = h.Unchecked() // others had the processors
		}
		if err == nil {
			t.Fatal("there is no error")
		}
		return strings.HasSuffix(err.Error(), fmt.Sprintf("stopped: it still ran %v after the deadline", abi.Grace))
	})
}

func TestInvalidArgumentsAreHandled(t *testing.T) {
	tier.Slow(t)
	target := serve(t, func(net.Conn) {}) // so that no read waits
	for module, functions := range map[string][]abi.Function{
		abi.HostModule: abi.Functions(),
		abi.WASIModule: append(abi.WASI(), abi.WASIRefused()...),
	} {
		for _, f := range functions {
			if f.Name == "proc_exit" {
				continue
			}
			t.Run(f.Name, func(t *testing.T) {
				got := attempt(t, handler(t, load(t, wasmhost.Config{Module: callInvalid(module, f)}), nil), target, plenty)
				if got.Outcome != probe.Success {
					t.Errorf("got %v %q: %s", got.Outcome, got.Reason, got.Detail)
				}
			})
		}
	}
}

// callInvalid returns a module that calls a function with invalid arguments, first with a
// descriptor from dial, then with others.
func callInvalid(module string, f abi.Function) []byte {
	types := strings.NewReplacer("i", "i32 ", "l", "i64 ", "d", "f64 ")
	var calls strings.Builder
	for _, first := range []string{"local.get $fd", "i32.const 1", "i32.const 999", "i32.const 1002", "i32.const -1"} {
		for _, wild := range []string{"0", "1", "-1", "65535", "65536", "-65536", "0x7fffffff", "-0x80000000"} {
			for i, kind := range f.Params {
				switch {
				case i == 0 && kind == 'i':
					calls.WriteString(first + " ")
				case kind == 'd':
					fmt.Fprintf(&calls, "f64.const NaN ")
				default:
					fmt.Fprintf(&calls, "%s.const %s ", map[rune]string{'i': "i32", 'l': "i64"}[kind], wild)
				}
			}
			calls.WriteString("call $wild ")
			if f.Results != "" {
				calls.WriteString("drop ")
			}
		}
	}
	result := ""
	if f.Results != "" {
		result = "(result " + types.Replace(f.Results) + ")"
	}
	return wat(`%s (import %q %q (func $wild (param %s) %s))
		(func $run (result i32) (local $fd i32) %s local.set $fd %s i32.const 1)`,
		importNet, module, f.Name, types.Replace(f.Params), result, dial, calls.String())
}

func TestUnknownDescriptorsAreRejected(t *testing.T) {
	// The first attempt returns its descriptor as an unknown outcome; the second attempt reads from
	// it, and from other descriptors that are not its own.
	first := load(t, wasmhost.Config{Module: wat(`%s (func $run (result i32) %s i32.const 1000 i32.sub i32.const 3 i32.add)`, importNet, dial)})
	target := serve(t, mute)
	wantResult(t, attempt(t, handler(t, first, nil), target, plenty), probe.Failure, wasmhost.ReasonFailure)
	second := `(func $try (param $fd i32)
		local.get $fd i32.const 64 i32.const 8 call $read i32.const %[2]d i32.ne if unreachable end
		local.get $fd i32.const 64 i32.const 8 call $write i32.const %[2]d i32.ne if unreachable end
		local.get $fd call $close i32.const %[2]d i32.ne if unreachable end)
		(func $run (result i32) (local $fd i32)
			i32.const 0 call $try i32.const 1 call $try i32.const 3 call $try i32.const 1000 call $try i32.const -1 call $try
			%[1]s local.tee $fd call $close drop local.get $fd call $try
			i32.const 1)`
	got := attempt(t, handler(t, load(t, wasmhost.Config{Module: wat(importNet+second, dial, -int(abi.EBADF))}), nil), target, plenty)
	wantResult(t, got, probe.Success, "")
}

func TestADescriptorIsNeverUsedTwice(t *testing.T) {
	h := handler(t, load(t, wasmhost.Config{Module: wat(`%[1]s (func $run (result i32) (local $fd i32)
		%[2]s local.tee $fd call $close drop %[2]s local.get $fd i32.gt_s)`, importNet, dial)}), nil)
	wantResult(t, attempt(t, h, serve(t, mute), plenty), probe.Success, "")
}

func TestOtherProbesRunBesideHostilePlugins(t *testing.T) {
	good := handler(t, load(t, wasmhost.Config{Module: wat("(func $run (result i32) i32.const 1)")}), nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	for _, bad := range []string{`(func $run (result i32) ` + spin + ` i32.const 1)`, `(func $run (result i32) call $run i32.const 1 i32.add)`} {
		h := handler(t, load(t, wasmhost.Config{Module: wat("%s", bad)}), nil)
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				h.Probe(short, probe.Target{Name: "bad"})
				cancel()
			}
		}()
	}
	for range 200 {
		wantResult(t, attempt(t, good, probe.Target{Name: "good"}, plenty), probe.Success, "")
		runtime.Gosched()
	}
	stop()
	<-ended
	<-ended
}

func TestACancelledAttemptIsUnknown(t *testing.T) {
	const imports = importNet + `(import "sonde_v1" "start_tls" (func $secure (param i32 i32 i32) (result i32)))
		(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32))) (data 16 "verify=none")`
	const poll = ` i32.const 200 i32.const 300 i32.const 1 i32.const 400 call $poll drop`
	for name, code := range map[string]string{
		"in a loop":      spin,
		"in a read":      dial + ` i32.const 64 i32.const 8 call $read drop`,
		"in a handshake": dial + ` i32.const 16 i32.const 11 call $secure drop`,
		"in a poll":      `i32.const 208 i32.const 1 i32.store8 i32.const 216 ` + dial + ` i32.store` + poll,
		"in a sleep":     dial + ` drop i32.const 224 i64.const 0x0fffffffffffffff i64.store` + poll,
	} {
		t.Run(name, func(t *testing.T) {
			h := handler(t, load(t, wasmhost.Config{Module: wat(`%s (func $run (result i32) %s i32.const 3)`, imports, code)}), nil)
			reached := make(chan struct{})
			target := serve(t, func(conn net.Conn) { close(reached); mute(conn) })
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if name == "in a loop" {
				cancel(errors.New("enough"))
			} else {
				go func() { <-reached; cancel(errors.New("enough")) }()
			}
			wantResult(t, h.Probe(ctx, target), probe.Unknown, probe.ReasonStopped)
		})
	}
}
