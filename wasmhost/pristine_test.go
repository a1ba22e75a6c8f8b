package wasmhost_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

const (
	importInput  = `(import "sonde_v1" "input" (func $input (param i32 i32 i32) (result i32)))`
	importOutput = `(import "sonde_v1" "output" (func $output (param i32 i32 i32) (result i32)))`
	importExit   = `(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))`

	secret = "password-of-the-first-target"
)

// sender is a module that sends all of its memory and a global to its target before it receives
// anything. It then reads data from the target, and the settings, into several places of the memory
// and into the global, spreads the data further, and ends. The arguments of the format are the
// number of memory pages, the code that spreads the data, and the code that ends the attempt.
const sender = importNet + importInput + importExit + `(memory %d) (global $g (mut i32) 0)
	(func $run (result i32) (local $fd i32) (local $at i32)
		` + dial + ` local.set $fd
		i32.const 8 global.get $g i32.store
		local.get $fd i32.const 0 memory.size i32.const 65536 i32.mul call $write drop
		local.get $fd i32.const 1000 i32.const 64 call $read drop
		local.get $fd i32.const 200000 i32.const 64 call $read drop
		i32.const 1 i32.const 70000 i32.const 4096 call $input drop
		i32.const 262000 i32.const 70000 i32.const 100 memory.copy
		i32.const 1000 i32.load global.set $g
		%s
		%s)`

// spreads lists ways in which sender spreads data, and whether its instance can be reset
// afterwards.
var spreads = map[string]struct {
	pages int
	code  string
	reset bool
}{
	"nowhere":       {4, "", true},
	"to new memory": {4, `i32.const 1 memory.grow drop i32.const 262145 i32.const 70000 i32.const 100 memory.copy`, false},
	"to all of 3 MB": {48, `i32.const 262144 local.set $at
		loop local.get $at i32.const 70000 i32.const 100 memory.copy
			local.get $at i32.const 4096 i32.add local.tee $at i32.const 3145728 i32.lt_s br_if 0 end`, true},
}

// exchange returns a server that receives the memory of sender, of size bytes, and responds with
// the secret.
func exchange(size int, received *bytes.Buffer, mu *sync.Mutex) func(net.Conn) {
	return func(conn net.Conn) {
		all := make([]byte, size)
		n, _ := io.ReadFull(conn, all)
		mu.Lock()
		received.Write(all[:n])
		mu.Unlock()
		io.WriteString(conn, strings.Repeat(secret+"......", 4))
		io.Copy(io.Discard, conn)
	}
}

// A module that sends its buffer before filling it must not send one target's password to another.
// However an attempt ends, none of its data remains in the memory of a later attempt.
func TestASecretOfOneTargetIsInNoLaterMemory(t *testing.T) {
	tier.CI(t)
	endings := map[string]string{
		"it returns":         `i32.const 1`,
		"it fails":           `i32.const 3`,
		"it traps":           `unreachable`,
		"it exits":           `i32.const 0 call $exit i32.const 1`,
		"it does not return": spin + ` i32.const 1`,
		"it waits":           `local.get $fd i32.const 1000 i32.const 64 call $read drop i32.const 1`,
	}
	for ending, end := range endings {
		for name, spread := range spreads {
			t.Run(ending+", spread "+name, func(t *testing.T) {
				t.Parallel()
				size := spread.pages * 64 << 10
				timeout := plenty
				if ending == "it does not return" || ending == "it waits" {
					timeout = time.Second
				}
				testsync.Longer(t, "all of the memory", timeout, testsync.Timeout, func(timeout time.Duration) bool {
					p := load(t, wasmhost.Config{Module: wat(sender, spread.pages, spread.code, end), Limits: wasmhost.Limits{Instances: 1, BytesOut: 4 << 20}})
					const targets = 3
					var mu sync.Mutex
					for n := range targets {
						var received bytes.Buffer
						target := serve(t, exchange(size, &received, &mu))
						target.Name = fmt.Sprint("shop/", n)
						attempt(t, handler(t, p, map[string]any{"text": secret}), target, timeout)
						mu.Lock()
						got := bytes.Clone(received.Bytes())
						mu.Unlock()
						wantNoSecret(t, target.Name, got)
						if len(got) != size && timeout >= plenty {
							t.Fatalf("target %s received %d bytes, want %d", target.Name, len(got), size)
						}
						if len(got) != size {
							return false
						}
					}
					if started := p.Stats().Started; spread.reset && started != 1 || !spread.reset && started != targets {
						t.Errorf("%d instances were started", started)
					}
					return true
				})
			})
		}
	}
}

// wantNoSecret checks that the memory and the global of sender, as received by a target, contain no
// data of earlier attempts.
func wantNoSecret(t *testing.T, target string, received []byte) {
	t.Helper()
	for _, part := range []string{secret, "password", "target......"} {
		if bytes.Contains(received, []byte(part)) {
			t.Errorf("target %s received %q", target, part)
		}
	}
	if len(received) < 12 { // the attempt was cut short
		return
	}
	if g := binary.LittleEndian.Uint32(received[8:]); g != 0 {
		t.Errorf("target %s received the global %#x", target, g)
	}
}

