package engine_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

var (
	refused  = probe.Observation{Outcome: probe.Failure, Reason: probe.ReasonTCPRefused, Detail: "connection refused"}
	answered = probe.Observation{Outcome: probe.Success}
)

// observe reports the same observation to the engine n times.
func observe(e *engine.Engine, o probe.Observation, n int) {
	for range n {
		e.Observe(readiness, o)
	}
	synctest.Wait()
}

// observing runs f with an engine whose target web is ready, some time after an attempt.
func observing(t *testing.T, f func(t *testing.T, e *engine.Engine, h *script)) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h)}) // period 10 s, timeout 1 s, failure threshold 3
		e.Report(instance("a"))
		pass(time.Minute)
		pass(time.Until(status(t, e, readiness).Next.Add(-5 * time.Second)))
		f(t, e, h)
	})
}

func gateway(t *testing.T, e *engine.Engine, want probe.GatewayState) engine.TargetStatus {
	t.Helper()
	st, _ := e.Target("web")
	if st.Gateway != want || (st.Ejection != nil) != (want == probe.GatewayDown && st.Ready) {
		t.Errorf("got %v, ejection %+v, want %v", st.Gateway, st.Ejection, want)
	}
	if ejected := e.Stats().Ejected; (ejected == 1) != (st.Ejection != nil) || ejected > 1 {
		t.Errorf("%d targets are ejected, and the ejection is %+v", ejected, st.Ejection)
	}
	checkGauge(t, e, "web", nil)
	return st
}

func TestFailuresThatAGatewayObservesEjectTheTargetAndNeverCount(t *testing.T) {
	observing(t, func(t *testing.T, e *engine.Engine, h *script) {
		h.say(probe.Failure)
		before, attempts := status(t, e, readiness), len(h.attempts())
		changes := e.SubscribeTargets()
		defer changes.Close()
		known := polled{}
		known.poll(changes)

		observe(e, refused, 1)
		if len(h.attempts()) != attempts+1 {
			t.Error("the first failure made no attempt at once")
		}
		observe(e, refused, engine.EjectAfter-2)
		gateway(t, e, probe.GatewayReady)
		observe(e, answered, 1)
		observe(e, refused, engine.EjectAfter-1)
		gateway(t, e, probe.GatewayReady)
		observe(e, refused, 1)
		st := gateway(t, e, probe.GatewayDown)
		want := engine.Ejection{
			Probe: readiness, Since: time.Now(), Until: time.Now().Add(3*10*time.Second + time.Second),
			Reason: probe.ReasonTCPRefused, Detail: "connection refused",
		}
		if st.Ejection == nil || *st.Ejection != want || !st.Ready || !st.Decided || st.State != probe.StateReady {
			t.Errorf("got %+v, want %+v; %+v", st.Ejection, want, st)
		}
		if known.poll(changes); known["web"].Gateway != probe.GatewayDown || known["web"].Ejection == nil {
			t.Errorf("subscribers know %+v", known["web"])
		}
		observe(e, refused, 1000)
		after := status(t, e, readiness)
		if after.Verdict != before.Verdict || after.Changes != before.Changes || after.Run > before.Run {
			t.Errorf("the verdict was %+v, is %+v", before, after)
		}
		h.say(probe.Success)
		pass(10 * time.Second) // a regular attempt
		gateway(t, e, probe.GatewayReady)
		known.poll(changes)
		if known["web"].Gateway != probe.GatewayReady {
			t.Errorf("subscribers know %+v", known["web"])
		}
		observe(e, refused, engine.EjectAfter-1)
		gateway(t, e, probe.GatewayReady) // the count starts over
	})
}

func TestASuccessfulAttemptEndsAnEjectionSoon(t *testing.T) {
	observing(t, func(t *testing.T, e *engine.Engine, h *script) {
		observe(e, refused, 1) // triggers an attempt, which succeeds
		observe(e, refused, engine.EjectAfter-1)
		gateway(t, e, probe.GatewayDown)
		pass(time.Second) // a tenth of the period
		gateway(t, e, probe.GatewayReady)
	})
}

func TestAnAttemptThatBeganBeforeAnEjectionDoesNotEndIt(t *testing.T) {
	observing(t, func(t *testing.T, e *engine.Engine, h *script) {
		h.take(900 * time.Millisecond)
		observe(e, refused, 1)
		pass(100 * time.Millisecond)
		observe(e, refused, engine.EjectAfter-1)
		pass(800 * time.Millisecond) // the attempt has finished
		gateway(t, e, probe.GatewayDown)
		pass(time.Second) // one more attempt
		gateway(t, e, probe.GatewayReady)
	})
}

