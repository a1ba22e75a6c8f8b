package handlers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Whether a module can be compiled may depend on what the machine has just now.
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
