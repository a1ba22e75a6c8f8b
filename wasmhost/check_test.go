package wasmhost_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

const idle = `(func $run (result i32) i32.const 1)`

func TestModulesThatBreakTheABIAreRejected(t *testing.T) {
	raw := func(text string) []byte { return withManifest(wattest.Assemble(text)) }
	exports := `(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`
	tests := map[string]struct {
		module []byte
		want   string
	}{
		"a text":                    {[]byte("#!/bin/sh"), "not a WebAssembly module"},
		"a component":               {[]byte("\x00asm\x0d\x00\x01\x00"), "build a core module"},
		"no manifest":               {wattest.Assemble(idle + `(memory 1)` + exports), "no section sonde.plugin"},
		"an unknown function":       {wat(`(import "sonde_v1" "fork" (func (param i32)))` + idle), `imports unknown function "sonde_v1.fork"`},
		"an unknown module":         {wat(`(import "env" "abort" (func))` + idle), `imports unknown function "env.abort"`},
		"other parameters":          {wat(`(import "sonde_v1" "close" (func (param i64) (result i32)))` + idle), `imports function "sonde_v1.close" with wrong parameters`},
		"an imported memory":        {wat(`(import "sonde_v1" "memory" (memory 1))` + idle), `imports "sonde_v1.memory", which is not a function`},
		"no marker":                 {raw(idle + `(memory 1) (export "memory" (memory 0)) (export "sonde_run" (func $run))`), "does not export sonde_abi_v1"},
		"a marker that is memory":   {raw(idle + `(memory 1) (export "memory" (memory 0)) (export "sonde_run" (func $run)) (export "sonde_abi_v1" (memory 0))`), "must be a function or a global"},
		"no run":                    {raw(idle + `(memory 1) (export "memory" (memory 0)) (export "sonde_abi_v1" (func $run))`), "does not export function sonde_run"},
		"a run with parameters":     {wat(`(func $run (param i32) (result i32) i32.const 1)`), "exports sonde_run, which must be a function with"},
		"a run with another result": {wat(`(func $run (result i64) i64.const 1)`), "exports sonde_run, which must be a function with"},
		"no memory":                 {raw(idle + `(export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`), `does not export its memory as "memory"`},
		"two memories":              {wat(`(memory 1) (memory 1)` + idle), "has 2 memories"},
		"too much memory":           {wat(`(memory 513)` + idle), "limits.memory is 32MiB, but the module needs 32832KiB to start"},
		"a table too large":         {wat(`(table 10000000)` + idle), "table of 10000000 elements"},
		"too many tables":           {wat("%s", strings.Repeat(`(table 1)`, 5)+idle), "section 4: 5 entries, at most 4 are allowed"},
		"a shared memory":           {bytes.Replace(wat(`(memory 1 1)`+idle), []byte{5, 4, 1, 1, 1, 1}, []byte{5, 4, 1, 3, 1, 1}, 1), "shared between threads"},
		"a memory of 64 bits":       {bytes.Replace(wat(`(memory 1 1)`+idle), []byte{5, 4, 1, 1, 1, 1}, []byte{5, 4, 1, 5, 1, 1}, 1), "64 bits"},
		"too many exports":          {wat("%s", strings.Repeat(`(export "x" (memory 0))`, 5000)+idle), "section 7: 5003 entries, at most 4096 are allowed"},
		"a type beyond 2.0":         {bytes.Replace(wat("(func $run (result i32) block end i32.const 1)"), []byte{0x02, 0x40}, []byte{0x02, 0x69}, 1), "beyond WebAssembly 2.0"},
		"a section twice":           {append(wat(idle), 1, 1, 0), "section 1 occurs twice"},
		"a truncated section":       {append(wat(idle), 3, 2, 1), "ends too early"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := wasmhost.Load(wasmhost.Config{Name: "redis", Module: test.module})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "plugin redis: ") {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func withManifest(module []byte) []byte {
	module, err := abi.WriteManifest(module, abi.Manifest{Name: "test", ABI: 1})
	if err != nil {
		panic(err)
	}
	return module
}

func TestInvalidCodeIsReportedByWait(t *testing.T) {
	p, err := wasmhost.Load(wasmhost.Config{Module: wat(`(func $run (result i32) i32.add)`)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	if err := p.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "plugin test: compile:") {
		t.Errorf("got %v", err)
	}
	if _, err := p.New(nil); err == nil || !strings.Contains(err.Error(), "compile:") {
		t.Errorf("a handler was made: %v", err)
	}
	if p.Stats().Ready {
		t.Error("it is said to be compiled")
	}
}

func TestErrorsNameTheField(t *testing.T) {
	module := wat(idle)
	file := filepath.Join(t.TempDir(), "test.wasm")
	if err := os.WriteFile(file, module, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	good := wasmhost.Config{Module: module}
	tests := map[string]struct {
		change func(*wasmhost.Config)
		field  string // empty if the configuration is valid
	}{
		"nothing":                     {func(*wasmhost.Config) {}, ""},
		"no source":                   {func(c *wasmhost.Config) { c.Module = nil }, "source"},
		"a module too long":           {func(c *wasmhost.Config) { c.Limits.ModuleSize = 10 }, "source"},
		"a trap that is a success":    {func(c *wasmhost.Config) { c.OnTrap = probe.Success }, "on_trap"},
		"negative memory":             {func(c *wasmhost.Config) { c.Limits.Memory = -1 }, "limits.memory"},
		"too many instances":          {func(c *wasmhost.Config) { c.Limits.Instances = 1 << 20 }, "limits.instances"},
		"half a second of idleness":   {func(c *wasmhost.Config) { c.KeepAlive = &wasmhost.KeepAlive{Idle: 1500 * time.Millisecond} }, "keepalive.idle"},
		"too many keepalive packets":  {func(c *wasmhost.Config) { c.KeepAlive = &wasmhost.KeepAlive{Count: 200} }, "keepalive.count"},
		"too little to compile":       {func(c *wasmhost.Config) { c.Compile.Memory = 1 << 20 }, "compile.memory"},
		"too long to compile":         {func(c *wasmhost.Config) { c.Compile.Time = 2 * time.Hour }, "compile.time"},
		"a grant without a scheme":    {func(c *wasmhost.Config) { c.Grant.Dial = []string{"web:80"} }, "grant.dial"},
		"a pattern of every name":     {func(c *wasmhost.Config) { c.Grant.DNS = []string{"*"} }, "grant.dns"},
		"a cache that others can see": {func(c *wasmhost.Config) { c.CacheDir = open }, "cache_dir"},
		"a cache that is a file":      {func(c *wasmhost.Config) { c.CacheDir = file }, "cache_dir"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := good
			test.change(&c)
			p, err := wasmhost.Load(c)
			if p != nil {
				defer p.Close(context.Background())
			}
			var wrong *probe.FieldError
			switch {
			case test.field == "" && err != nil:
				t.Errorf("got %v", err)
			case test.field != "" && (!errors.As(err, &wrong) || wrong.Field != test.field):
				t.Errorf("got %v, want an error about %s", err, test.field)
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(wat(idle))
	f.Add(wat(`(table 1) (memory 1 2)` + idle))
	f.Add(wat(importNet + idle))
	f.Fuzz(func(t *testing.T, module []byte) {
		p, err := wasmhost.Load(wasmhost.Config{Module: module, Limits: wasmhost.Limits{Memory: 1 << 20}})
		if err != nil {
			return
		}
		defer p.Close(context.Background())
		if p.Wait(t.Context()) != nil {
			return
		}
		h, err := p.New(nil)
		if err != nil {
			return
		}
		attempt(t, h, probe.Target{Name: "web"}, 100*time.Millisecond)
	})
}

// An image contains no tables and no references, and passive segments can be dropped.
func TestAModuleWhoseStateCannotBeCopiedIsRejected(t *testing.T) {
	for text, want := range map[string]string{
		`(table 1) (func $run (result i32) ref.null func i32.const 1 table.grow 0)`:       "function 0 changes a table, which cannot be undone",
		`(table 1) (elem 0 $run) (func $run (result i32) ref.func $run drop i32.const 1)`: "function 0 makes a reference to a function, which cannot be undone",
		`(table 1) (elem 0 $run) (func $run (result i32) i32.const 0 call_indirect)`:      "",
	} {
		p, err := wasmhost.Load(wasmhost.Config{Module: wat("%s", text)})
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
			t.Errorf("%s: got %v", text, err)
		}
		if err == nil {
			p.Close(context.Background())
		}
	}
}

func TestInspectDescribesAModule(t *testing.T) {
	got, err := wasmhost.Inspect(wat(`(import "env" "abort" (func)) (import "sonde_v1" "close" (func (param i32) (result i32))) (memory 1 3)` + idle))
	want := wasmhost.ModuleInfo{
		Imports: []string{"env.abort", "sonde_v1.close"}, Exports: []string{"memory", "sonde_abi_v1", "sonde_run"}, Memory: 64 << 10, MaxMemory: 192 << 10,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if _, err := wasmhost.Inspect([]byte("#!/bin/sh")); err == nil || err.Error() != "not a WebAssembly module" {
		t.Errorf("a text gives %v", err)
	}
}

// If a module needs more memory than its limit to initialize itself, that is not a trap of the plugin: the error names
// the limit.
func TestAModuleThatNeedsMoreMemoryNamesTheLimit(t *testing.T) {
	for name, c := range map[string]struct{ limit, want string }{"enough": {"128MiB", ""}, "too little": {"1MiB", "limits.memory is 1MiB, but initializing the module takes more"}} {
		t.Run(name, func(t *testing.T) {
			limit, _ := bytesize.Parse(c.limit)
			module := wat(`(memory 1) (func $i i32.const 1000 memory.grow i32.const -1 i32.eq if unreachable end) (export "_initialize" (func $i))` + idle)
			p := load(t, wasmhost.Config{Name: "redis", Module: module, Limits: wasmhost.Limits{Memory: int64(limit)}})
			h, err := p.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			if r := h.Probe(t.Context(), probe.Target{Name: "web"}); (r.Outcome == probe.Success) != (c.want == "") || !strings.Contains(r.Detail, c.want) {
				t.Errorf("got %+v, want %q", r, c.want)
			}
		})
	}
}
