package wasmhost_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// sleeper returns a module whose instances sleep when they start.
func sleeper(d time.Duration) []byte {
	return wat(`(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
		(func $sleep i32.const 16 i32.const 1 i32.store i32.const 24 i64.const %d i64.store
			i32.const 0 i32.const 64 i32.const 1 i32.const 128 call $poll drop)
		(start $sleep) (func $run (result i32) i32.const 1)`, d.Nanoseconds())
}

// short is a timeout of attempts that is too short for a sleeper to start.
const short = 10 * time.Millisecond

func TestAnInstanceIsStartedForTheNextAttempt(t *testing.T) {
	tier.Slow(t)
	p := load(t, wasmhost.Config{Module: sleeper(time.Second), Limits: wasmhost.Limits{Instances: 1}})
	h := handler(t, p, nil)
	wantResult(t, attempt(t, h, probe.Target{Name: "web"}, short), probe.Unknown, wasmhost.ReasonStarting)
	testsync.Until(t, "the instance", func() bool { return p.Stats().Idle == 1 })
	wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Success, "")
	if stats := p.Stats(); stats.Started != 1 || stats.Errors["plugin.start"] != 0 {
		t.Errorf("got %+v", stats)
	}
}

func TestACancelledAttemptDoesNotEndTheStartOfItsInstance(t *testing.T) {
	tier.Slow(t)
	p := load(t, wasmhost.Config{Module: sleeper(time.Second), Limits: wasmhost.Limits{Instances: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantResult(t, handler(t, p, nil).Probe(ctx, probe.Target{Name: "web"}), probe.Unknown, probe.ReasonStopped)
	testsync.Until(t, "the instance", func() bool { return p.Stats().Idle == 1 })
}

// A start that exceeds limits.start counts as an error of the plugin only if it had processor time:
// otherwise a good plugin would be suspended on a slow machine.
func TestAStartThatHadNoProcessorTimeDoesNotSuspendThePlugin(t *testing.T) {
	tier.Slow(t)
	if runtime.GOOS != "linux" {
		t.Skip("the processor time of a start is known on Linux only")
	}
	// Even on a slow machine, the work before the sleep takes only a small part of this limit.
	starved := load(t, wasmhost.Config{Module: sleeper(time.Hour), Limits: wasmhost.Limits{Start: 200 * time.Millisecond}})
	h := handler(t, starved, nil)
	for range 10 {
		wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Unknown, "plugin.start")
	}
	if stats := starved.Stats(); stats.Suspensions != 0 || stats.Errors["plugin.start"] != 10 {
		t.Errorf("got %+v", stats)
	}
	guilty := load(t, wasmhost.Config{Module: wat(`(func $spin %s) (start $spin) (func $run (result i32) i32.const 1)`, spin), Limits: wasmhost.Limits{Start: 20 * time.Millisecond}})
	h = handler(t, guilty, nil)
	testsync.Until(t, "the suspension", func() bool {
		attempt(t, h, probe.Target{Name: "web"}, plenty)
		return guilty.Stats().Suspensions > 0
	})
}

// hung is a module whose instances never start.
var hung = wat(`(func $spin %s) (start $spin) (func $run (result i32) i32.const 1)`, spin)

func TestCloseEndsTheStartsOfInstances(t *testing.T) {
	p, err := wasmhost.Load(wasmhost.Config{Module: hung, Limits: wasmhost.Limits{Start: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	h, err := p.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		wantResult(t, attempt(t, h, probe.Target{Name: "web"}, short), probe.Unknown, wasmhost.ReasonStarting)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if stats := p.Stats(); stats.Instances != 0 || stats.Started != 0 || stats.Errors["plugin.start"] != 0 {
		t.Errorf("got %+v", stats)
	}
}

// meeting is a module whose attempts succeed when the server responds.
const meeting = importNet + `(func $run (result i32) (local $fd i32) ` + dial + ` local.set $fd
	local.get $fd i32.const 64 i32.const 1 call $read)`

// meet makes concurrent attempts with a plugin. The server responds when all have connected.
func meet(t *testing.T, p *wasmhost.Plugin, attempts int) {
	t.Helper()
	var arrived, ended sync.WaitGroup
	arrived.Add(attempts)
	target := serve(t, func(conn net.Conn) {
		arrived.Done()
		arrived.Wait()
		io.WriteString(conn, "!")
	})
	h := handler(t, p, nil)
	for range attempts {
		ended.Go(func() { wantResult(t, attempt(t, h.ForProbe(), target, plenty), probe.Success, "") })
	}
	ended.Wait()
}

// A plugin without attempts keeps idle instances. Plugins that are loaded later can use their
// share, and no more.
func TestIdleInstancesMakeRoomForAnotherPlugin(t *testing.T) {
	const many, large = 24, "(memory 256)" // 16 MiB: far more than the plugins of other tests use
	before := load(t, wasmhost.Config{Module: wat("%s", large+meeting)})
	meet(t, before, many)
	idle := before.Stats()
	if idle.Idle != many {
		t.Fatalf("got %+v", idle)
	}
	wasmhost.SetTotalMemory(idle.Memory + 20<<20)
	t.Cleanup(func() { wasmhost.SetTotalMemory(wasmhost.DefaultTotalMemory) })
	meet(t, load(t, wasmhost.Config{Module: wat("%s", large+meeting)}), 2)
	if left := before.Stats(); left.Idle == many || left.Idle < many/2 || left.Memory >= idle.Memory {
		t.Errorf("got %+v, before %+v", left, idle)
	}
}
