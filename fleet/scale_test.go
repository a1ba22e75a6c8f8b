package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// With the 2,800 targets of make long, each of two engines has about a thousand shards with targets.
func TestManyShardsAreTakenOverInFewRequests(t *testing.T) {
	tier.Slow(t)
	targets := tier.Pick(300, 300, 2800)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(targets)), start(t, "two", b, w.targets(targets))
		time.Sleep(20 * time.Second)
		if n, m := one.probes(), two.probes(); n+m != targets*3/2 || min(n, m) < targets/2 {
			t.Fatalf("the engines have %d and %d probes", n, m)
		}
		for last := int64(0); two.backend.reads.Load() != last; { // until it has read the records of its shards
			last = two.backend.reads.Load()
			time.Sleep(2 * time.Second)
		}
		before := two.backend.writes.Load()
		time.Sleep(time.Minute)
		if n := two.backend.writes.Load() - before; n > 0 {
			t.Errorf("%d requests of an engine change something while nothing changes", n)
		}
		reads, writes, written := two.backend.reads.Load(), two.backend.writes.Load(), two.backend.written.Load()
		one.kill()
		began := time.Now()
		for two.probes() < targets*3/2 && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		reads, writes, written = two.backend.reads.Load()-reads, two.backend.writes.Load()-writes, two.backend.written.Load()-written
		t.Logf("taken over after %v, by %d requests that read and %d that write %d bytes", took, reads, writes, written)
		if took > coord.DefaultTTL+time.Second {
			t.Errorf("taken over after %v", took)
		}
		if reads > 100 || writes > 100 {
			t.Errorf("%d requests read, and %d write", reads, writes)
		}
	})
}
