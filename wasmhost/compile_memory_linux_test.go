//go:build !race

package wasmhost_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// Excluded under the race detector, which needs several times the memory of the control group.

func TestAModuleThatTakesTooMuchToCompileBreaksItsPluginOnly(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Memory(80<<20)) {
		return
	}
	t.Cleanup(wasmhost.SetRetryPause(time.Millisecond))
	good := load(t, wasmhost.Config{Module: wat(idle)})
	bomb := loadLater(t, wasmhost.Config{Module: manyValues()})
	wantShortage(t, bomb, " of memory, half of the memory left below the limit /sys/fs/cgroup/")
	if stats := bomb.Stats(); stats.Ready {
		t.Errorf("got %+v", stats)
	}
	wantResult(t, attempt(t, handler(t, good, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
}
