//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// guest is a plugin to measure. Its targets have a port named p.
type guest struct {
	file     string         // its module, relative to the root of the repository; empty: assembled from text
	make     string         // the make target that builds the file
	text     string         // of the module
	settings map[string]any // of its handler
}

// Texts of guests. Each has a function $run, which is exported as sonde_run.
const (
	// exchange sends PING and expects seven bytes, like the built-in handler that it is compared with.
	exchange = `(import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "read" (func $read (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "write" (func $write (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "close" (func $close (param i32) (result i32)))
		(memory 1) (data 0 "tcp:p") (data 32 "PING\r\n")
		(func $run (result i32) (local $fd i32)
		i32.const 0 i32.const 3 i32.const 3 i32.const 2 i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $dial local.set $fd
		local.get $fd i32.const 32 i32.const 6 call $write drop
		local.get $fd i32.const 64 i32.const 16 call $read i32.const 7 i32.ne if i32.const 3 return end
		local.get $fd call $close drop i32.const 1)`

	loop = `(memory 1) (func $run (result i32) loop br 0 end i32.const 1)`

	// recursion has no loop, and takes hours.
	fibonacci = `(memory 1) (func $fib (param $n i32) (result i32) local.get $n i32.const 2 i32.lt_s if i32 local.get $n else
		local.get $n i32.const 1 i32.sub call $fib local.get $n i32.const 2 i32.sub call $fib i32.add end)`
	recursion = fibonacci + `(func $run (result i32) i32.const 60 call $fib)`

	hostCalls = `(import "sonde_v1" "clock" (func $clock (param i32) (result i64)))
		(memory 1) (func $run (result i32) loop i32.const 1 call $clock drop br 0 end i32.const 1)`

	// configure reads the clock with four digits of its settings, {"port":"1234"}, as an argument, which identifies the call and
	// thus its start time.
	configure = `(import "sonde_v1" "input" (func $input (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "clock" (func $clock (param i32) (result i64)))` + fibonacci + `
		(func $run (result i32) i32.const 1)
		(func $configure (result i32)
			i32.const 1 i32.const 0 i32.const 100 call $input drop
			i32.const 9 i32.load call $clock drop
			i32.const 60 call $fib) (export "sonde_configure" (func $configure))`
)

// pong is the response of the guests' target.
const pong = "+PONG\r\n"

// guests returns the plugins to measure, by name.
func guests() map[string]guest {
	line := map[string]any{"port": "p", "send": "PING", "expect": "+PONG"}
	script := map[string]any{
		"file": "ping.star", "line": 1, "column": 1,
		"source": `
def attempt(t):
    c = t.dial("tcp", t.port("p"))
    c.write("PING\r\n")
    if c.read_line() != "+PONG":
        return t.fail("ping.answer", "another answer")
    return t.succeed("pong")
`}
	return map[string]guest{
		"small":           {text: exchange},
		"c":               {file: "examples/wasm-probes/line-c/line.wasm", make: "wasm", settings: line},
		"as":              {file: "examples/wasm-probes/line-as/line.wasm", make: "wasm", settings: line},
		"rust":            {file: "examples/wasm-probes/line-rust/line.wasm", make: "wasm", settings: line},
		"go":              {file: "examples/wasm-probes/redis/redis.wasm", make: "wasm", settings: map[string]any{"port": "p"}},
		"grpc":            {file: "examples/wasm-probes/grpc/grpc.wasm", make: "wasm", settings: map[string]any{"port": "p"}},
		"script":          {file: "bin/starlark.wasm", make: "build", settings: map[string]any{"script": script}},
		"loop":            {text: loop},
		"recursion":       {text: recursion},
		"host calls":      {text: hostCalls},
		"sonde_configure": {text: configure},
	}
}

// module returns a guest's module.
func (g guest) module(root string) ([]byte, error) {
	if g.file != "" {
		module, err := os.ReadFile(filepath.Join(root, g.file))
		if os.IsNotExist(err) {
			err = fmt.Errorf("%s is not built: run make %s", g.file, g.make)
		}
		return module, err
	}
	module := wattest.Assemble(g.text + `(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`)
	return abi.WriteManifest(module, abi.Manifest{Name: "bench", ABI: 1, Settings: []abi.Setting{{Name: "port", Type: abi.TypeString}}})
}
