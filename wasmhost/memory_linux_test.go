package wasmhost_test

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// The memory of instances, including growth, is returned to the system when they are closed.
func TestMemoryIsReleased(t *testing.T) {
	tier.Slow(t)
	const hoarded = 32 // MB
	hoard := `(func $run (result i32) (local $at i32)
		i32.const 511 memory.grow drop
		loop local.get $at i32.const 1 i32.store local.get $at i32.const 4096 i32.add local.tee $at i32.const 33554432 i32.lt_s br_if 0 end
		unreachable)`
	p := load(t, wasmhost.Config{Module: wat("%s", hoard)})
	h := handler(t, p, nil)
	before := resident()
	for range 4 { // the fifth trap would suspend the probe
		wantResult(t, attempt(t, h, probe.Target{Name: "web"}, plenty), probe.Unknown, "plugin.trap")
	}
	if grown := resident() - before; grown > hoarded {
		t.Errorf("the process has grown by %.0f MB with 4 instances of %d MB", grown, hoarded)
	}
	if memory := p.Stats().Memory; memory >= hoarded<<20 {
		t.Errorf("%d bytes are counted without an instance", memory)
	}
}
