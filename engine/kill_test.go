package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// outage is a handler that fails in a given period.
type outage struct{ from, to time.Time }

func (o *outage) Probe(context.Context, probe.Target) probe.Result {
	if now := time.Now(); now.Before(o.from) || !now.Before(o.to) {
		return probe.Succeed("")
	}
	return probe.Fail("test.down", "down")
}

// fleet is the number of targets with the same probe. Each probe has its own offset.
const fleet = 240

func member(n int, k probe.Kind) probe.ID {
	return probe.ID{Target: fmt.Sprintf("shop/%d", n), Kind: k}
}

// start applies one probe for each target of the fleet, and reports for each an instance that starts now.
func start(t *testing.T, e *engine.Engine, r probe.Rule, h probe.Handler) {
	t.Helper()
	set := probe.Set{}
	for n := range fleet {
		set[member(n, r.Kind)] = probe.Probe{Rule: r, Handler: h}
	}
	apply(t, e, set)
	for n := range fleet {
		e.Report(probe.Instance{Target: member(n, r.Kind).Target, ID: "a", Phase: probe.Running, Since: time.Now(), Managed: true})
	}
}

// failed returns how many probes of the fleet fail, and when the first and the last of them began to fail.
func failed(t *testing.T, e *engine.Engine, k probe.Kind) (n int, first, last time.Time) {
	t.Helper()
	for i := range fleet {
		st := status(t, e, member(i, k))
		if st.Verdict != probe.Failing {
			continue
		}
		if n++; n == 1 || st.Since.Before(first) {
			first = st.Since
		}
		if st.Since.After(last) {
			last = st.Since
		}
	}
	return n, first, last
}

// The kubelet makes the first attempt at a tick, at any time in the first period of a container, and then one per period. It
// therefore kills a container that never responds after threshold-1 to threshold periods, and never one that responds earlier.
func TestInstancesAreKilledWhenTheKubeletKillsThem(t *testing.T) {
	tier.Slow(t)
	const never = time.Hour
	cases := []struct {
		kind      probe.Kind
		period    time.Duration
		threshold int32
		delay     time.Duration
		up        time.Duration // when the target begins to respond
	}{
		{kind: probe.Liveness, period: 10 * time.Second, threshold: 3, up: 17 * time.Second},
		{kind: probe.Liveness, period: 10 * time.Second, threshold: 3, up: 25 * time.Second},
		{kind: probe.Liveness, period: 10 * time.Second, threshold: 3, up: never},
		{kind: probe.Liveness, period: 5 * time.Second, threshold: 1, up: 300 * time.Millisecond},
		{kind: probe.Liveness, period: 5 * time.Second, threshold: 1, up: never},
		{kind: probe.Liveness, period: time.Second, threshold: 2, up: never},
		{kind: probe.Liveness, period: 10 * time.Second, threshold: 3, delay: 7 * time.Second, up: 25 * time.Second},
		{kind: probe.Liveness, period: 10 * time.Second, threshold: 3, delay: 7 * time.Second, up: never},
		{kind: probe.Startup, period: 10 * time.Second, threshold: 3, up: 17 * time.Second},
		{kind: probe.Startup, period: 10 * time.Second, threshold: 3, up: never},
		{kind: probe.Startup, period: 5 * time.Second, threshold: 1, up: 300 * time.Millisecond},
		{kind: probe.Startup, period: time.Second, threshold: 1, delay: 700 * time.Millisecond, up: never},
	}
	for _, c := range cases {
		for _, compatibility := range []probe.Compatibility{probe.Mended, probe.Kubelet} {
			name := fmt.Sprintf("%v %v x %d delay %v up after %v %v", c.kind, c.period, c.threshold, c.delay, c.up, compatibility)
			t.Run(name, func(t *testing.T) {
				bubble(t, engine.Config{Compatibility: compatibility}, func(t *testing.T, e *engine.Engine) {
					begin := time.Now()
					r := probe.Rule{Kind: c.kind, Period: c.period, FailureThreshold: c.threshold, InitialDelay: c.delay}
					start(t, e, r, &outage{begin, begin.Add(c.up)})
					pass(c.delay + time.Duration(c.threshold+1)*c.period)
					n, first, last := failed(t, e, c.kind)
					least := c.delay + time.Duration(c.threshold-1)*c.period
					// The probes whose last attempt precedes the first response of the target.
					want := min(1, max(0, float64(c.up-least)/float64(c.period))) * fleet
					if float64(n) < want*0.5 || float64(n) > want*1.5 {
						t.Errorf("%d of %d killed, want about %.0f", n, fleet, want)
					}
					if n > 0 && (first.Sub(begin) < least || last.Sub(begin) > least+c.period) {
						t.Errorf("killed after %v to %v, want %v to %v", first.Sub(begin), last.Sub(begin), least, least+c.period)
					}
				})
			})
		}
	}
}

