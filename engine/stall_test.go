package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// staller is a handler that stalls the engine's loop with slow steps.
type staller struct{ next atomic.Int64 }

var stallID = probe.ID{Target: "web", Kind: probe.Readiness, Name: "staller"}

func (s *staller) Probe(context.Context, probe.Target) probe.Result { return probe.Succeed("") }

func (s *staller) Step(a *nonblock.Attempt) nonblock.Progress {
	time.Sleep(time.Duration(s.next.Swap(0)))
	a.Result = probe.Succeed("")
	return nonblock.StepDone
}

// stall stalls the engine for a time.
func (s *staller) stall(t *testing.T, e *engine.Engine, d time.Duration) {
	t.Helper()
	s.next.Store(int64(d))
	e.Trigger(stallID)
	pass(d)
	if left := s.next.Load(); left != 0 {
		t.Fatalf("the engine was not stalled")
	}
}

// stallable returns a set of a probe and a staller, which is attempted rarely.
func stallable(id probe.ID, p probe.Probe) (probe.Set, *staller) {
	s := &staller{}
	rare := probe.Probe{Handler: s, HandlerName: "staller", Rule: probe.Rule{Period: probe.MaxDuration}}
	return probe.Set{id: p, stallID: rare}, s
}

func TestAnAttemptThatOverlapsAStallDoesNotFail(t *testing.T) {
	for _, onError := range []probe.OnError{probe.ErrorIgnored, probe.ErrorFails} {
		t.Run(onError.String(), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				h := says(probe.Success)
				p := with(h)
				p.Rule = probe.Rule{Period: 10 * time.Second, Timeout: time.Second, FailureThreshold: 1, OnError: onError}
				set, s := stallable(liveness, p)
				apply(t, e, set)
				e.Report(instance("a"))
				pass(time.Minute)
				h.take(time.Hour)
				e.Trigger(liveness)
				pass(100 * time.Millisecond)
				s.stall(t, e, 5*time.Second)
				pass(time.Second)

				st := status(t, e, liveness)
				if st.Verdict != probe.Passing || st.Result.Reason != "engine.stalled" || st.Result.Outcome != probe.Unknown {
					t.Errorf("got %v by %+v", st.Verdict, st.Result)
				}
				if !strings.Contains(st.Result.Detail, "script.timeout") {
					t.Errorf("the detail %q lacks how the attempt ended", st.Result.Detail)
				}
				pass(20 * time.Second)
				want(t, e, liveness, probe.Failing)
			})
		})
	}
}

// deaf is a handler that responds after some time, regardless of its deadline.
type deaf struct {
	takes  time.Duration
	answer probe.Result
}

func (d deaf) Probe(context.Context, probe.Target) probe.Result {
	time.Sleep(d.takes)
	return d.answer
}

func TestAnAttemptThatOverlapsAStallMaySucceedAfterItsTimeout(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(deaf{2 * time.Second, probe.Succeed("")})
		p.Rule = probe.Rule{Period: time.Minute, Timeout: time.Second, FailureThreshold: 1}
		set, s := stallable(readiness, p)
		apply(t, e, set)
		e.Report(instance("a"))
		s.stall(t, e, 5*time.Second)
		pass(time.Second)
		if st := status(t, e, readiness); st.Attempts != [4]uint64{probe.Success: 1} {
			t.Errorf("got %v by %+v", st.Attempts, st.Result)
		}
	})
}

// The engine was stopped at the deadline. Without the lost time, the response was in time.
func TestASuccessThatIsLateByAStallOnlyCounts(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(deaf{5905 * time.Millisecond, probe.Succeed("")})
		p.Rule = probe.Rule{Period: time.Minute, Timeout: time.Second, FailureThreshold: 1}
		set, s := stallable(readiness, p)
		apply(t, e, set)
		e.Report(instance("a"))
		pass(900 * time.Millisecond) // no notable part of the timeout is left
		s.stall(t, e, 5*time.Second)
		pass(time.Second)
		if st := status(t, e, readiness); st.Attempts != [4]uint64{probe.Success: 1} {
			t.Errorf("got %v by %+v", st.Attempts, st.Result)
		}
	})
}

