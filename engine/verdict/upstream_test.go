package verdict_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// This file covers the cases of upstream's worker_test.go, in the same order; tests/upstream.md has both side by side. Behavior
// that is the same in both compatibilities is tested in both.

// worker does the work of the engine, one attempt after another: a look and, if one is due, an attempt.
type worker struct {
	*testing.T
	rule  probe.Rule
	state verdict.State
}

// attempt makes a look, and an attempt with the given outcome if it is permitted.
func (w *worker) attempt(look verdict.Event, o probe.Outcome, now time.Time) verdict.Next {
	state, next := verdict.Step(w.rule, w.state, look, now)
	if next.WaitReason == verdict.NotWaiting {
		state, next = verdict.Step(w.rule, state, attempted(look.Instance, o), now)
	}
	w.state = state
	return next
}

// expect makes an attempt at t0 and compares the published verdict.
func (w *worker) expect(step string, look verdict.Event, o probe.Outcome, want probe.Verdict) {
	w.Helper()
	next := w.attempt(look, o, t0)
	if next.WaitReason == verdict.Finished {
		w.Errorf("%s: the probe has ended", step)
	}
	if w.state.Verdict != want {
		w.Errorf("%s: the verdict is %v, want %v", step, w.state.Verdict, want)
	}
}

func (w *worker) expectRun(step string, want int32) {
	w.Helper()
	if w.state.Run != want {
		w.Errorf("%s: the run is %d, want %d", step, w.state.Run, want)
	}
}

func (w *worker) expectHold(step string, want bool) {
	w.Helper()
	if w.state.OnHold != want {
		w.Errorf("%s: on hold is %v, want %v", step, w.state.OnHold, want)
	}
}

// inBoth runs a test in both compatibilities.
func inBoth(t *testing.T, r probe.Rule, test func(w *worker)) {
	for _, c := range []probe.Compatibility{probe.Mended, probe.Kubelet} {
		t.Run(c.String(), func(t *testing.T) {
			r.Compatibility = c
			test(&worker{T: t, rule: r})
		})
	}
}

// thresholds returns r with these thresholds.
func thresholds(r probe.Rule, success, failure int32) probe.Rule {
	r.SuccessThreshold, r.FailureThreshold = success, failure
	return r
}

// open returns a look that permits an attempt of a probe of kind k: before the start of the instance for startup probes, and
// after it for others.
func open(k probe.Kind, id string) verdict.Event {
	if k == probe.Startup {
		return looked(running(id))
	}
	return lookedStarted(running(id))
}

func TestUpstreamInitialDelay(t *testing.T) {
	for name, r := range kinds {
		t.Run(name, func(t *testing.T) {
			inBoth(t, delayed(thresholds(r, 1, 1), 10*time.Second), func(w *worker) {
				look := open(w.rule.Kind, "a")
				w.expect("during the delay", look, probe.Success, verdict.Initial(w.rule.Kind))
				look.Instance.Since = t0.Add(-100 * time.Second)
				w.expect("after the delay", look, probe.Success, probe.Passing)
			})
		})
	}
}

func TestUpstreamFailureThreshold(t *testing.T) {
	inBoth(t, thresholds(readiness, 1, 3), func(w *worker) {
		look := open(probe.Readiness, "a")
		for range 2 {
			for range 3 {
				w.expect("it succeeds", look, probe.Success, probe.Passing)
			}
			for range 2 {
				w.expect("it fails below the threshold", look, probe.Failure, probe.Passing)
			}
			for range 3 {
				w.expect("it fails at the threshold and above", look, probe.Failure, probe.Failing)
			}
		}
	})
}

func TestUpstreamSuccessThreshold(t *testing.T) {
	inBoth(t, thresholds(readiness, 3, 1), func(w *worker) {
		look := open(probe.Readiness, "a")
		for range 2 {
			for range 2 {
				w.expect("it succeeds below the threshold", look, probe.Success, probe.Failing)
			}
			for range 3 {
				w.expect("it succeeds at the threshold and above", look, probe.Success, probe.Passing)
			}
			w.expect("it fails once", look, probe.Failure, probe.Failing)
		}
	})
}

func TestUpstreamStartupProbeSuccessThreshold(t *testing.T) {
	inBoth(t, thresholds(startup, 1, 3), func(w *worker) {
		w.expectHold("before", false)
		w.expect("one success", open(probe.Startup, "a"), probe.Success, probe.Passing)
		w.expectHold("after one success", true)
		w.expectRun("after one success", 0)
	})
}