func TestAHealthyInstanceIsStartedAndReadyAtOnce(t *testing.T) {
	bubble(t, engine.Config{StartRate: 1e6}, func(t *testing.T, e *engine.Engine) {
		set := probe.Set{}
		for n := range fleet {
			set[member(n, probe.Startup)] = with(says(probe.Success))
			set[member(n, probe.Readiness)] = with(says(probe.Success))
			set[member(n, probe.Liveness)] = with(says(probe.Success))
		}
		apply(t, e, set)
		for n := range fleet {
			e.Report(probe.Instance{Target: member(n, 0).Target, ID: "a", Phase: probe.Running, Since: time.Now(), Managed: true})
		}
		synctest.Wait()
		for n := range fleet {
			if tg, _ := e.Target(member(n, 0).Target); !tg.Started || !tg.Ready {
				t.Fatalf("not ready: %+v", tg)
			}
		}
	})
}

// Triggered attempts can neither fail a probe earlier nor keep it from failing.
func TestTriggeredAttemptsNeitherHastenNorDelayAFailure(t *testing.T) {
	const period, threshold = 10 * time.Second, 3
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		begin := time.Now()
		start(t, e, probe.Rule{Kind: probe.Liveness, Period: period, FailureThreshold: threshold}, &outage{begin, begin.Add(time.Hour)})
		for range threshold * 10 {
			for n := range fleet {
				e.Trigger(member(n, probe.Liveness))
			}
			pass(period / 10)
		}
		n, first, last := failed(t, e, probe.Liveness)
		if least, most := (threshold-1)*period, threshold*period; n != fleet || first.Sub(begin) < least || last.Sub(begin) > most {
			t.Errorf("%d of %d killed after %v to %v, want all after %v to %v", n, fleet, first.Sub(begin), last.Sub(begin), least, most)
		}
	})
}

func TestTheSuccessOfATriggeredAttemptCounts(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		p := with(h)
		p.Rule.Period = time.Hour
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(0)
		want(t, e, readiness, probe.Failing)
		h.say(probe.Success)
		e.Trigger(readiness)
		pass(probe.MinPeriod)
		if st := status(t, e, readiness); st.Verdict != probe.Passing || !st.Extra {
			t.Errorf("got %+v", st)
		}
	})
}

// A target that is down for less than a period never fails because of two attempts, even when a reload moves the attempts.
func TestAnotherPeriodDoesNotBringTwoFailuresTogether(t *testing.T) {
	tier.Slow(t)
	for _, periods := range [][2]time.Duration{{10 * time.Second, 7 * time.Second}, {time.Second, 20 * time.Second}, {20 * time.Second, time.Second}} {
		bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
			before, after := periods[0], periods[1]
			reload := time.Now().Add(3 * max(before, after))
			down := &outage{reload.Add(-after / 2), reload.Add(after/2 - time.Second/10)}
			r := probe.Rule{Kind: probe.Readiness, Period: before, FailureThreshold: 2}
			if before < after {
				r.FailureThreshold = int32(after/before)/2 + 2
			}
			start(t, e, r, down)
			pass(time.Until(reload))
			set := probe.Set{}
			r.Period = after
			for n := range fleet {
				set[member(n, probe.Readiness)] = probe.Probe{Rule: r, Handler: down}
			}
			apply(t, e, set)
			for time.Now().Before(down.to.Add(after)) {
				pass(after / 100)
				if n, _, _ := failed(t, e, probe.Readiness); n > 0 {
					t.Fatalf("%v to %v: %d targets failed", before, after, n)
				}
			}
		})
	}
}

// asking is a handler that stores the function that requests another attempt.
type asking struct {
	*script
	wake func()
}

func (w *asking) ProbeWaking(ctx context.Context, t probe.Target, wake func()) probe.Result {
	w.wake = wake
	return w.Probe(ctx, t)
}

func TestTheFailureOfAnAttemptThatItsHandlerAskedForCountsOncePerPeriod(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &asking{script: says(probe.Success)}
		p := with(h)
		p.Rule = probe.Rule{Period: time.Hour, FailureThreshold: 2}
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		pass(0)
		if n := len(h.attempts()); n != 1 {
			t.Errorf("%d attempts, want one at once", n)
		}
		pass(90 * time.Minute)
		h.say(probe.Failure)
		h.wake()
		pass(time.Second)
		if st := status(t, e, liveness); st.Run != 1 || st.Last != probe.Failure {
			t.Fatalf("the failure does not count: %+v", st)
		}
		woken := time.Now()
		for range 3 {
			h.wake()
			pass(time.Second)
		}
		pass(time.Until(woken.Add(time.Hour - time.Minute)))
		want(t, e, liveness, probe.Passing)
		pass(time.Hour + time.Minute)
		want(t, e, liveness, probe.Failing)
	})
}