func TestTimeThatAHandlerKnowsToBeLostCounts(t *testing.T) {
	lost := func(r probe.Result, d time.Duration) probe.Result {
		r.Lost = d
		return r
	}
	timedOut := probe.Fail(probe.ReasonExecTimeout, "")
	for name, c := range map[string]struct {
		answer probe.Result
		want   probe.Outcome
	}{
		"a notable part":         {lost(timedOut, 300*time.Millisecond), probe.Unknown},
		"a small part":           {lost(timedOut, 240*time.Millisecond), probe.Failure},
		"a late success":         {lost(probe.Succeed(""), 300*time.Millisecond), probe.Success},
		"a success that is late": {probe.Succeed(""), probe.Failure},
		"an answer":              {lost(probe.Fail(probe.ReasonExecExit, ""), 400*time.Millisecond), probe.Failure},
		"an exit after a wait":   {lost(probe.Fail(probe.ReasonExecExit, ""), 700*time.Millisecond), probe.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := with(deaf{1100 * time.Millisecond, c.answer})
				p.Rule = probe.Rule{Kind: probe.Readiness, Period: time.Minute, Timeout: time.Second}
				if r := engine.Once(t.Context(), p); r.Outcome != c.want || (r.Outcome == probe.Unknown) != (r.Reason == "engine.stalled") {
					t.Errorf("got %+v", r)
				}
			})
		})
	}
}

func TestAStallThatIsShortBesideTheTimeoutExcusesNothing(t *testing.T) {
	for stall, tries := range map[time.Duration]uint8{900 * time.Millisecond: 1, 2400 * time.Millisecond: 1, 2600 * time.Millisecond: 2} {
		bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
			h := says(probe.Failure)
			h.take(time.Hour)
			p := with(h)
			p.Rule = probe.Rule{Period: time.Minute, Timeout: 10 * time.Second, FailureThreshold: 1}
			set, s := stallable(readiness, p)
			apply(t, e, set)
			e.Report(instance("a"))
			s.stall(t, e, stall)
			pass(40 * time.Second)
			if st := status(t, e, readiness); st.Result.Reason != "script.timeout" || st.Result.Tries != tries {
				t.Errorf("%v of 10 s: got %+v, want %d tries", stall, st.Result, tries)
			}
		})
	}
}

func TestAStalledTryIsTriedAgainUnlessTheEngineIsDegraded(t *testing.T) {
	for _, c := range []struct {
		stall time.Duration
		tries uint8
	}{{500 * time.Millisecond, 2}, {5 * time.Second, 1}} {
		t.Run(c.stall.String(), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				p := with(deaf{c.stall, probe.Fail("deaf.failed", "")})
				p.Rule = probe.Rule{Period: time.Minute, Timeout: time.Second, FailureThreshold: 1}
				set, s := stallable(readiness, p)
				apply(t, e, set)
				e.Report(instance("a"))
				s.stall(t, e, c.stall)
				pass(time.Second)
				if st := status(t, e, readiness); st.Result.Tries != c.tries {
					t.Errorf("%d tries, want %d: %+v", st.Result.Tries, c.tries, st.Result)
				}
			})
		})
	}
}

// deadlines is a handler that records the time until its deadline.
type deadlines struct{ latest atomic.Int64 }

func (d *deadlines) Probe(ctx context.Context, _ probe.Target) probe.Result {
	deadline, _ := ctx.Deadline()
	d.latest.Store(int64(time.Until(deadline)))
	return probe.Succeed("")
}

