package wasmhost_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/tck"
)

// The parts of the plugins with which the conformance kit is tested. They send PING to the target's
// port "port" and expect it back.
const (
	kitImports = `(import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "read" (func $read (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "write" (func $write (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "input" (func $input (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "output" (func $output (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "hold" (func $hold (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "held" (func $held (param i32 i32 i32) (result i32)))
		(data 0 "tcp:port") (data 32 "PING\n")
		(func $open (result i32) i32.const 0 i32.const 3 i32.const 3 i32.const 5 i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $dial)`

	ask = `local.get $fd i32.const 32 i32.const 5 call $write i32.const 5 i32.ne if i32.const 3 return end `

	// listen reads five bytes, in any number of pieces.
	listen = `loop
			local.get $fd i32.const 64 local.get $got i32.add i32.const 5 local.get $got i32.sub call $read local.tee $n
			i32.const 1 i32.lt_s if i32.const 3 return end
			local.get $got local.get $n i32.add local.tee $got i32.const 5 i32.lt_s br_if 0
		end `
	listenOnce = `local.get $fd i32.const 64 i32.const 5 call $read i32.const 5 i32.ne if i32.const 3 return end `

	judge   = `i32.const 64 i32.load i32.const 0x474e4950 i32.eq if i32 i32.const 1 else i32.const 3 end`
	content = `i32.const 1`

	// load returns the number in the probe's state. count adds 1 to it.
	kitCount = `(func $load (result i32) i32.const 128 i32.const 0 i32.store i32.const 3 i32.const 128 i32.const 4 call $input drop i32.const 128 i32.load)
		(func $count i32.const 128 call $load i32.const 1 i32.add i32.store i32.const 3 i32.const 128 i32.const 4 call $output drop)`

	kitRun   = `(func $run (result i32) call $open call $talk)`
	kitLocal = `(func $talk (param $fd i32) (result i32) (local $n i32) (local $got i32) `
)

func TestTheConformanceKitFindsFaultsOfPlugins(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	const (
		bytewise = "a response that is sent byte by byte is a success"
		late     = "a late response is a failure"
		ended    = "a closed connection is replaced"
		refused  = "a refused connection is a failure"
		closes   = "a connection that is closed at once is a failure"
		silent   = "a server that never responds is a failure, within the timeout"
		random   = "random bytes are a failure"
		other    = "another protocol is a failure"
		flood    = "an endless response is a failure"
		granted  = "a destination that is not granted is not reached"
		unknown  = "unknown settings and ports are ignored"
		again    = "repeated attempts of a probe agree, and hold no more connections"
		recovers = "a server that recovers is a success"
		prepared = "an attempt without prepared data is a success"
	)
	talk := kitLocal + ask + listen + judge + `)`
	tests := map[string]struct {
		wat    string
		failed []string
	}{
		"a conforming plugin": {talk + kitRun, nil},
		"one that never connects": {`(func $run (result i32) i32.const 1)`,
			[]string{late, refused, closes, silent, random, other, flood, granted}},
		"one that accepts any response":        {kitLocal + ask + listen + content + `)` + kitRun, []string{random, other, flood}},
		"one that reads once":                  {kitLocal + ask + listenOnce + judge + `)` + kitRun, []string{bytewise}},
		"one that fails with unknown settings": {talk + `(func $run (result i32) i32.const 1 i32.const 0 i32.const 0 call $input i32.const 20 i32.gt_s if i32.const 3 return end call $open call $talk)`, []string{unknown}},
		"one that fails now and then": {talk + kitCount + `(func $run (result i32)
			call $load i32.const 2 i32.eq if i32.const 3 return end call $count call $open call $talk)`,
			[]string{again, recovers}},
		"one that keeps failing after failures": {talk + kitCount + `(func $run (result i32)
			call $load if i32.const 3 return end
			call $open call $talk i32.const 1 i32.ne if call $count i32.const 3 return end i32.const 1)`,
			[]string{recovers}},
		"one that holds another connection each time": {talk + kitCount + `(func $run (result i32) (local $fd i32) (local $found i32)
			i32.const 16 call $load i32.const 65 i32.add i32.store8 call $count
			call $open local.tee $fd call $talk local.set $found
			local.get $fd i32.const 16 i32.const 1 call $hold drop local.get $found)`,
			[]string{again}},
		"one that needs what it has prepared": {talk + `(func $configure (result i32) i32.const 5 i32.const 32 i32.const 4 call $output)
			(export "sonde_configure" (func $configure))
			(func $run (result i32) i32.const 5 i32.const 64 i32.const 4 call $input i32.eqz if i32.const 3 return end call $open call $talk)`,
			[]string{prepared}},
		"one that never replaces its connection": {talk + `(func $run (result i32) (local $fd i32) (local $found i32)
			i32.const 32 i32.const 1 i32.const 0 call $held local.tee $fd i32.const 0 i32.lt_s if call $open local.set $fd end
			local.get $fd call $talk local.set $found
			local.get $fd i32.const 32 i32.const 1 call $hold drop local.get $found)`,
			[]string{ended, recovers}},
	}
	port, stop, err := tck.Echo()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if len(test.failed) == 1 {
				tier.CI(t) // make test skips plugins with several faults
			}
			module := wat("%s", kitImports+test.wat)
			failed := rulesFailed(t, module, port)
			// On a busy machine, bytes that are sent one by one may arrive together, and random bytes too
			// late.
			for tries := 1; tries < 5 && len(failed) < len(test.failed); tries++ {
				failed = rulesFailed(t, module, port)
			}
			if !slices.Equal(failed, test.failed) {
				t.Errorf("failed:\n%s\nwant:\n%s", strings.Join(failed, "\n"), strings.Join(test.failed, "\n"))
			}
		})
	}
}

// A plugin may succeed only at its deadline, for example if a goroutine of its library never stops reading. This
// plugin does so by waiting for more data than the response.
func TestTheConformanceKitFailsASuccessAtTheDeadline(t *testing.T) {
	tier.CI(t)
	port, stop, err := tck.Echo()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	module := wat("%s", kitImports+kitLocal+ask+listen+`local.get $fd i32.const 128 i32.const 1 call $read drop `+judge+`)`+kitRun)
	checks, err := tck.Run(t.Context(), tck.Config{
		Plugin: wasmhost.Config{Module: module}, Address: tck.Loopback, Port: port, Timeout: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if c.Err != nil && strings.Contains(c.Err.Error(), "succeeded only at its deadline") {
			return
		}
	}
	t.Errorf("no rule has failed for that: %v", checks)
}

// rulesFailed runs the kit with an echo server.
func rulesFailed(t *testing.T, module []byte, port uint16) (failed []string) {
	t.Helper()
	checks, err := tck.Run(t.Context(), tck.Config{
		Plugin:  wasmhost.Config{Module: module},
		Address: tck.Loopback, Port: port, Timeout: testsync.Timeout, Silence: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if c.Err != nil {
			failed = append(failed, c.Name)
			t.Logf("%s: %v", c.Name, c.Err)
		}
	}
	return failed
}