func TestAnEjectionEnds(t *testing.T) {
	moved := with(says(probe.Unknown))
	moved.Target.Address = "10.0.0.2"
	for name, c := range map[string]struct {
		end  func(t *testing.T, e *engine.Engine, h *script)
		want probe.GatewayState
	}{
		"when its time is over": {func(_ *testing.T, _ *engine.Engine, h *script) { pass(31*time.Second - time.Nanosecond) }, probe.GatewayDown},
		"after its time":        {func(_ *testing.T, _ *engine.Engine, h *script) { pass(31 * time.Second) }, probe.GatewayReady},
		"when the probe fails": {func(_ *testing.T, _ *engine.Engine, h *script) {
			h.say(probe.Failure)
			pass(time.Minute)
			h.say(probe.Success)
			pass(10 * time.Second)
		}, probe.GatewayReady},
		"with another instance": {func(_ *testing.T, e *engine.Engine, h *script) {
			h.say(probe.Success)
			e.Report(instance("b"))
			pass(0)
		}, probe.GatewayReady},
		"with another address": {func(t *testing.T, e *engine.Engine, h *script) { apply(t, e, probe.Set{readiness: moved}) }, probe.GatewayUndecided},
		"with another handler": {func(t *testing.T, e *engine.Engine, h *script) {
			apply(t, e, probe.Set{readiness: with(says(probe.Unknown))})
		}, probe.GatewayReady},
	} {
		t.Run(name, func(t *testing.T) {
			observing(t, func(t *testing.T, e *engine.Engine, h *script) {
				h.say(probe.Unknown)
				observe(e, refused, engine.EjectAfter)
				gateway(t, e, probe.GatewayDown)
				c.end(t, e, h)
				gateway(t, e, c.want)
			})
		})
	}
}

// A target counts as ejected once, no matter which of its probes gateways name, and no longer after it was removed.
func TestEjectedTargetsAreCounted(t *testing.T) {
	second := probe.ID{Target: "web", Kind: probe.Readiness, Name: "second"}
	other := probe.ID{Target: "other", Kind: probe.Readiness}
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		set := probe.Set{readiness: with(h), second: with(h), other: with(h)}
		apply(t, e, set)
		e.Report(instance("a"))
		e.Report(probe.Instance{Target: "other", ID: "b", Phase: probe.Running, Since: time.Now()})
		pass(time.Minute)
		h.say(probe.Unknown)
		for i, c := range []struct {
			do      func()
			ejected int
			total   uint64
		}{
			{func() { observe(e, refused, engine.EjectAfter) }, 1, 1},
			{func() {
				for range engine.EjectAfter {
					e.Observe(second, refused)
				}
			}, 1, 2},
			{func() {
				for range engine.EjectAfter {
					e.Observe(other, refused)
				}
			}, 2, 3},
			{func() { delete(set, second); apply(t, e, set) }, 2, 3},
			{func() { delete(set, readiness); apply(t, e, set) }, 1, 3},
			{func() { pass(time.Hour) }, 0, 3},
		} {
			c.do()
			pass(0)
			if st := e.Stats(); st.Ejected != c.ejected || st.Ejections != c.total {
				t.Errorf("step %d: %d targets are ejected, after %d ejections; want %d and %d", i, st.Ejected, st.Ejections, c.ejected, c.total)
			}
		}
	})
}

func TestNothingIsObservedOfATargetThatIsNotReady(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		if e.Observe(readiness, refused) {
			t.Error("observed a probe that is not there")
		}
		h := says(probe.Failure)
		apply(t, e, probe.Set{readiness: with(h)})
		observe(e, refused, 100)
		gateway(t, e, probe.GatewayUndecided)
		e.Report(instance("a"))
		pass(time.Hour)
		attempts := len(h.attempts())
		observe(e, refused, 100)
		pass(time.Millisecond)
		if gateway(t, e, probe.GatewayDown); len(h.attempts()) != attempts {
			t.Error("observations made an attempt of a probe that fails")
		}
		h.say(probe.Success)
		pass(time.Minute)
		observe(e, probe.Observation{}, 100)
		gateway(t, e, probe.GatewayReady)
	})
}