func TestUpstreamStartupProbeFailureThreshold(t *testing.T) {
	inBoth(t, thresholds(startup, 1, 3), func(w *worker) {
		look := open(probe.Startup, "a")
		for failures := range int32(2) {
			w.expect("below the threshold", look, probe.Failure, probe.Undecided)
			w.expectRun("below the threshold", failures+1)
			w.expectHold("below the threshold", false)
		}
		w.expect("at the threshold", look, probe.Failure, probe.Failing)
		w.expectRun("at the threshold", 0)
		w.expectHold("at the threshold", true)
	})
}

func TestUpstreamOnHoldOnLivenessOrStartupCheckFailure(t *testing.T) {
	for _, r := range []probe.Rule{liveness, startup} {
		t.Run(r.Kind.String(), func(t *testing.T) {
			inBoth(t, thresholds(r, 1, 1), func(w *worker) {
				w.expect("the first attempt", open(r.Kind, "a"), probe.Failure, probe.Failing)
				w.expectHold("the first attempt", true)
				w.expect("on hold", open(r.Kind, "a"), probe.Success, probe.Failing)
				w.expectHold("on hold", true)
				w.expect("another instance", open(r.Kind, "b"), probe.Success, probe.Passing)
				w.expectHold("another instance", r.Kind == probe.Startup)
			})
		})
	}
}

func TestUpstreamResultRunOnLivenessCheckFailure(t *testing.T) {
	inBoth(t, thresholds(liveness, 1, 3), func(w *worker) {
		look := open(probe.Liveness, "a")
		w.expect("a success", look, probe.Success, probe.Passing)
		w.expectRun("a success", 1)
		w.expect("a failure", look, probe.Failure, probe.Passing)
		w.expectRun("a failure", 1)
		w.expect("two failures", look, probe.Failure, probe.Passing)
		w.expectRun("two failures", 2)
		w.expect("three failures", look, probe.Failure, probe.Failing)
		w.expectRun("three failures", 0)
	})
}

func TestUpstreamResultRunOnStartupCheckFailure(t *testing.T) {
	inBoth(t, thresholds(startup, 1, 3), func(w *worker) {
		look := open(probe.Startup, "a")
		w.expect("a failure", look, probe.Failure, probe.Undecided)
		w.expectRun("a failure", 1)
		w.expect("two failures", look, probe.Failure, probe.Undecided)
		w.expectRun("two failures", 2)
		w.expect("three failures", look, probe.Failure, probe.Failing)
		w.expectRun("three failures", 0)
	})
}

func TestUpstreamLivenessProbeDisabledByStarted(t *testing.T) {
	inBoth(t, thresholds(liveness, 1, 1), func(w *worker) {
		w.expect("before the start", looked(running("a")), probe.Failure, probe.Passing)
		w.expect("after the start", lookedStarted(running("a")), probe.Failure, probe.Failing)
	})
}

func TestUpstreamStartupProbeDisabledByStarted(t *testing.T) {
	inBoth(t, thresholds(startup, 1, 2), func(w *worker) {
		w.expect("a failure", looked(running("a")), probe.Failure, probe.Undecided)
		w.expect("a success", looked(running("a")), probe.Success, probe.Passing)
		w.expect("after the start", lookedStarted(running("a")), probe.Failure, probe.Passing)
	})
}

// An engine knows nothing about an instance that started before the engine. It begins with the initial verdict of the kind, as
// does the kubelet if its feature gate ChangeContainerStatusOnKubeletRestart is on. If the gate is off, which is the default, the
// kubelet publishes nothing yet.
func TestUpstreamChangeContainerStatusOnKubeletRestart(t *testing.T) {
	began := map[string]time.Duration{"before the engine": -5 * time.Minute, "after the engine": 5 * time.Minute}
	for name, r := range kinds {
		for when, since := range began {
			t.Run(name+" of an instance that began "+when, func(t *testing.T) {
				inBoth(t, delayed(r, 1000*time.Second), func(w *worker) {
					look := lookedStarted(running("a"))
					look.Instance.Since = t0.Add(since)
					w.expect("the first look", look, probe.Success, verdict.Initial(r.Kind))
				})
			})
		}
	}
}
