package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// script is a handler that returns a given result and records its calls.
type script struct {
	mu     sync.Mutex
	answer probe.Result
	block  time.Duration // how long an attempt takes; fails if that exceeds the timeout
	at     []time.Time
	closed int
}

func (s *script) Probe(ctx context.Context, _ probe.Target) probe.Result {
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	answer, block := s.answer, s.block
	s.mu.Unlock()
	if block == 0 {
		return answer
	}
	select {
	case <-time.After(block):
		return answer
	case <-ctx.Done():
		return probe.Fail("script.timeout", "%v", ctx.Err())
	}
}

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *script) say(o probe.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = probe.Result{Outcome: o}
}

func (s *script) give(r probe.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = r
}

func (s *script) take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = d
}

func (s *script) attempts() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.at...)
}

func says(o probe.Outcome) *script { return &script{answer: probe.Result{Outcome: o}} }

var (
	startup   = probe.ID{Target: "web", Kind: probe.Startup}
	readiness = probe.ID{Target: "web", Kind: probe.Readiness}
	liveness  = probe.ID{Target: "web", Kind: probe.Liveness}
)

func named(id probe.ID, name string) probe.ID {
	id.Name = name
	return id
}

func with(h probe.Handler) probe.Probe { return probe.Probe{Handler: h, HandlerName: "script"} }

func instance(id string) probe.Instance {
	return probe.Instance{Target: "web", ID: id, Phase: probe.Running, Since: time.Now(), Managed: true}
}

// bubble runs f with a running engine, in virtual time.
func bubble(t *testing.T, c engine.Config, f func(t *testing.T, e *engine.Engine)) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(c)
		running(t, e, func() { f(t, e) })
	})
}

// running runs f while e runs, and then stops e.
func running(t *testing.T, e *engine.Engine, f func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	f()
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func apply(t *testing.T, e *engine.Engine, set probe.Set) engine.Changes {
	t.Helper()
	changes, err := e.Apply(set)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return changes
}

func status(t *testing.T, e *engine.Engine, id probe.ID) engine.Status {
	t.Helper()
	st, ok := e.Status(id)
	if !ok {
		t.Fatalf("there is no probe %v", id)
	}
	return st
}

func want(t *testing.T, e *engine.Engine, id probe.ID, v probe.Verdict) {
	t.Helper()
	if st := status(t, e, id); st.Verdict != v {
		t.Errorf("%v is %v, want %v: %+v", id, st.Verdict, v, st)
	}
}

func TestLivenessFailsAtItsThresholdAndIsHeldUntilAnotherInstance(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		apply(t, e, probe.Set{liveness: with(h)})
		e.Report(instance("a"))
		pass(0)
		want(t, e, liveness, probe.Passing)
		pass(time.Hour)
		want(t, e, liveness, probe.Failing)
		if st := status(t, e, liveness); !st.OnHold || st.WaitReason != verdict.Held || !st.Next.IsZero() {
			t.Errorf("not on hold: %+v", st)
		}
		if n := len(h.attempts()); n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}
		e.Report(instance("b"))
		synctest.Wait()
		want(t, e, liveness, probe.Passing)
		pass(10 * time.Second)
		if n := len(h.attempts()); n != 4 {
			t.Errorf("%d attempts, want one more in a period", n)
		}
	})
}

func TestTheFirstAttemptComesAfterTheInitialDelayAndTheOthersAtTheOffset(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule = probe.Rule{InitialDelay: 3 * time.Second, Period: 10 * time.Second}
		apply(t, e, probe.Set{readiness: p})
		start := time.Now()
		e.Report(instance("a"))
		pass(2 * time.Second)
		if st := status(t, e, readiness); st.WaitReason != verdict.InitialDelay || !st.Next.Equal(start.Add(3*time.Second)) {
			t.Errorf("in the initial delay: %+v", st)
		}
		pass(time.Minute)
		at := h.attempts()
		if first := at[0].Sub(start); first != 3*time.Second {
			t.Errorf("first attempt after %v", first)
		}
		if gap := at[1].Sub(at[0]); gap >= 10*time.Second {
			t.Errorf("second attempt %v after the first, want less than a period", gap)
		}
		for i := range at[2:] {
			if gap := at[i+2].Sub(at[i+1]); gap != 10*time.Second {
				t.Errorf("attempt %d came %v after the one before", i+2, gap)
			}
		}
		if next := status(t, e, readiness).Next; !next.Equal(at[len(at)-1].Add(10 * time.Second)) {
			t.Errorf("next attempt at %v", next)
		}
	})
}