func TestEjectionsAreLoggedAndRemembered(t *testing.T) {
	var log bytes.Buffer
	bubble(t, engine.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Redact: func(s string) string { return strings.ReplaceAll(s, "secret", "***") },
	}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: with(says(probe.Success))})
		e.Report(instance("a"))
		pass(time.Minute)
		ejected := time.Now()
		observe(e, probe.Observation{Outcome: probe.Failure, Detail: "the secret\x1b[0m"}, engine.EjectAfter)
		pass(time.Minute)
		past := e.Records().History("web")
		want := engine.Transition{State: probe.StateReady, Kind: probe.Readiness, Ejected: true, Reason: "gateway.failures", Detail: "the ***\ufffd[0m"}
		if len(past) != 2 || !past[0].At.Equal(ejected) || !past[1].Readmitted || past[1].Ejected {
			t.Fatalf("the history is %+v", past)
		}
		if past[0].At, past[0].Seq = (time.Time{}), 0; past[0] != want {
			t.Errorf("the ejection is %+v, want %+v", past[0], want)
		}
	})
	for _, want := range []string{
		`level=WARN msg="target ejected: requests from gateways failed" target=web probe=readiness instance=a reason=gateway.failures detail="the ***�[0m"`,
		`level=INFO msg="target no longer ejected" target=web probe=readiness instance=a`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no line %s in\n%s", want, log.String())
		}
	}
}

// TestAMillionCallsMakeFewAttemptsAndHastenNothing generates a storm of failed requests, each of which requests attempts.
func TestAMillionCallsMakeFewAttemptsAndHastenNothing(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	const steps, calls = 1000, 167
	for _, period := range []time.Duration{probe.MinPeriod, 13 * time.Millisecond, 25 * time.Millisecond, 300 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(period.String(), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				h := says(probe.Success)
				p := every(period, 3, h)
				p.Rule.SuccessThreshold, p.Rule.Timeout = 3, time.Millisecond
				apply(t, e, probe.Set{readiness: p})
				e.Report(instance("a"))
				pass(time.Minute)
				before := len(h.attempts())
				storm := func(until probe.Verdict) (turned time.Duration) {
					begin := time.Now()
					for range steps {
						for n := range calls {
							if n%2 == 0 {
								e.Trigger(readiness)
							} else {
								e.Observe(readiness, refused)
							}
						}
						pass(period / 97)
						if status(t, e, readiness).Verdict == until && turned == 0 {
							turned = time.Since(begin)
						}
					}
					return turned
				}
				storm(probe.Failing)
				h.say(probe.Failure)
				if after := storm(probe.Failing); after < 2*period {
					t.Errorf("it fails after %v", after)
				}
				h.say(probe.Success)
				if after, gap := storm(probe.Passing), max(probe.MinPeriod, period/10); after < gap {
					t.Errorf("it passes after %v", after)
				}
				if most := mostInASecond(h.attempts()[before:]); most > 100 {
					t.Errorf("%d attempts in a second", most)
				}
			})
		})
	}
}

// mostInASecond returns the maximum number of the times within one second.
func mostInASecond(times []time.Time) (most int) {
	first := 0
	for last := range times {
		for times[last].Sub(times[first]) >= time.Second {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

func BenchmarkObserve(b *testing.B) {
	e := engine.New(engine.Config{})
	fill(b, e, 10_000)
	for _, o := range []probe.Observation{answered, refused} {
		b.Run(fmt.Sprint(o.Outcome), func(b *testing.B) {
			id := probe.ID{Target: "shop/77", Kind: probe.Readiness}
			b.ReportAllocs()
			for b.Loop() {
				e.Observe(id, o)
			}
		})
	}
}

func TestASensitiveValueAcrossTheCutIsNotShown(t *testing.T) {
	const secret = "correct-horse-battery"
	config := engine.Config{Redact: func(s string) string { return strings.ReplaceAll(s, secret, "***") }}
	bubble(t, config, func(t *testing.T, e *engine.Engine) {
		cut := func(limit int) string { return strings.Repeat("x", limit-5) + secret }
		isSafe := func(what, detail string) {
			t.Helper()
			if detail == "" || strings.Contains(detail, secret[:3]) || !strings.Contains(detail, "***") {
				t.Errorf("the detail of %s ends with %q", what, detail[max(len(detail)-20, 0):])
			}
		}
		p := with(deaf{time.Millisecond, probe.Fail(probe.ReasonExecExit, "%s", cut(probe.MaxDetail))})
		p.Rule = probe.Rule{Period: time.Second, FailureThreshold: 1}
		apply(t, e, probe.Set{readiness: p})
		in := instance("a")
		in.Detail = cut(5 << 10)
		e.Report(in)
		pass(5 * time.Second)
		isSafe("an attempt", status(t, e, readiness).Result.Detail)
		st, _ := e.Target(readiness.Target)
		isSafe("an instance", st.Instance.Detail)
	})
}
