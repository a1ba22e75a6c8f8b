package beatprobe

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// daily returns a registry whose target "backup" sends a beat each day, on a machine that was suspended for as long as the test
// says.
func daily(t *testing.T, suspended *time.Duration) (*Registry, *handler) {
	r := NewRegistry()
	r.clock = clock.NewSuspended(func() time.Duration { return *suspended })
	h, err := r.New(Config{Every: 24 * time.Hour, Grace: time.Hour, Token: "correct-horse-battery"})
	if err != nil {
		t.Fatal(err)
	}
	r.Apply(probe.Set{{Target: "backup", Kind: probe.Readiness}: {Handler: h}})
	return r, h.(*handler)
}

func TestABeatThatCameWhileTheMachineWasSuspendedIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended time.Duration
		r, h := daily(t, &suspended)
		beat := func() {
			if err := r.Beat("backup", "correct-horse-battery", netip.Addr{}, Report{Status: OK}); err != nil {
				t.Fatal(err)
			}
		}
		look := func(want probe.Outcome) {
			t.Helper()
			r.look()
			if res := h.Probe(t.Context(), probe.Target{Name: "backup"}); res.Outcome != want {
				t.Errorf("the outcome is %v: %s, want %v", res.Outcome, res.Detail, want)
			}
		}
		beat()
		look(probe.Success)
		run := func(d time.Duration) { // checks for interruptions, as Run does
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(margin) {
				r.look()
			}
		}
		run(20 * time.Hour)
		suspended = 8 * time.Hour // includes the time of the next beat
		look(probe.Unknown)
		run(5 * time.Hour)
		look(probe.Unknown) // 25 hours without the suspension
		run(14 * time.Hour)
		beat() // the next one
		look(probe.Success)
	})
}