func TestTheOffsetIsTheSameInAnotherEngine(t *testing.T) {
	offset := func() (at time.Time) {
		bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
			time.Sleep(1234 * time.Millisecond) // different start time
			h := says(probe.Success)
			apply(t, e, probe.Set{readiness: with(h)})
			e.Report(instance("a"))
			pass(time.Minute)
			at = h.attempts()[3]
		})
		return at
	}
	a, b := offset(), offset()
	if a.Sub(b)%(10*time.Second) != 0 {
		t.Errorf("offsets differ: %v and %v", a, b)
	}
}

func TestOtherProbesWaitForStartupProbesAndReadinessFollowsAtOnce(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		s1, s2, r, l := says(probe.Failure), says(probe.Success), says(probe.Success), says(probe.Success)
		up := with(s1)
		up.Rule.FailureThreshold = 30
		apply(t, e, probe.Set{named(startup, "one"): up, named(startup, "two"): with(s2), readiness: with(r), liveness: with(l)})
		e.Report(instance("a"))
		pass(25 * time.Second)
		if n := len(r.attempts()) + len(l.attempts()); n != 0 {
			t.Errorf("%d attempts before the start", n)
		}
		if tg, _ := e.Target("web"); tg.Started || tg.Ready || !tg.Live {
			t.Errorf("before the start: %+v", tg)
		}
		if st := status(t, e, readiness); st.WaitReason != verdict.NotStarted || st.Verdict != probe.Failing {
			t.Errorf("before the start: %+v", st)
		}
		s1.say(probe.Success)
		pass(10 * time.Second)
		at := s1.attempts()
		passed := at[len(at)-1]
		if !r.attempts()[0].Equal(passed) {
			t.Errorf("started at %v, readiness %v", passed, r.attempts()[0])
		}
		if tg, _ := e.Target("web"); !tg.Started || !tg.Ready || !tg.Live {
			t.Errorf("after the start: %+v", tg)
		}
		n := len(s1.attempts())
		pass(time.Hour)
		if len(s1.attempts()) != n {
			t.Error("a startup probe went on after it had passed")
		}
	})
}

func TestAnInstanceThatHasStartedStaysStarted(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		s, r := says(probe.Failure), says(probe.Success)
		set := probe.Set{readiness: with(r)}
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Second)
		set[startup] = with(s)
		apply(t, e, set)
		pass(time.Minute)
		if n := len(s.attempts()); n != 0 {
			t.Errorf("a startup probe was made %d times on an instance that had started", n)
		}
		e.Report(instance("b"))
		pass(time.Minute)
		if n := len(s.attempts()); n == 0 {
			t.Error("the next instance's startup probe was never made")
		}
	})
}

func TestProbesReportedBeforeTheyAreAppliedStartAsUsual(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		e.Report(instance("a"))
		pass(time.Second)
		s := says(probe.Failure)
		apply(t, e, probe.Set{startup: with(s), readiness: with(says(probe.Success))})
		if tg, _ := e.Target("web"); tg.Started || len(s.attempts()) != 1 {
			t.Errorf("%+v after %d attempts", tg, len(s.attempts()))
		}
	})
}

func TestAnAttemptThatMayNotBeRetriedIsMadeOnce(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		tries := 0
		busy := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			tries++
			return probe.Result{Reason: "plugin.busy", NoRetry: true}
		})
		apply(t, e, probe.Set{readiness: with(busy)})
		e.Report(instance("a"))
		pass(time.Hour)
		if st := status(t, e, readiness); st.Result.Tries != 1 || uint64(tries) != st.Attempts[probe.Unknown] || tries < 300 {
			t.Errorf("%d tries: %+v", tries, st)
		}
	})
}

func TestAnUnknownOutcomeIsTriedThreeTimesAndDoesNotCount(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		ignore, fail := says(probe.Unknown), says(probe.Unknown)
		strict := with(fail)
		strict.Rule.OnError = probe.ErrorFails
		apply(t, e, probe.Set{named(liveness, "ignore"): with(ignore), named(liveness, "fail"): strict})
		e.Report(instance("a"))
		pass(time.Hour)
		want(t, e, named(liveness, "ignore"), probe.Passing)
		want(t, e, named(liveness, "fail"), probe.Failing)
		st := status(t, e, named(liveness, "ignore"))
		if st.Errors < 300 || st.Attempts[probe.Unknown] != uint64(st.Errors) || st.Result.Tries != 3 {
			t.Errorf("errors are not published: %+v", st)
		}
		if n := len(fail.attempts()); n != 9 {
			t.Errorf("%d tries, want three attempts of three", n)
		}
	})
}