// After a call was killed midway, the next attempt works normally, in the same instance.
func TestAnInstanceIsGoodAfterItWasKilled(t *testing.T) {
	tier.Slow(t)
	// busy remains set when an attempt ends midway. The first letter of the text selects how it
	// ends.
	module := wat("%s", importNet+importInput+importExit+`(memory 2) (global $busy (mut i32) 0)
		(func $run (result i32)
			global.get $busy if unreachable end
			i32.const 1 global.set $busy
			i32.const 1 i32.const 100 i32.const 100 call $input drop
			i32.const 109 i32.load8_u i32.const 0x6c i32.eq if `+spin+` end
			i32.const 109 i32.load8_u i32.const 0x74 i32.eq if unreachable end
			i32.const 109 i32.load8_u i32.const 0x65 i32.eq if i32.const 7 call $exit end
			i32.const 109 i32.load8_u i32.const 0x63 i32.eq if loop `+dial+` call $close drop br 0 end end
			i32.const 0 global.set $busy i32.const 1)`)
	p := load(t, wasmhost.Config{Module: module, Limits: wasmhost.Limits{Instances: 1}})
	good := handler(t, p, map[string]any{"text": "good"})
	for text, reason := range map[string]probe.Reason{
		"loop": "plugin.timeout", "trap": "plugin.trap", "exit": "plugin.exit", "calls": wasmhost.ReasonLimit,
	} {
		target, timeout := serve(t, mute), plenty
		if reason == "plugin.timeout" {
			timeout = 200 * time.Millisecond
		}
		h := handler(t, p, map[string]any{"text": text})
		if reason == "plugin.timeout" {
			wantStopped(t, h, target, timeout)
		} else {
			wantResult(t, attempt(t, h, target, timeout), probe.Unknown, reason)
		}
		wantResult(t, attempt(t, good, target, plenty), probe.Success, "")
	}
	if started := p.Stats().Started; started != 1 {
		t.Errorf("%d instances were started", started)
	}
}

func TestGrownMemoryIsGivenBack(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(`(memory 2) (func $run (result i32)
		memory.size i32.const 2 i32.ne if i32.const 3 return end
		i32.const 100 memory.grow drop i32.const 1)`)})
	h := handler(t, p, nil)
	for range 5 {
		wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Success, "")
		if used := p.Stats().Memory; used >= 100<<16 {
			t.Errorf("%d bytes are counted after the attempt", used)
		}
	}
}

// counting counts its attempts in memory, in a global and in the probe's state. It fails unless
// memory and global have their initial values, and reports the state as its detail.
const counting = importInput + importOutput + `(memory 1) (data 16 "\x05") (global $n (mut i32) 0)
	(func $run (result i32) (local $before i32)
		i32.const 16 i32.load8_u i32.const 5 i32.ne if i32.const 3 return end
		global.get $n if i32.const 3 return end
		i32.const 16 i32.const 6 i32.store8 i32.const 1 global.set $n
		i32.const 3 i32.const 32 i32.const 4 call $input drop
		i32.const 32 i32.const 32 i32.load i32.const 1 i32.add i32.store
		i32.const 3 i32.const 32 i32.const 4 call $output drop
		i32.const 64 i32.const 32 i32.load8_u i32.const 48 i32.add i32.store8
		i32.const 1 i32.const 64 i32.const 1 call $output drop i32.const 2)`

func TestStateIsTheOnlyMemoryBetweenAttempts(t *testing.T) {
	h := handler(t, load(t, wasmhost.Config{Module: wat("%s", counting), Limits: wasmhost.Limits{Instances: 1}}), nil)
	for _, want := range []string{"1", "2", "3"} {
		if got := attempt(t, h, probe.Target{Name: "web"}, plenty); got.Outcome != probe.Warning || got.Detail != want {
			t.Errorf("attempt %s: got %+v", want, got)
		}
	}
}

// The results of a module's initialisation are available in each attempt. They are computed once,
// even if the first attempts run concurrently.
func TestAModuleIsInitialisedOnce(t *testing.T) {
	module := wat(`(import "sonde_v1" "metric" (func $metric (param i32 i32 i32 f64) (result i32)))
		(memory 1) (data 0 "starts") (func $start i32.const 2 i32.const 0 i32.const 6 f64.const 1 call $metric drop
			i32.const 16 i32.const 7 i32.store)
		(func $initialize (local $n i32)
			loop local.get $n i32.const 1 i32.add local.tee $n i32.const 10000000 i32.lt_s br_if 0 end
			i32.const 20 i32.const 16 i32.load i32.const 1 i32.add i32.store)
		(func $run (result i32) i32.const 16 i32.load i32.const 7 i32.eq i32.const 20 i32.load i32.const 8 i32.eq i32.mul
			i32.const 16 i32.const 0 i32.store i32.const 20 i32.const 0 i32.store)
		(start $start) (export "_initialize" (func $initialize))`)
	p := load(t, wasmhost.Config{Module: module})
	var together sync.WaitGroup
	h := handler(t, p, nil)
	for range 8 {
		together.Go(func() { wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Success, "") })
	}
	together.Wait()
	if m := p.Stats().Metrics; len(m) != 1 || m[0].Value != 1 {
		t.Errorf("got %+v", m)
	}
}

