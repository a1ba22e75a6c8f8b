package wasmhost_test

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// echoes returns a module that holds a connection, sends a byte over it and expects it back.
func echoes() []byte {
	return wat(`%s %s (data 32 "k") (func $run (result i32) (local $fd i32)
		i32.const 32 i32.const 1 i32.const 0 call $held local.tee $fd i32.const 0 i32.lt_s if %s local.set $fd end
		local.get $fd i32.const 32 i32.const 1 call $write i32.const 1 i32.ne if i32.const 3 return end
		local.get $fd i32.const 64 i32.const 1 call $read i32.const 1 i32.ne if i32.const 3 return end
		local.get $fd i32.const 32 i32.const 1 call $hold i32.eqz)`, importNet, importHold, dial)
}

func TestAConnectionIsHeldBetweenAttempts(t *testing.T) {
	p := load(t, wasmhost.Config{Module: echoes(), KeepAlive: &wasmhost.KeepAlive{Idle: 1000 * time.Second}})
	accepted, ended := make(chan net.Conn, 8), make(chan struct{}, 8)
	target := serve(t, func(conn net.Conn) {
		accepted <- conn
		io.Copy(conn, conn)
		ended <- struct{}{}
	})
	h := handler(t, p, nil)
	for range 3 {
		wantResult(t, attempt(t, h, target, plenty), probe.Success, "")
	}
	if len(accepted) != 1 || p.Stats().Held != 1 {
		t.Fatalf("%d connections for 3 attempts, %d held", len(accepted), p.Stats().Held)
	}
	if runtime.GOOS == "linux" {
		for _, port := range target.Ports {
			dialtest.WaitForKeepAlive(t, port, 1000)
		}
	}
	(<-accepted).Close()
	<-ended
	if got := attempt(t, h, target, plenty); got.Outcome != probe.Failure {
		t.Errorf("after the peer has closed: %+v", got)
	}
	wantResult(t, attempt(t, h, target, plenty), probe.Success, "")
	h.Close()
	<-ended // closed by Handler.Close
	if p.Stats().Held != 0 {
		t.Errorf("%d held after Close", p.Stats().Held)
	}
	wantResult(t, attempt(t, h, target, plenty), probe.Success, "")
	<-ended // nothing is held for a removed probe
}

// One probe must not use up the held connections that are allowed for all probes together.
func TestAProbeHoldsAsManyConnectionsAsAnAttemptMayOpen(t *testing.T) {
	module := wat(`%s %s (import "sonde_v1" "random" (func $random (param i32 i32) (result i32)))
		(func $run (result i32)
		i32.const 32 i32.const 16 call $random drop
		%s i32.const 32 i32.const 16 call $hold if i32.const 2 return end i32.const 1)`, importNet, importHold, dial)
	p := load(t, wasmhost.Config{Module: module, Limits: wasmhost.Limits{Connections: 3}})
	target, h := serve(t, mute), handler(t, p, nil)
	for i := range 6 {
		want := probe.Success
		if i >= 3 {
			want = probe.Warning
		}
		wantResult(t, attempt(t, h, target, plenty), want, "")
	}
	wantResult(t, attempt(t, h.ForProbe(), target, plenty), probe.Success, "")
	if held := p.Stats().Held; held != 4 {
		t.Errorf("two probes hold %d connections", held)
	}
}

func TestHeldConnectionsAreBounded(t *testing.T) {
	module := wat(`%s %s (data 32 "abc") (func $run (result i32)
		%[3]s i32.const 32 i32.const 1 call $hold if i32.const 2 return end
		%[3]s i32.const 33 i32.const 1 call $hold if i32.const 2 return end
		%[3]s i32.const 34 i32.const 1 call $hold i32.const %[4]d i32.eq)`, importNet, importHold, dial, -int(abi.EMFILE))
	p := load(t, wasmhost.Config{Module: module, Limits: wasmhost.Limits{Held: 2}})
	h := handler(t, p, nil)
	wantResult(t, attempt(t, h, serve(t, mute), plenty), probe.Success, "")
	if held := p.Stats().Held; held != 2 {
		t.Errorf("%d are held", held)
	}
}

func TestATrapClosesHeldConnections(t *testing.T) {
	module := wat(`%s %s (global $n (mut i32) 0) (func $run (result i32)
		%s i32.const 0 i32.const 1 call $hold drop unreachable)`, importNet, importHold, dial)
	p := load(t, wasmhost.Config{Module: module})
	ended := make(chan struct{})
	target := serve(t, func(conn net.Conn) { mute(conn); close(ended) })
	wantResult(t, attempt(t, handler(t, p, nil), target, plenty), probe.Unknown, "plugin.trap")
	<-ended
	if held := p.Stats().Held; held != 0 {
		t.Errorf("%d are held", held)
	}
}

func TestHeldConnectionsBelongToOneAddress(t *testing.T) {
	ended := make(chan string, 8)
	at := func(name string) probe.Target {
		target := serve(t, func(conn net.Conn) { io.Copy(conn, conn); ended <- name })
		target.Name = "shop/db"
		return target
	}
	first, second := at("first"), at("second")
	second.Address = "localhost" // another address of the same target
	p := load(t, wasmhost.Config{Module: echoes()})
	h := handler(t, p, nil)
	wantResult(t, attempt(t, h, first, plenty), probe.Success, "")
	wantResult(t, attempt(t, h, second, plenty), probe.Success, "")
	if got := <-ended; got != "first" {
		t.Errorf("the connection to the %s one was closed", got)
	}
	if held := p.Stats().Held; held != 1 {
		t.Errorf("%d are held", held)
	}
}
