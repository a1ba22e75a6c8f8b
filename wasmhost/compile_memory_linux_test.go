//go:build !race

package wasmhost_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/wasmhost"
)

// The race detector needs several times as much memory as the control group has.

func TestAModuleThatTakesTooMuchToCompileBreaksItsPluginOnly(t *testing.T) {
	if !faulttest.InCgroup(t, faulttest.Memory(110<<20)) {
		return
	}
	good := load(t, wasmhost.Config{Module: wat(idle)})
	bomb, err := wasmhost.Load(wasmhost.Config{Module: manyValues(), AllowUnpinned: true})
	if err != nil {
		t.Fatal(err)
	}
	defer bomb.Close(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	err = bomb.Wait(ctx)
	if err == nil || !strings.Contains(err.Error(), "plugin test: compile: takes more than ") || !strings.Contains(err.Error(), " of memory, half of what is left below the limit /sys/fs/cgroup/") {
		t.Errorf("got %v", err)
	}
	wantResult(t, attempt(t, handler(t, good, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
}
