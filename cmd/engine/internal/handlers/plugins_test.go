package handlers

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// A command that only validates a configuration finds errors even if no module is in the cache.
func TestSettingsAreCheckedWithAColdCache(t *testing.T) {
	const run = `(memory 1) (func $run (result i32) i32.const 1)
		(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`
	for name, test := range map[string]struct {
		wat   string
		wait  wait
		valid bool
	}{
		"no check":                 {run, WaitForChecks, true},
		"no check, for attempts":   {run, WaitForAll, true},
		"no check, not waited for": {run, WaitForNone, true},
		"accepted":                 {run + `(func $ok (result i32) i32.const 0) (export "sonde_configure" (func $ok))`, WaitForChecks, true},
		"rejected":                 {run + `(export "sonde_configure" (func $run))`, WaitForChecks, false},
		"code that is not valid": {`(memory 1) (func $run (result i32) i64.const 1)
			(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`, WaitForChecks, false},
		"rejected, for attempts": {run + `(export "sonde_configure" (func $run))`, WaitForAll, false},
	} {
		t.Run(name, func(t *testing.T) {
			module, err := abi.WriteManifest(wattest.Assemble(test.wat), abi.Manifest{Name: "steady", ABI: 1})
			if err != nil {
				t.Fatal(err)
			}
			noCache := ""
			p := NewPlugins(t.Context(), test.wait, Silent)
			t.Cleanup(p.Close)
			h, err := p.Handler(config.Engine{PluginCache: &noCache}, config.Plugin{Name: "steady"}, module)
			var made probe.Handler
			if err == nil {
				made, err = h.Make(nil, config.Context{})
			}
			if (err == nil) != test.valid {
				t.Errorf("the error is %v", err)
			}
			if c, ok := made.(io.Closer); ok && err == nil {
				c.Close()
			}
		})
	}
}

// Whether a module can be compiled may depend on the current resources of the machine.
func TestAnUnusableModuleIsLoadedAgainByTheNextReload(t *testing.T) {
	module, err := abi.WriteManifest(wattest.Assemble(`(memory 1) (func $run (result i32) i32.const 1)
		(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`), abi.Manifest{Name: "steady", ABI: 1})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "steady.wasm")
	if err := os.WriteFile(file, module, 0o600); err != nil {
		t.Fatal(err)
	}
	noCache := ""
	reload := func(previous *Plugins) (*Plugins, config.Handler) {
		p := NewPlugins(t.Context(), WaitForAll, Silent)
		p.Previous = previous
		h, err := p.Handler(config.Engine{PluginCache: &noCache}, config.Plugin{Name: "steady", Source: file}, module)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p, h
	}
	usable, first := reload(nil)
	used, second := reload(usable)
	usable.Release(used)
	if second.Revision != first.Revision {
		t.Error("a module that can be used was loaded again")
	}
	for range 2 {
		unusable := used
		unusable.Close() // stands for a module that could not be compiled
		before := second.Revision
		if used, second = reload(unusable); second.Revision == before {
			t.Error("handlers of an unusable module go on")
		}
		unusable.Release(used)
	}
}
