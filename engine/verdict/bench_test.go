package verdict_test

import (
	"testing"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// BenchmarkStep measures the two events of an attempt: a look, then a count.
func BenchmarkStep(b *testing.B) {
	look, count := lookedStarted(running("a")), attempted(running("a"), probe.Success)
	b.ReportAllocs()
	var s verdict.State
	for n := 0; b.Loop(); n++ {
		if n%2 == 0 {
			s, _ = verdict.Step(readiness, s, look, t0)
		} else {
			s, _ = verdict.Step(readiness, s, count, t0)
		}
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	look, count := lookedStarted(running("a")), attempted(running("a"), probe.Failure)
	var s verdict.State
	allocs := testing.AllocsPerRun(1000, func() {
		s, _ = verdict.Step(readiness, s, look, t0)
		s, _ = verdict.Step(readiness, s, count, t0)
	})
	if allocs != 0 {
		t.Errorf("Step made %v allocations, want 0", allocs)
	}
}
