package restart

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/engine"
)

// BenchmarkApply reapplies 100,000 units without a driver, after calling EffectOfApply.
func BenchmarkApply(b *testing.B) {
	units := map[string]Unit{}
	for i := range 100_000 {
		units[fmt.Sprintf("web[%q]", fmt.Sprint(i))] = Unit{}
	}
	c, err := New(Config{Engine: engine.New(engine.Config{})})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Apply(units); err != nil {
		b.Fatal(err)
	}
	var supervisors sync.WaitGroup
	c.reconcile(&supervisors)
	b.ReportAllocs()
	for b.Loop() {
		if e := c.EffectOfApply(units); e.Units != len(units) {
			b.Fatal(e)
		}
		if err := c.Apply(units); err != nil {
			b.Fatal(err)
		}
		c.reconcile(&supervisors)
	}
}