func TestAPanicIsAnUnknownOutcomeAndIsCounted(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{liveness: with(probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { panic("ouch") }))})
		e.Report(instance("a"))
		pass(10 * time.Second)
		st := status(t, e, liveness)
		if st.Result.Reason != "handler.panic" || !strings.Contains(st.Result.Detail, "ouch") || st.Verdict != probe.Passing {
			t.Errorf("got %+v", st)
		}
		if n := e.Stats().Panics; n != 3 {
			t.Errorf("%d panics counted, want one for each try", n)
		}
	})
}

func TestAHandlerThatEndsItsGoroutineIsAnUnknownOutcome(t *testing.T) {
	bubble(t, engine.Config{Concurrency: 1}, func(t *testing.T, e *engine.Engine) {
		h := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			time.Sleep(time.Millisecond)
			runtime.Goexit()
			return probe.Succeed("")
		})
		other := says(probe.Success)
		apply(t, e, probe.Set{liveness: with(h), readiness: with(other)})
		e.Report(instance("a"))
		pass(time.Minute)
		st := status(t, e, liveness)
		if st.Result.Reason != "handler.panic" || st.Verdict != probe.Passing || st.Attempting || st.Attempts[probe.Unknown] < 6 {
			t.Errorf("got %+v", st)
		}
		if n := uint64(len(other.attempts())); n < 6 || e.Stats().Panics != st.Attempts[probe.Unknown] {
			t.Errorf("%d attempts of another probe, %d panics counted", n, e.Stats().Panics)
		}
	})
}

func TestAnAnswerAfterTheTimeoutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			time.Sleep(2 * time.Second) // ignores its context
			return probe.Succeed("")
		})
		if res := engine.Once(t.Context(), with(h)); res.Outcome != probe.Failure || res.Reason != probe.ReasonTimeout || res.Took != 2*time.Second {
			t.Errorf("got %+v", res)
		}
	})
}

func TestAnUnmanagedTargetIsNeverHeld(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		apply(t, e, probe.Set{liveness: with(h)})
		in := instance("static")
		in.Managed = false
		e.Report(in)
		pass(time.Minute)
		want(t, e, liveness, probe.Failing)
		h.say(probe.Success)
		pass(10 * time.Second)
		want(t, e, liveness, probe.Passing)
	})
}

func TestAHoldEndsWhenTheInstanceIsNoLongerManaged(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		apply(t, e, probe.Set{liveness: with(h)})
		in := instance("a")
		e.Report(in)
		pass(time.Minute)
		h.say(probe.Success)
		pass(time.Minute)
		want(t, e, liveness, probe.Failing)
		in.Managed = false
		e.Report(in)
		pass(10 * time.Second)
		want(t, e, liveness, probe.Passing)
	})
}

func TestAnInstanceThatEndsIsNotReady(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h), liveness: with(h)})
		in := instance("a")
		e.Report(in)
		pass(time.Minute)
		ready, _ := e.Watch(readiness)
		if !ready.Passing() {
			t.Error("not ready while it runs")
		}
		in.Phase = probe.Ended
		e.Report(in)
		synctest.Wait()
		n := len(h.attempts())
		pass(time.Minute)
		if len(h.attempts()) != n {
			t.Error("probed although it does not run")
		}
		if tg, _ := e.Target("web"); ready.Passing() || tg.Ready || tg.Started || !tg.Live {
			t.Errorf("after its end: %+v", tg)
		}
		in.Phase = probe.Gone
		e.Report(in)
		if st := status(t, e, liveness); st.WaitReason != verdict.Finished {
			t.Errorf("after its last end: %+v", st)
		}
	})
}

func TestARestartDuringAnAttemptDoesNotLoseTheProbe(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		h.take(time.Hour) // always exceeds the timeout
		p := with(h)
		p.Rule.Timeout = 9 * time.Second
		apply(t, e, probe.Set{readiness: p})
		for i := range 40 { // some of these occur during an attempt
			e.Report(instance(strings.Repeat("b", i+1)))
			time.Sleep(3 * time.Second)
		}
		pass(time.Minute)
		st := status(t, e, readiness)
		if len(st.Instance) != 40 || time.Since(st.ResultAt) > 20*time.Second {
			t.Errorf("lost the probe: %+v", st)
		}
		if e.Stats().Dropped == 0 {
			t.Error("no answer about an earlier instance was dropped")
		}
	})
}