func TestADegradedEngineGivesAttemptsMoreTime(t *testing.T) {
	for _, c := range []struct {
		period, timeout, want time.Duration
	}{
		{time.Minute, time.Second, 6 * time.Second},
		{4 * time.Second, time.Second, 3500 * time.Millisecond}, // limited by the period
		{time.Second, 5 * time.Second, 5 * time.Second},         // attempts overlap in any case
	} {
		bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
			d := &deadlines{}
			p := with(d)
			p.Rule = probe.Rule{Period: c.period, Timeout: c.timeout}
			set, s := stallable(readiness, p)
			apply(t, e, set)
			e.Report(instance("a"))
			attempt := func() time.Duration {
				e.Trigger(readiness)
				pass(0)
				return time.Duration(d.latest.Load())
			}
			pass(time.Hour)
			if got := time.Duration(d.latest.Load()); got != c.timeout {
				t.Errorf("a healthy engine gives it %v, want %v", got, c.timeout)
			}
			s.stall(t, e, 5*time.Second)
			if got := attempt(); got != c.want {
				t.Errorf("a degraded engine gives it %v, want %v", got, c.want)
			}
			pass(time.Minute)
			if got := attempt(); got != c.timeout {
				t.Errorf("after its recovery the engine gives it %v, want %v", got, c.timeout)
			}
		})
	}
}

// Next to busy programs, a loop is late by some 30 ms again and again, which does not degrade the engine. Twice as much does.
func TestALoopThatIsALittleLateDegradesNoEngine(t *testing.T) {
	for late, want := range map[time.Duration]bool{30 * time.Millisecond: false, 45 * time.Millisecond: false, 90 * time.Millisecond: true} {
		bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
			p := with(says(probe.Failure))
			p.Rule = probe.Rule{Period: time.Second, FailureThreshold: 1}
			set, s := stallable(readiness, p)
			rule := probe.Rule{Period: 200 * time.Millisecond}
			set[stallID] = probe.Probe{Handler: s, HandlerName: "staller", Rule: rule}
			apply(t, e, set)
			e.Report(instance("a"))
			pass(time.Minute)
			for range 100 {
				s.next.Store(int64(late))
				pass(rule.Period)
				if h := e.Health(); !want && (h.Degraded() || h.Err() != nil || e.Doubts(readiness)) {
					t.Fatalf("late by %v five times a second: %+v", late, h)
				}
			}
			if h := e.Health(); h.Degraded() != want {
				t.Errorf("late by %v five times a second: %+v", late, h)
			}
		})
	}
}

func TestTheHealthScoreIsPublished(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		set, s := stallable(readiness, with(says(probe.Success)))
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Minute)
		if h := e.Health(); h != (engine.Health{}) || h.Err() != nil {
			t.Errorf("a healthy engine has %+v", h)
		}
		s.stall(t, e, 3*time.Second)
		h := e.Health()
		if h.Score != 3 || h.Stalls != 1 || h.Stalled != 3*time.Second || !h.Degraded() || h.Err() == nil {
			t.Errorf("after a stall it has %+v", h)
		}
		if got := e.Stats().Health; got != h {
			t.Errorf("Stats has %+v", got)
		}
		pass(10 * time.Second)
		if h := e.Health(); h.Score != 0 || h.Degraded() || h.Err() != nil {
			t.Errorf("after its recovery it has %+v", h)
		}
	})
}

func TestAttemptsThatTheEngineCannotMakeDegradeIt(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(&script{answer: probe.Broken("engine.descriptors", "too many open files")})
		p.Rule = probe.Rule{Period: time.Second}
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(10 * time.Second)
		if h := e.Health(); !h.Degraded() || h.Stalls != 0 {
			t.Errorf("got %+v", h)
		}
	})
}

// keeper is a handler that keeps a connection, and fails after the peer has closed it.
type keeper struct{ closed *atomic.Bool }

func (k keeper) ForProbe() probe.Handler { return k }

