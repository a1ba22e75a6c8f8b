package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// several returns n readiness probes of "web", each with a handler that takes some time to respond.
func several(n int, prefix string, o probe.Outcome, takes, timeout time.Duration) (probe.Set, []*script) {
	set := probe.Set{}
	var all []*script
	for i := range n {
		h := says(o)
		h.take(takes)
		p := with(h)
		p.Rule = probe.Rule{Period: time.Second, Timeout: timeout}
		set[named(readiness, prefix+fmt.Sprint(i))] = p
		all = append(all, h)
	}
	return set, all
}

func total(all []*script) (n int) {
	for _, h := range all {
		n += len(h.attempts())
	}
	return n
}

func TestALateEngineShedsAttemptsOfPassingProbes(t *testing.T) {
	// One goroutine has time for 10 attempts of 100 ms in a second.
	bubble(t, engine.Config{Concurrency: 1}, func(t *testing.T, e *engine.Engine) {
		set, passing := several(8, "p", probe.Success, 100*time.Millisecond, time.Second)
		more, failing := several(4, "f", probe.Failure, 100*time.Millisecond, time.Second)
		for id, p := range more {
			set[id] = p
		}
		apply(t, e, set)
		e.Report(instance("a"))
		pass(10 * time.Second)
		p, f := total(passing), total(failing)
		pass(time.Minute)
		p, f = total(passing)-p, total(failing)-f
		if perProbe := f / 4; perProbe < 58 {
			t.Errorf("failing probes were attempted %d times a minute, want about 60", perProbe)
		}
		if perProbe := p / 8; perProbe < 28 || perProbe > 55 {
			t.Errorf("passing probes were attempted %d times a minute, want 30 to 55", perProbe)
		}
		if st := e.Stats(); st.Shed == 0 || st.Busy < 0 {
			t.Errorf("got %+v", st)
		}
	})
}

func TestAnEngineThatIsOnTimeShedsNothing(t *testing.T) {
	bubble(t, engine.Config{Concurrency: 1}, func(t *testing.T, e *engine.Engine) {
		set, passing := several(4, "p", probe.Success, 10*time.Millisecond, time.Second)
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Minute)
		if n := total(passing); n < 4*59 || e.Stats().Shed != 0 {
			t.Errorf("%d attempts, %d shed", n, e.Stats().Shed)
		}
	})
}

func TestHangingTargetsDoNotDelayOthers(t *testing.T) {
	bubble(t, engine.Config{Concurrency: 4}, func(t *testing.T, e *engine.Engine) {
		set, hanging := several(20, "h", probe.Success, time.Hour, 900*time.Millisecond)
		more, healthy := several(3, "z", probe.Success, time.Millisecond, 900*time.Millisecond)
		for id, p := range more {
			set[id] = p
		}
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Minute) // all that hang have failed once
		before, late := total(healthy), e.Stats()
		pass(time.Minute)
		if n := total(healthy) - before; n < 3*59 {
			t.Errorf("%d attempts of healthy probes in a minute, want 180", n)
		}
		if total(hanging) == 0 || late.Shed != e.Stats().Shed {
			t.Errorf("%d attempts of healthy probes were shed", e.Stats().Shed-late.Shed)
		}
	})
}

func TestANewTargetDoesNotWaitForThoseThatHang(t *testing.T) {
	for name, handler := range map[string]func(*script) probe.Handler{
		"goroutines": func(s *script) probe.Handler { return s },
		"steps":      func(s *script) probe.Handler { return blocking{s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{Concurrency: 16}, func(t *testing.T, e *engine.Engine) {
				set, _ := several(600, "h", probe.Success, time.Hour, 900*time.Millisecond)
				for id, p := range set {
					set[id] = served(p, handler)
				}
				apply(t, e, set)
				e.Report(instance("a"))
				pass(5 * time.Minute) // each of them has failed
				add := func(prefix, address string) (all []*script) {
					more, all := several(2, prefix, probe.Success, time.Millisecond, 900*time.Millisecond)
					for id, p := range more {
						p = served(p, handler)
						p.Target.Address = address
						set[id] = p
					}
					apply(t, e, set)
					pass(2 * time.Second)
					return all
				}
				if n := total(add("z", "192.0.2.1")); n < 4 {
					t.Errorf("%d attempts of two new targets in two periods, want 4", n)
				}
				if n := total(add("h", "192.0.2.2")); n < 4 { // two that hung
					t.Errorf("%d attempts of two targets with new addresses in two periods, want 4", n)
				}
			})
		})
	}
}

// blocking is a non-blocking handler whose attempts turn out to need a goroutine.
type blocking struct{ *script }

func (blocking) Step(*nonblock.Attempt) nonblock.Progress { return nonblock.StepBlock }

// unable is a slow handler with the outcome Unknown.
type unable struct{ *script }

func (u unable) Probe(ctx context.Context, t probe.Target) probe.Result {
	u.script.Probe(ctx, t)
	return probe.Broken("test.unable", "the attempt could not be made")
}

func TestUnprovenTargetsDoNotDelayThoseThatAnswer(t *testing.T) {
	for name, handler := range map[string]func(*script) probe.Handler{
		"goroutines": func(s *script) probe.Handler { return s },
		"steps":      func(s *script) probe.Handler { return blocking{s} },
		"unknown": func(s *script) probe.Handler {
			if s.block > time.Second {
				return unable{s}
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{Concurrency: 4}, func(t *testing.T, e *engine.Engine) {
				set, healthy := several(3, "z", probe.Success, time.Millisecond, 900*time.Millisecond)
				more, hanging := several(200, "h", probe.Success, time.Hour, 900*time.Millisecond)
				for id, p := range set {
					set[id] = served(p, handler)
				}
				apply(t, e, set)
				e.Report(instance("a"))
				pass(10 * time.Second)
				for id, p := range more {
					set[id] = served(p, handler)
				}
				apply(t, e, set)
				before := total(healthy)
				pass(30 * time.Second) // not every other one has been attempted yet
				if n := total(healthy) - before; n < 3*29 {
					t.Errorf("%d attempts of healthy probes in half a minute, want 90", n)
				}
				if n := total(hanging); n < 80 || n > 130 {
					t.Errorf("%d attempts of those that hang, want 3 at a time", n)
				}
			})
		})
	}
}

// served wraps the script of a probe in another handler.
func served(p probe.Probe, handler func(*script) probe.Handler) probe.Probe {
	if s, ok := p.Handler.(*script); ok {
		p.Handler = handler(s)
	}
	return p
}