func TestAttemptsThatOverrunSkipRegularTimes(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		h.take(15 * time.Second)
		p := with(h)
		p.Rule.Timeout = 20 * time.Second
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(10 * time.Minute)
		at := h.attempts()
		for i := range at[2:] {
			if gap := at[i+2].Sub(at[i+1]); gap != 20*time.Second {
				t.Errorf("attempts %v apart, want every second regular time", gap)
			}
		}
		if n := e.Stats().Overrun; n < 25 {
			t.Errorf("%d attempts skipped", n)
		}
	})
}

func TestTriggerMakesAnExtraAttempt(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h)})
		if e.Trigger(liveness) {
			t.Error("triggered a probe that is not there")
		}
		e.Trigger(readiness) // no effect: there is no instance
		pass(0)
		if n := len(h.attempts()); n != 0 {
			t.Errorf("%d attempts without an instance", n)
		}
		e.Report(instance("a"))
		pass(time.Minute)
		regular := status(t, e, readiness).Next
		e.Trigger(readiness)
		synctest.Wait()
		at := h.attempts()
		if !at[len(at)-1].Equal(time.Now()) {
			t.Error("no attempt at once")
		}
		if next := status(t, e, readiness).Next; next.Sub(regular)%(10*time.Second) != 0 {
			t.Errorf("the offset moved from %v to %v", regular, next)
		}
	})
}

func TestAnotherInstanceBeginsWithoutAResult(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Failure))
		p.Rule.InitialDelay = time.Minute
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		pass(2 * time.Minute)
		if st := status(t, e, liveness); st.Result.Outcome != probe.Failure || st.ResultAt.IsZero() {
			t.Errorf("got %+v", st)
		}
		e.Report(instance("b"))
		pass(0)
		if st := status(t, e, liveness); st.Result != (probe.Result{}) || !st.ResultAt.IsZero() {
			t.Errorf("the instance before found %+v", st)
		}
	})
}

func TestABusyEngineServesProbesInOrder(t *testing.T) {
	bubble(t, engine.Config{Concurrency: 2}, func(t *testing.T, e *engine.Engine) {
		set := probe.Set{}
		var all []*script
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			h := says(probe.Failure) // attempts of passing probes would be shed
			h.take(400 * time.Millisecond)
			all = append(all, h)
			p := with(h)
			p.Rule.Period = time.Second
			set[named(readiness, name)] = p
		}
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Minute)
		// Two workers have time for 300 attempts of 400 ms: 50 for each probe.
		least, total := 1<<30, 0
		for _, h := range all {
			least, total = min(least, len(h.attempts())), total+len(h.attempts())
		}
		if least < 40 || total < 290 {
			t.Errorf("at least %d attempts of a probe and %d of all", least, total)
		}
		if st := e.Stats(); st.InFlight > 2 || st.Lateness.Count() == 0 {
			t.Errorf("got %+v", st)
		}
	})
}

func TestRunEndsWithItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := engine.New(engine.Config{})
		h := says(probe.Success)
		h.take(time.Hour)
		p := with(h)
		p.Rule.Timeout = 2 * time.Hour
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		pass(time.Second)
		begin := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(begin) != 0 {
			t.Errorf("Run: %v after %v", err, time.Since(begin))
		}
		if st := status(t, e, liveness); st.Attempts != [4]uint64{} {
			t.Errorf("a cancelled attempt counted: %+v", st)
		}
		if h.closed != 1 {
			t.Errorf("the handler was closed %d times", h.closed)
		}
		if err := e.Run(t.Context()); err == nil {
			t.Error("Run twice gave no error")
		}
	})
}

func TestApplyIsAllOrNothing(t *testing.T) {
	e := engine.New(engine.Config{})
	bad := with(says(probe.Success))
	bad.Rule.SuccessThreshold = 2
	_, err := e.Apply(probe.Set{readiness: with(says(probe.Success)), liveness: bad})
	var field *probe.FieldError
	if !errors.As(err, &field) || field.Field != "success_threshold" || !strings.Contains(err.Error(), `"web:liveness"`) {
		t.Errorf("got %v", err)
	}
	if _, ok := e.Status(readiness); ok {
		t.Error("the good half was applied")
	}
	for name, p := range map[string]probe.Probe{
		"no handler":   {},
		"other kind":   {Handler: says(probe.Success), Rule: probe.Rule{Kind: probe.Startup}},
		"other target": {Handler: says(probe.Success), Target: probe.Target{Name: "else"}},
	} {
		if _, err := e.Apply(probe.Set{readiness: p}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