func (k keeper) Probe(context.Context, probe.Target) probe.Result {
	if k.closed.Swap(false) {
		return probe.Fail("keeper.closed", "the peer closed the connection")
	}
	return probe.Succeed("")
}

func TestAKeptConnectionThatEndsInAStallDoesNotFail(t *testing.T) {
	for name, c := range map[string]struct {
		stall time.Duration
		want  [4]uint64 // of two attempts
	}{
		"no stall":     {0, [4]uint64{probe.Success: 1, probe.Failure: 1}},
		"a stall":      {500 * time.Millisecond, [4]uint64{probe.Success: 2}}, // it is retried
		"a long stall": {5 * time.Second, [4]uint64{probe.Success: 1, probe.Unknown: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				closed := new(atomic.Bool)
				p := with(keeper{closed})
				p.Rule = probe.Rule{Period: time.Hour, Timeout: time.Second, FailureThreshold: 1}
				set, s := stallable(readiness, p)
				apply(t, e, set)
				e.Report(instance("a"))
				pass(0)
				if c.stall > 0 {
					s.stall(t, e, c.stall)
				}
				closed.Store(true)
				e.Trigger(readiness)
				pass(time.Second)
				if st := status(t, e, readiness); st.Attempts != c.want {
					t.Errorf("the outcomes are %v, want %v: %+v", st.Attempts, c.want, st.Result)
				}
			})
		})
	}
}

func TestAnAttemptThatIsTooSlowFails(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  [4]uint64
		state probe.Verdict
	}{
		"fast":     {100 * time.Millisecond, [4]uint64{probe.Success: 1}, probe.Passing},
		"slow":     {300 * time.Millisecond, [4]uint64{probe.Warning: 1}, probe.Passing},
		"too slow": {600 * time.Millisecond, [4]uint64{probe.Failure: 1}, probe.Failing},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				p := with(deaf{c.takes, probe.Succeed("")})
				p.Rule = probe.Rule{Period: time.Minute, Timeout: time.Second, FailureThreshold: 1, WarnAfter: 200 * time.Millisecond, FailAfter: 500 * time.Millisecond}
				apply(t, e, probe.Set{readiness: p})
				e.Report(instance("a"))
				pass(2 * time.Second)
				if st := status(t, e, readiness); st.Attempts != c.want || st.Verdict != c.state || st.Warned != (c.want[probe.Warning] > 0) {
					t.Errorf("got %v, %v by %+v", st.Attempts, st.Verdict, st.Result)
				}
			})
		})
	}
}

func TestAnAttemptIsNotTooSlowBecauseOfAStall(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(deaf{600 * time.Millisecond, probe.Succeed("")})
		p.Rule = probe.Rule{Period: time.Minute, Timeout: time.Second, FailureThreshold: 1, FailAfter: 200 * time.Millisecond}
		set, s := stallable(readiness, p)
		apply(t, e, set)
		e.Report(instance("a"))
		pass(50 * time.Millisecond)
		s.stall(t, e, 500*time.Millisecond)
		pass(time.Second)
		if st := status(t, e, readiness); st.Attempts != [4]uint64{probe.Success: 1} {
			t.Errorf("got %v by %+v", st.Attempts, st.Result)
		}
	})
}

func TestANonBlockingAttemptIsNotTooSlowBecauseOfItsOwnEngine(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		s := &staller{}
		p := probe.Probe{Handler: s, HandlerName: "staller", Rule: probe.Rule{Period: time.Minute, FailureThreshold: 1, FailAfter: 10 * time.Millisecond}}
		apply(t, e, probe.Set{stallID: p})
		s.next.Store(int64(5 * time.Second))
		e.Report(instance("a"))
		pass(10 * time.Second)
		if st := status(t, e, stallID); s.next.Load() != 0 || st.Attempts != [4]uint64{probe.Success: 1} {
			t.Errorf("got %v by %+v", st.Attempts, st.Result)
		}
	})
}
