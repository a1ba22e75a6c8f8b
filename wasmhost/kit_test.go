package wasmhost_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/tck"
)

// These are the parts of plugins that the conformance kit is tried with. They send PING
// to the target's port "port" and expect it back.
const (
	kitImports = `(import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "read" (func $read (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "write" (func $write (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "input" (func $input (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "hold" (func $hold (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "held" (func $held (param i32 i32 i32) (result i32)))
		(data 0 "tcp:port") (data 32 "PING\n")
		(func $open (result i32) i32.const 0 i32.const 3 i32.const 3 i32.const 5 i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $dial)`

	ask = `local.get $fd i32.const 32 i32.const 5 call $write i32.const 5 i32.ne if i32.const 3 return end `

	// listen reads five bytes, in as many pieces as they come.
	listen = `loop
			local.get $fd i32.const 64 local.get $got i32.add i32.const 5 local.get $got i32.sub call $read local.tee $n
			i32.const 1 i32.lt_s if i32.const 3 return end
			local.get $got local.get $n i32.add local.tee $got i32.const 5 i32.lt_s br_if 0
		end `
	listenOnce = `local.get $fd i32.const 64 i32.const 5 call $read i32.const 5 i32.ne if i32.const 3 return end `

	judge   = `i32.const 64 i32.load i32.const 0x474e4950 i32.eq if i32 i32.const 1 else i32.const 3 end`
	content = `i32.const 1`

	kitRun   = `(func $run (result i32) call $open call $talk)`
	kitLocal = `(func $talk (param $fd i32) (result i32) (local $n i32) (local $got i32) `
)

func TestTheKitFindsWhatAPluginDoesWrong(t *testing.T) {
	const (
		bytewise = "an answer that comes a byte at a time is a success"
		late     = "an answer that comes too late is a failure"
		ended    = "a connection that has ended is made anew"
		nobody   = "a port where nobody listens is a failure"
		closes   = "a server that closes at once is a failure"
		silent   = "a server that never answers is a failure, in time"
		random   = "random bytes are a failure"
		other    = "another protocol is a failure"
		flood    = "an answer without end is a failure"
		granted  = "what is not granted is not dialled"
		grease   = "settings and ports that are not known are skipped"
		again    = "attempts of one probe find the same again and again"
		nothing  = "nothing is left of what went wrong before"
	)
	talk := kitLocal + ask + listen + judge + `)`
	tests := map[string]struct {
		wat     string
		notKept []string
	}{
		"a good one": {talk + kitRun, nil},
		"one that asks nobody": {`(func $run (result i32) i32.const 1)`,
			[]string{late, nobody, closes, silent, random, other, flood, granted}},
		"one that likes any answer":       {kitLocal + ask + listen + content + `)` + kitRun, []string{random, other, flood}},
		"one that reads once":             {kitLocal + ask + listenOnce + judge + `)` + kitRun, []string{bytewise}},
		"one that minds unknown settings": {talk + `(func $run (result i32) i32.const 1 i32.const 0 i32.const 0 call $input i32.const 20 i32.gt_s if i32.const 3 return end call $open call $talk)`, []string{grease}},
		"one that fails now and then": {talk + `(global $n (mut i32) 0) (func $run (result i32)
			global.get $n i32.const 1 i32.add global.set $n global.get $n i32.const 7 i32.eq if i32.const 3 return end call $open call $talk)`,
			[]string{again}},
		"one that bears a grudge": {talk + `(global $bad (mut i32) 0) (func $run (result i32)
			global.get $bad i32.const 3 i32.gt_s if i32.const 3 return end
			call $open call $talk i32.const 1 i32.ne if global.get $bad i32.const 1 i32.add global.set $bad i32.const 3 return end i32.const 1)`,
			[]string{nothing}},
		"one that clings to its connection": {talk + `(func $run (result i32) (local $fd i32) (local $found i32)
			i32.const 32 i32.const 1 i32.const 0 call $held local.tee $fd i32.const 0 i32.lt_s if call $open local.set $fd end
			local.get $fd call $talk local.set $found
			local.get $fd i32.const 32 i32.const 1 call $hold drop local.get $found)`,
			[]string{ended}},
	}
	port, stop, err := tck.Echo()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "plugin.wasm")
			if err := os.WriteFile(file, wat("%s", kitImports+test.wat), 0o600); err != nil {
				t.Fatal(err)
			}
			checks, err := tck.Run(t.Context(), tck.Config{
				Plugin:  wasmhost.Config{Path: file, AllowUnpinned: true},
				Address: tck.Loopback, Port: port, Timeout: 500 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			var notKept []string
			for _, c := range checks {
				if c.Err != nil {
					notKept = append(notKept, c.Name)
					t.Logf("%s: %v", c.Name, c.Err)
				}
			}
			if !slices.Equal(notKept, test.notKept) {
				t.Errorf("not kept:\n%s\nwant:\n%s", strings.Join(notKept, "\n"), strings.Join(test.notKept, "\n"))
			}
		})
	}
}