func TestConcurrentInstancesShareNothing(t *testing.T) {
	// The module sends back the data from its target, after waiting for another message.
	module := wat("%s", importNet+`(memory 2) (func $run (result i32) (local $fd i32)
		`+dial+` local.set $fd
		local.get $fd i32.const 100000 i32.const 4 call $read drop
		local.get $fd i32.const 8 i32.const 1 call $read drop
		local.get $fd i32.const 100000 i32.const 4 call $write drop
		local.get $fd i32.const 8 i32.const 1 call $read drop i32.const 1)`)
	h := handler(t, load(t, wasmhost.Config{Module: module}), nil)
	const many = 4 // initial maximum of instances
	var next atomic.Uint32
	var arrived, all sync.WaitGroup
	arrived.Add(many)
	target := serve(t, func(conn net.Conn) {
		own := binary.LittleEndian.AppendUint32(nil, next.Add(1))
		conn.Write(own)
		arrived.Done()
		arrived.Wait()
		conn.Write([]byte("!"))
		echo := make([]byte, 4)
		if io.ReadFull(conn, echo); !bytes.Equal(echo, own) {
			t.Errorf("sent %x, received %x", own, echo)
		}
	})
	for range many {
		all.Go(func() { wantResult(t, attempt(t, h, target, plenty), probe.Success, "") })
	}
	all.Wait()
}

// An image contains no data of a target or of settings.
func TestAnInitialisationSeesNoTarget(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat("%s", importNet+importInput+`(memory 1) (func $initialize
			i32.const 100 i32.const 1 i32.const 200 i32.const 64 call $input i32.store
			i32.const 104 i32.const 2 i32.const 200 i32.const 64 call $input i32.store
			i32.const 108 `+dial+` i32.store)
		(func $run (result i32) i32.const 100 i32.load i32.eqz i32.const 104 i32.load i32.const 6 i32.eq i32.mul
			i32.const 108 i32.load i32.const 0 i32.lt_s i32.mul)
		(export "_initialize" (func $initialize))`)})
	target := serve(t, mute)
	for range 2 { // "name=\n" is a target without a name
		wantResult(t, attempt(t, handler(t, p, map[string]any{"text": secret}), target, plenty), probe.Success, "")
	}
}

func TestRandomNumbersDifferBetweenAttempts(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	small := load(t, wasmhost.Config{Module: wat("%s", importOutput+`(import "sonde_v1" "random" (func $random (param i32 i32) (result i32)))
		(memory 1) (func $run (result i32) (local $n i32)
			i32.const 0 i32.const 32 call $random drop
			loop local.get $n local.get $n i32.load8_u i32.const 15 i32.div_s i32.const 65 i32.add i32.store8
				local.get $n i32.const 1 i32.add local.tee $n i32.const 32 i32.lt_s br_if 0 end
			i32.const 1 i32.const 0 i32.const 32 call $output drop i32.const 2)`)})
	for name, h := range map[string]*wasmhost.Handler{
		"small": handler(t, small, nil), "go": handler(t, shared.load(t), map[string]any{"text": "random"}),
	} {
		seen := make(map[string]bool)
		for range 4 {
			got := attempt(t, h, probe.Target{Name: "web"}, plenty)
			if got.Detail == "" || seen[got.Detail] {
				t.Errorf("%s: got %+v, and before %v", name, got, seen)
			}
			seen[got.Detail] = true
		}
	}
}

// Variables, goroutines, timers and connections that an attempt in Go leaves behind are gone in the
// next attempt.
func TestAGoGuestStartsEachAttemptAnew(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	p := shared.load(t)
	target := serve(t, pong(0))
	leaving, line := handler(t, p, map[string]any{"text": "leave"}), handler(t, p, map[string]any{"text": "line"})
	before := p.Stats().Started
	for range 3 {
		wantResult(t, attempt(t, leaving, target, plenty), probe.Success, "")
		wantResult(t, attempt(t, line, target, plenty), probe.Success, "")
	}
	if started := p.Stats().Started - before; started > 1 {
		t.Errorf("%d instances were started", started)
	}
}

// A call that was stopped leaves the Go runtime in an inconsistent state.
func TestAGoGuestIsGoodAfterItWasKilled(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	p := shared.load(t)
	target := serve(t, pong(0))
	line := handler(t, p, map[string]any{"text": "line"})
	wantResult(t, attempt(t, line, target, plenty), probe.Success, "")
	before := p.Stats().Started
	for _, text := range []string{"sleep", "panic", "exit", "spin"} {
		if got := attempt(t, handler(t, p, map[string]any{"text": text}), target, 200*time.Millisecond); got.Outcome == probe.Success {
			t.Errorf("%s: got %+v", text, got)
		}
		wantResult(t, attempt(t, line, target, plenty), probe.Success, "")
	}
	if started := p.Stats().Started - before; started != 0 {
		t.Errorf("%d instances were started", started)
	}
}
