//go:build linux

package faults

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// brief are the faults that are tested without -long.
var brief = []string{"descriptors", "packets dropped"}

func TestAFaultOfTheProberChangesNoVerdict(t *testing.T) {
	w := newWorld(t)
	sonde, plugin := build(t, t.TempDir())
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			if !*long && !slices.Contains(brief, f.name) {
				t.Skip("with -long only")
			}
			w.start(t, sonde, plugin, f).survive(t, f)
		})
	}
}

// survive injects a fault, and real failures into one target of each handler. Only the
// verdicts of these may change, and only their instances may be restarted.
func (p *prober) survive(t *testing.T, f fault) {
	before, err := p.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	usual := p.failReally(t, 0, nil)
	heal := sync.OnceFunc(f.inject(t, p))
	defer heal()
	start := time.Now()
	var found time.Duration
	if !f.blind {
		found = p.failReally(t, 2, f.hides)
	}
	time.Sleep(max(0, f.lasts-time.Since(start))) // the fault goes on in real time
	heal()
	if f.blind {
		found = p.failReally(t, 2, nil)
	}
	p.settle(t)
	after, err := p.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, tg := range p.targets {
		was, is := before[tg.name], after[tg.name]
		if p.isBroken(tg) || was.changes == is.changes && was.restarts == is.restarts {
			continue
		}
		if changed++; changed <= 5 {
			t.Errorf("%s is healthy, and its verdict or instance has changed %d times, with %d restarts; it is %v: %s\n%s",
				tg.name, is.changes-was.changes, is.restarts-was.restarts, is.verdict, is.result, p.whyFailed(tg))
		}
	}
	t.Logf("%d of %d healthy targets changed; real failures were published after %v, usually %v", changed, len(p.targets)-len(p.broken()), found, usual)
	if limit := 2 * (period + timeout); found > limit {
		t.Errorf("real failures were published after %v, want at most %v", found, limit)
	}
}

// broken are the targets that failReally breaks, two of each handler and kind.
func (p *prober) broken() (all []target) {
	for _, tg := range p.targets {
		if p.isBroken(tg) {
			all = append(all, tg)
		}
	}
	return all
}

// isBroken reports whether failReally breaks a target.
func (p *prober) isBroken(tg target) bool { return p.place(tg) < 4 }

// place is the number of a target among those with its handler.
func (p *prober) place(tg target) int {
	return tg.number - slices.IndexFunc(p.targets, func(other target) bool { return other.handler == tg.handler })
}

// failReally breaks the target of each handler at a place, and returns how long it
// took until all of them were published as failing. Those of a hidden handler cannot be
// seen meanwhile.
func (p *prober) failReally(t *testing.T, place int, hidden []string) time.Duration {
	t.Helper()
	breaks := func(tg target) bool { return p.place(tg) == place && !slices.Contains(hidden, tg.handler) }
	for _, tg := range p.broken() {
		if breaks(tg) {
			p.breakTarget(t, tg)
		}
	}
	return p.waitFor(t, "real failures to be published", func(tg target, s state) bool {
		return !breaks(tg) || s.verdict == probe.Failing
	})
}

// settle waits until each healthy target has had two further attempts.
func (p *prober) settle(t *testing.T) {
	t.Helper()
	before, err := p.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.waitFor(t, "further attempts", func(tg target, s state) bool {
		return p.isBroken(tg) || s.attempts >= before[tg.name].attempts+2
	})
}
