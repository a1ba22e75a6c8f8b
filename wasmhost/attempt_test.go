package wasmhost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

const (
	importIO = `(import "sonde_v1" "input" (func $input (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "output" (func $output (param i32 i32 i32) (result i32)))`
	importHold = `(import "sonde_v1" "hold" (func $hold (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "held" (func $held (param i32 i32 i32) (result i32)))`
	// echo returns an input as the detail.
	echo = `(func $run (result i32) i32.const 1 i32.const 1024 i32.const %d i32.const 1024 i32.const 8192 call $input call $output drop i32.const 1)`
)

// inputOf returns an input as a module reads it.
func inputOf(t *testing.T, kind int, settings map[string]any, target probe.Target) string {
	t.Helper()
	h := handler(t, load(t, wasmhost.Config{Module: wat(importIO+echo, kind)}), settings)
	got := attempt(t, h, target, plenty)
	wantResult(t, got, probe.Success, "")
	return got.Detail
}

func TestAPluginReadsItsTarget(t *testing.T) {
	target := probe.Target{Name: "shop/web", Address: "10.0.0.7", Ports: map[string]uint16{"http": 8080, "a b": 1}, Env: map[string]string{"SECRET": "x"}}
	got := inputOf(t, abi.InputTarget, nil, target)
	const want = "name=shop/web\naddress=10.0.0.7\nport=1 a b\nport=8080 http\nrevision="
	if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 4 {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := inputOf(t, abi.InputTarget, nil, probe.Target{Name: `a\b`}); !strings.HasPrefix(got, "name=a\\\\b\nrevision=") {
		t.Errorf("got %q", got)
	}
}

func TestAPluginReadsItsSettings(t *testing.T) {
	got := inputOf(t, abi.InputSettings, map[string]any{"text": "é\n", "tls": map[string]any{"server_name": "web"}}, probe.Target{Name: "web"})
	if want := `{"text":"é\n","tls":{"server_name":"web"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStateIsKeptForTheNextAttempt(t *testing.T) {
	// Each attempt appends an x to its state, and returns it as the detail.
	h := handler(t, load(t, wasmhost.Config{Module: wat(importIO + `(data 8 "x") (func $run (result i32) (local $n i32)
		i32.const 3 i32.const 1024 i32.const 100 call $input local.set $n
		i32.const 1024 local.get $n i32.add i32.const 0x78 i32.store8
		i32.const 3 i32.const 1024 local.get $n i32.const 1 i32.add call $output drop
		i32.const 1 i32.const 1024 local.get $n i32.const 1 i32.add call $output drop
		i32.const 1)`)}), nil)
	other := h.ForProbe()
	web := probe.Target{Name: "web", Address: "10.0.0.1"}
	moved := web
	moved.Address = "10.0.0.2"
	for i, step := range []struct {
		h    probe.Handler
		at   probe.Target
		want string
	}{{h, web, "x"}, {h, web, "xx"}, {other, web, "x"}, {h, web, "xxx"}, {h, moved, "x"}, {h, moved, "xx"}} {
		if got := attempt(t, step.h, step.at, plenty); got.Detail != step.want {
			t.Errorf("step %d: got %q, want %q", i, got.Detail, step.want)
		}
	}
}

func TestStateIsBounded(t *testing.T) {
	got := try(t, wat(`%s (func $run (result i32) i32.const 3 i32.const 0 i32.const %d call $output i32.const %d i32.eq)`, importIO, abi.MaxState+1, -int(abi.E2BIG)))
	wantResult(t, got, probe.Success, "")
	got = try(t, wat(`%s (func $run (result i32) i32.const 3 i32.const 0 i32.const %d call $output i32.eqz)`, importIO, abi.MaxState))
	wantResult(t, got, probe.Success, "")
}

func TestOutputOfAPluginIsCleaned(t *testing.T) {
	got := try(t, wat(`%s (data 0 "\x1b[31mred") (data 64 "redis.loading") (func $run (result i32)
		i32.const 1 i32.const 0 i32.const 8 call $output drop i32.const 2 i32.const 64 i32.const 13 call $output drop i32.const 3)`, importIO))
	if got.Reason != "redis.loading" || got.Detail != "\ufffd[31mred" {
		t.Errorf("got %+v", got)
	}
	got = try(t, wat(`%s (data 64 "plugin.trap") (func $run (result i32) i32.const 2 i32.const 64 i32.const 11 call $output i32.const %d i32.eq)`, importIO, -int(abi.EINVAL)))
	wantResult(t, got, probe.Success, "")
}

func TestAFailureWithoutAReasonGetsThatOfItsDial(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := targetOf(listener.Addr())
	listener.Close()
	got := attempt(t, handler(t, load(t, wasmhost.Config{Module: wat(`%s (func $run (result i32) %s drop i32.const 3)`, importNet, dial)}), nil), target, plenty)
	wantResult(t, got, probe.Failure, probe.ReasonTCPRefused)
	if got.Detail == "" || got.Timings.Connect != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestADeniedConnectionIsReported(t *testing.T) {
	var log buffer
	p := load(t, wasmhost.Config{
		Module: wat(`%s (func $run (result i32) %s drop i32.const 3)`, importNet, dial),
		Grant:  wasmhost.Grant{Dial: []string{"tcp://192.0.2.1:80"}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	target := serve(t, mute)
	h := handler(t, p, nil)
	for range 3 {
		wantResult(t, attempt(t, h, target, plenty), probe.Unknown, wasmhost.ReasonGrant)
	}
	stats := p.Stats()
	if stats.Denied != 3 || stats.Errors[wasmhost.ReasonGrant] != 3 || stats.Suspensions != 0 {
		t.Errorf("got %+v", stats)
	}
	if n := strings.Count(log.String(), "plugin connection denied"); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, log.String())
	}
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestOnlyTheTargetsPortsAreGrantedByDefault(t *testing.T) {
	elsewhere := serve(t, mute)
	literal := `(data 0 "tcp%s") (import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
		(func $run (result i32) i32.const 0 i32.const 3 i32.const 3 i32.const %d i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $dial i32.const 0 i32.lt_s
			if i32 i32.const 3 else i32.const 1 end)`
	address := net.JoinHostPort(elsewhere.Address, port(elsewhere))
	p := load(t, wasmhost.Config{Module: wat(literal, address, len(address))})
	here := probe.Target{Name: "web", Address: elsewhere.Address, Ports: map[string]uint16{"http": 1}}
	wantResult(t, attempt(t, handler(t, p, nil), elsewhere, plenty), probe.Success, "")
	wantResult(t, attempt(t, handler(t, p, nil), here, plenty), probe.Unknown, wasmhost.ReasonGrant)
	wantResult(t, attempt(t, handler(t, p, map[string]any{"port": port(elsewhere)}), here, plenty), probe.Success, "")
}

// The plugin's author writes the manifest: a default in it is not consent of the operator.
func TestADefaultPortIsNotGranted(t *testing.T) {
	elsewhere := serve(t, mute)
	module := wat(`(data 0 "tcp%s") (import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
		(func $run (result i32) i32.const 0 i32.const 3 i32.const 3 i32.const %d i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $dial i32.const 0 i32.lt_s
			if i32 i32.const 3 else i32.const 1 end)`, ":"+port(elsewhere), len(port(elsewhere))+1)
	module, err := abi.WriteManifest(module, abi.Manifest{Name: "test", ABI: 1, Settings: []abi.Setting{
		{Name: "port", Type: abi.TypeString, Default: json.RawMessage(strconv.Quote(port(elsewhere)))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, wasmhost.Config{Module: module})
	here := probe.Target{Name: "web", Address: elsewhere.Address, Ports: map[string]uint16{"http": 1}}
	got := attempt(t, handler(t, p, nil), here, plenty)
	wantResult(t, got, probe.Unknown, wasmhost.ReasonGrant)
	if want := "set port = " + strconv.Quote(port(elsewhere)); !strings.Contains(got.Detail, want) {
		t.Errorf("got %q, want %q", got.Detail, want)
	}
	wantResult(t, attempt(t, handler(t, p, map[string]any{"port": port(elsewhere)}), here, plenty), probe.Success, "")
	wantResult(t, attempt(t, handler(t, p, nil), elsewhere, plenty), probe.Success, "")
}

func port(t probe.Target) string {
	b, _ := json.Marshal(t.Ports["db"])
	return string(b)
}

func TestOnTrapMakesATrapAFailure(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(`(func $run (result i32) unreachable)`), OnTrap: probe.Failure})
	wantResult(t, attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty), probe.Failure, "plugin.trap")
}

func TestAProbeWhosePluginTrapsTooOftenIsSuspended(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(`(func $run (result i32) unreachable)`)})
	h := handler(t, p, nil)
	var got []probe.Reason
	for range 7 {
		got = append(got, attempt(t, h, probe.Target{Name: "web"}, plenty).Reason)
	}
	trap, suspended := probe.Reason("plugin.trap"), probe.Reason("plugin.suspended")
	if want := []probe.Reason{trap, trap, trap, trap, trap, suspended, suspended}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if s := p.Stats(); s.ProbeSuspensions != 1 || s.Suspensions != 0 || s.Attempts != 5 || s.Errors[trap] != 5 {
		t.Errorf("got %+v", s)
	}
	wantResult(t, attempt(t, h.ForProbe(), probe.Target{Name: "other"}, plenty), probe.Unknown, trap)
}

func TestAPluginThatTrapsForManyTargetsIsSuspended(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(`(func $run (result i32) unreachable)`)})
	h := handler(t, p, nil)
	for range 5 {
		wantResult(t, attempt(t, h.ForProbe(), probe.Target{Name: "web"}, plenty), probe.Unknown, "plugin.trap")
	}
	wantResult(t, attempt(t, h.ForProbe(), probe.Target{Name: "web"}, plenty), probe.Unknown, "plugin.suspended")
	if s := p.Stats(); s.Suspensions != 1 || s.Suspended <= 0 || s.ProbeSuspensions != 0 {
		t.Errorf("got %+v", s)
	}
}

// TestOneBadTargetDoesNotSuspendThePlugin attempts one target much more often than 100 others. On its
// response the plugin traps or does not return.
func TestOneBadTargetDoesNotSuspendThePlugin(t *testing.T) {
	tier.Slow(t)
	const targets = 100
	for name, test := range map[string]struct {
		bad      string
		attempts int // of the bad target
		timeout  time.Duration
	}{
		"it traps":           {"unreachable", 100, plenty},
		"it does not return": {spin, 20, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			module := wat(`%s (func $run (result i32) (local $fd i32) %s local.tee $fd i32.const 0 i32.lt_s if i32.const 3 return end
				local.get $fd i32.const 64 i32.const 1 call $read i32.const 1 i32.ne if i32.const 3 return end
				i32.const 64 i32.load8_u i32.const 66 i32.eq if %s end
				local.get $fd call $close drop i32.const 1)`, importNet, dial, test.bad)
			p := load(t, wasmhost.Config{Module: module})
			bad := handler(t, p, nil)
			badServer := serve(t, func(c net.Conn) { c.Write([]byte("B")) })
			var down atomic.Bool
			server := serve(t, func(c net.Conn) {
				if !down.Load() {
					c.Write([]byte("G"))
				}
			})
			good := make([]probe.Handler, targets)
			for i := range good {
				good[i] = bad.ForProbe()
			}
			for i := range targets {
				if i < test.attempts {
					if got := attempt(t, bad, badServer, test.timeout); got.Outcome == probe.Success {
						t.Fatalf("the bad target: %+v", got)
					}
				}
				wantResult(t, attempt(t, good[i], server, plenty), probe.Success, "")
			}
			down.Store(true)
			for _, h := range good {
				if got := attempt(t, h, server, plenty); got.Outcome != probe.Failure {
					t.Fatalf("the server is down: %+v", got)
				}
			}
			if n := p.Stats().Suspensions; n != 0 {
				t.Errorf("the plugin was suspended %d times", n)
			}
		})
	}
}

func TestPluginsSetMetrics(t *testing.T) {
	p := load(t, wasmhost.Config{Limits: wasmhost.Limits{Metrics: 2}, Module: wat(`
		(import "sonde_v1" "metric" (func $metric (param i32 i32 i32 f64) (result i32))) (data 0 "lagbeatsBAD") (func $run (result i32)
		i32.const 1 i32.const 0 i32.const 3 f64.const 2.5 call $metric drop
		i32.const 2 i32.const 3 i32.const 5 f64.const 1 call $metric drop
		i32.const 2 i32.const 3 i32.const 5 f64.const -1 call $metric i32.const %[1]d i32.ne if i32.const 2 return end
		i32.const 1 i32.const 8 i32.const 3 f64.const 1 call $metric i32.const %[1]d i32.ne if i32.const 2 return end
		i32.const 1 i32.const 3 i32.const 4 f64.const 1 call $metric i32.const %[2]d i32.eq)`, -int(abi.EINVAL), -int(abi.ENOSPC))})
	h := handler(t, p, nil)
	for range 2 {
		wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Success, "")
	}
	want := []stats.Metric{{Name: "beats", Counter: true, Value: 2}, {Name: "lag", Value: 2.5}}
	if got := p.Stats().Metrics; !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

// The numbers that a plugin measures in an attempt are returned only in a trace of that attempt,
// and are not kept.
func TestPluginsMeasureAttempts(t *testing.T) {
	p := load(t, wasmhost.Config{Limits: wasmhost.Limits{Metrics: 2}, Module: wat(`
		(import "sonde_v1" "metric" (func $metric (param i32 i32 i32 f64) (result i32))) (data 0 "lagbeatsBAD") (func $run (result i32)
		i32.const 3 i32.const 0 i32.const 3 f64.const 2.5 call $metric i32.const %d i32.eq if i32.const 2 return end
		i32.const 3 i32.const 3 i32.const 5 f64.const 1 call $metric drop
		i32.const 3 i32.const 3 i32.const 5 f64.const -7 call $metric drop
		i32.const 3 i32.const 8 i32.const 3 f64.const 1 call $metric i32.const %d i32.ne if i32.const 3 return end
		i32.const 3 i32.const 3 i32.const 4 f64.const 1 call $metric i32.const %d i32.eq)`, -int(abi.ENOTCAPABLE), -int(abi.EINVAL), -int(abi.ENOSPC))})
	h := handler(t, p, nil)
	wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Warning, "") // without a trace
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	ctx, trace := probe.WithTrace(ctx)
	wantResult(t, h.Probe(ctx, probe.Target{Name: "web"}), probe.Success, "")
	if got, want := trace().Measured, (map[string]float64{"lag": 2.5, "beats": -7}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := p.Stats().Metrics; len(got) > 0 {
		t.Errorf("the plugin has the metrics %+v", got)
	}
}

func TestHostCallsAreTraced(t *testing.T) {
	var calls []wasmhost.HostCall
	p := load(t, wasmhost.Config{
		Module: wat(`%s (func $run (result i32) %s drop i32.const 99 call $close drop i32.const 1)`, importNet, dial),
		Trace:  func(c wasmhost.HostCall) { calls = append(calls, c) },
	})
	target := serve(t, mute)
	wantResult(t, attempt(t, handler(t, p, nil), target, plenty), probe.Success, "")
	if len(calls) != 2 || calls[0].Function != "sonde_v1.dial" || calls[0].Result != 1000 || calls[0].Target != target.Name || calls[1].Result != -int64(abi.EBADF) {
		t.Errorf("got %+v", calls)
	}
}

func TestCompiledCodeIsCached(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cache")
	for i, want := range []bool{false, true, true} {
		p := load(t, wasmhost.Config{Module: wat(idle), CacheDir: dir})
		if s := p.Stats(); s.CacheHit != want || s.Compile <= 0 {
			t.Errorf("load %d: %+v", i, s)
		}
		wantResult(t, attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
	}
}

func TestDamagedCacheEntriesAreCompiledAgain(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache")
	for range 2 {
		p, err := wasmhost.Load(wasmhost.Config{Module: wat(idle), CacheDir: root})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		damage(t, root)
	}
}

// damage changes each file below a directory.
func damage(t *testing.T, root string) {
	files, _ := filepath.Glob(filepath.Join(root, "*.code"))
	if len(files) == 0 {
		t.Fatal("nothing was cached")
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b[len(b)/2:] {
			b[len(b)/2+i] ^= 0xff
		}
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClosedPluginMakesNoAttempts(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(idle)})
	h := handler(t, p, nil)
	wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Success, "")
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Unknown, "plugin.closed")
}

func TestAttemptsWaitForAnInstance(t *testing.T) {
	p := load(t, wasmhost.Config{Limits: wasmhost.Limits{Instances: 1}, Module: wat(`%s (func $run (result i32) %s i32.const 64 i32.const 1 call $read)`, importNet, dial)})
	h := handler(t, p, nil)
	reached, answer := make(chan struct{}, 2), make(chan struct{})
	target := serve(t, func(conn net.Conn) {
		reached <- struct{}{}
		<-answer
		io.WriteString(conn, "x")
	})
	first, second := make(chan probe.Result), make(chan probe.Result)
	go func() { first <- attempt(t, h, target, plenty) }()
	<-reached
	wantResult(t, attempt(t, h, target, 20*time.Millisecond), probe.Unknown, wasmhost.ReasonBusy)
	go func() { second <- attempt(t, h, target, plenty) }()
	close(answer)
	wantResult(t, <-first, probe.Success, "")
	wantResult(t, <-second, probe.Success, "")
	if s := p.Stats(); s.Waits == 0 || s.Started != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestAPluginChecksItsSettings(t *testing.T) {
	// The module rejects settings whose JSON is longer than two bytes.
	p := load(t, wasmhost.Config{Module: wat(`%s (data 0 "tls.server_nameis unknown") (func $configure (result i32)
		i32.const 4 i32.const 0 i32.const 15 call $output drop i32.const 1 i32.const 15 i32.const 10 call $output drop
		i32.const 1 i32.const 0 i32.const 0 call $input i32.const 2 i32.gt_s) (export "sonde_configure" (func $configure)) %s`, importIO, idle)})
	_, err := p.New(map[string]any{"text": "x"})
	var wrong *probe.FieldError
	if !errors.As(err, &wrong) || wrong.Field != "tls.server_name" || wrong.Problem != "is unknown" {
		t.Errorf("got %v", err)
	}
	wantResult(t, attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
}

func TestSettingsAreCheckedAgainstTheManifest(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(idle)})
	for want, settings := range map[string]map[string]any{
		"txt is not a setting":           {"txt": "x"},
		"text must be of type string":    {"text": int64(1)},
		"tls must be a block":            {"tls": "x"},
		"tls.name is not a setting":      {"tls": map[string]any{"name": "x"}},
		"tls.server_name must be of typ": {"tls": map[string]any{"server_name": true}},
	} {
		var wrong *probe.FieldError
		if _, err := p.New(settings); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// stalledContext is done a second after its deadline, as in a process that was stopped.
type stalledContext struct{ context.Context }

func (c stalledContext) Deadline() (time.Time, bool) {
	end, ok := c.Context.Deadline()
	return end.Add(-time.Second), ok
}

func TestCallsThatAStallHasCutOffDoNotSuspendThePlugin(t *testing.T) {
	tier.Slow(t)
	p := load(t, wasmhost.Config{Module: wat(`(func $run (result i32) %s i32.const 1)`, spin)})
	h := handler(t, p, nil)
	stopped := func(stalled bool) probe.Reason {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if stalled {
			ctx = stalledContext{ctx}
		}
		return h.Probe(ctx, probe.Target{Name: "web"}).Reason
	}
	cutOff := 0
	testsync.Until(t, "calls that a stall has cut off", func() bool {
		switch got := stopped(true); got {
		case wasmhost.ReasonBusy:
			cutOff++
		case wasmhost.ReasonStarting: // on a busy machine
		default:
			t.Errorf("got %s for a call that a stall has cut off", got)
		}
		return cutOff == 6
	})
	if n := p.Stats().ProbeSuspensions; n != 0 {
		t.Errorf("%d suspensions after stalls", n)
	}
	blamed := 0
	testsync.Until(t, "a suspension after stops in time", func() bool {
		if stopped(false) == "plugin.timeout" {
			blamed++
		}
		return p.Stats().ProbeSuspensions > 0
	})
	if blamed > 5 { // fewer if others had the processors for a part of the time
		t.Errorf("suspended after %d attempts: those that a stall has cut off count as good", blamed)
	}
}

func TestAHandlerKnowsItsEndpoint(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(idle)})
	target := probe.Target{Name: "web", Address: "::1", Ports: map[string]uint16{"db": 5432}}
	for port, want := range map[string]string{"db": "[::1]:5432", "80": "[::1]:80", "http": ""} {
		if got := handler(t, p, map[string]any{"port": port}).Endpoint(target); got != want {
			t.Errorf("of port %s: got %q, want %q", port, got, want)
		}
	}
	target.Ports["admin"] = 80
	if got, want := handler(t, p, nil).Endpoint(target), "[::1]:admin=80,db=5432"; got != want {
		t.Errorf("without a setting called port: got %q, want %q", got, want)
	}
}

func TestAHandlerChecksItsPort(t *testing.T) {
	h := handler(t, load(t, wasmhost.Config{Module: wat(idle)}), map[string]any{"port": "db"})
	if err := h.Check(probe.Target{Name: "web", Ports: map[string]uint16{"db": 1}}); err != nil {
		t.Error(err)
	}
	var wrong *probe.FieldError
	if err := h.Check(probe.Target{Name: "web", Ports: map[string]uint16{"http": 1}}); !errors.As(err, &wrong) || wrong.Field != "port" {
		t.Errorf("got %v", err)
	}
}
