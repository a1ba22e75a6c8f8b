package engine_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// lines returns the lines of a log that contain the given text.
func lines(log, text string) (found []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestFirstVerdictsBeyondAHundredAreCounted(t *testing.T) {
	var text testsync.Buffer
	c := engine.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	bubble(t, c, func(t *testing.T, e *engine.Engine) {
		set := probe.Set{}
		for i := range 1000 {
			id, outcome := probe.ID{Target: fmt.Sprintf("web-%d", i), Kind: probe.Readiness}, probe.Success
			if i%4 == 0 {
				id.Kind, outcome = probe.Liveness, probe.Failure
			}
			set[id] = with(says(outcome))
		}
		apply(t, e, set)
		for id := range set {
			e.Report(probe.Instance{Target: id.Target, ID: "1", Phase: probe.Running, Since: time.Now()})
		}
		pass(time.Minute)
		var passing, failing int // counted
		more := lines(text.String(), "further first verdicts")
		for _, line := range more {
			var p, f int
			at := strings.Index(line, "passing=")
			if _, err := fmt.Sscanf(line[at:], "passing=%d failing=%d", &p, &f); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if strings.Contains(line, "level=WARN") != (f > 0) {
				t.Errorf("wrong level: %s", line)
			}
			passing, failing = passing+p, failing+f
		}
		passes, fails := len(lines(text.String(), "verdict=passing")), len(lines(text.String(), "verdict=failing"))
		if passes > 200 || fails > 200 || passes+passing != 750 || fails+failing != 250 {
			t.Errorf("%d and %d lines, %d and %d counted in %d lines; want 750 passing and 250 failing together", passes, fails, passing, failing, len(more))
		}
	})
}

func TestLaterVerdictsHaveALineEach(t *testing.T) { // including those of a liveness probe that has always passed
	var text testsync.Buffer
	c := engine.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	bubble(t, c, func(t *testing.T, e *engine.Engine) {
		answer := says(probe.Success)
		set := probe.Set{}
		for i := range 300 {
			p := with(answer)
			p.Rule.FailureThreshold = 1
			set[probe.ID{Target: fmt.Sprintf("web-%d", i), Kind: probe.Readiness + probe.Kind(i%2)}] = p
		}
		apply(t, e, set)
		for id := range set {
			e.Report(probe.Instance{Target: id.Target, ID: "1", Phase: probe.Running, Since: time.Now()})
		}
		pass(time.Minute)
		answer.say(probe.Failure)
		pass(time.Minute)
		if n := len(lines(text.String(), "verdict=failing previous=passing")); n != 300 {
			t.Errorf("%d lines about 300 changes", n)
		}
	})
}

// logged runs f with an engine, and returns the engine's log.
func logged(t *testing.T, level slog.Level, f func(t *testing.T, e *engine.Engine)) string {
	t.Helper()
	var text testsync.Buffer
	bubble(t, engine.Config{Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: level}))}, f)
	return text.String()
}

func TestProbesThatAreDownFromTheStartAreLogged(t *testing.T) {
	log := logged(t, slog.LevelInfo, func(t *testing.T, e *engine.Engine) {
		set := probe.Set{}
		for i := range 2000 {
			h := says(probe.Success)
			if i%250 == 0 {
				h = &script{answer: probe.Fail(probe.ReasonTCPRefused, "connection refused")}
			}
			set[probe.ID{Target: fmt.Sprintf("web-%04d", i), Kind: probe.Readiness}] = with(h)
		}
		apply(t, e, set)
		reportAll(e, set)
		pass(time.Minute)
	})
	down := lines(log, "level=WARN msg=\"first verdict\"")
	if len(down) != 8 || !strings.Contains(log, "target=web-0250 probe=readiness instance=static verdict=failing previous=failing attempts=3 took=0s reason=tcp.refused detail=\"connection refused\"") {
		t.Errorf("8 targets are down from the start, the log has:\n%s", strings.Join(down, "\n"))
	}
	if all := strings.Count(log, "\n"); all > 400 {
		t.Errorf("%d lines about 2000 targets", all)
	}
}

func TestAttemptsThatCannotBeMadeAreLoggedOnce(t *testing.T) {
	log := logged(t, slog.LevelInfo, func(t *testing.T, e *engine.Engine) {
		h := broken("exec.start")
		apply(t, e, probe.Set{liveness: with(h), readiness: with(broken(probe.ReasonResources))})
		e.Report(instance("1"))
		pass(5 * time.Minute)
		h.say(probe.Success)
		pass(time.Minute)
	})
	var got []string
	for line := range strings.Lines(log) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		got = append(got, line)
	}
	want := []string{
		`level=WARN msg="attempt could not be made" target=web probe=liveness instance=1 outcome=unknown errors=1 took=0s reason=exec.start detail="no such file"`,
		`level=WARN msg="probe blind: its attempts cannot be made" target=web probe=liveness instance=1 outcome=unknown errors=3 took=0s reason=exec.start detail="no such file"`,
		`level=INFO msg="probe no longer blind" target=web probe=liveness instance=1 outcome=success took=0s`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEachVerdictThatTurnsHasItsReason(t *testing.T) {
	log := logged(t, slog.LevelInfo, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h)})
		e.Report(instance("1"))
		pass(time.Minute)
		h.give(probe.Fail(probe.ReasonHTTPStatus, "status 503"))
		pass(time.Minute)
		h.give(probe.Succeed("status 200"))
		pass(time.Minute)
		over := instance("1")
		over.Phase, over.Reason = probe.Ended, probe.ReasonBackOff
		e.Report(over)
	})
	for _, want := range []string{
		"verdict=failing previous=passing attempts=3 took=0s reason=http.status detail=\"status 503\"",
		"verdict=passing previous=failing attempts=1 took=0s detail=\"status 200\"",
		"verdict=failing previous=passing reason=restart.back_off",
	} {
		if len(lines(log, want)) != 1 {
			t.Errorf("no line has %s:\n%s", want, log)
		}
	}
}

// A requested stop is not an outage.
func TestOnlyAnInstanceThatEndsUnplannedIsAWarning(t *testing.T) {
	for reason, want := range map[probe.Reason]string{
		probe.ReasonShutdown: "level=INFO", probe.ReasonOperatorStop: "level=INFO", probe.ReasonOperatorRestart: "level=INFO", probe.ReasonCompleted: "level=INFO",
		probe.ReasonExited: "level=WARN", probe.ReasonBackOff: "level=WARN", "": "level=WARN",
	} {
		log := logged(t, slog.LevelInfo, func(t *testing.T, e *engine.Engine) {
			apply(t, e, probe.Set{readiness: with(says(probe.Success))})
			e.Report(instance("1"))
			pass(time.Minute)
			over := instance("1")
			over.Phase, over.Reason = probe.Ended, reason
			e.Report(over)
		})
		if found := lines(log, "verdict=failing previous=passing"); len(found) != 1 || !strings.Contains(found[0], want) {
			t.Errorf("%q: want %s:\n%s", reason, want, log)
		}
	}
}

// The lines about a degraded engine and its recovery are each logged once, even if its score fluctuates.
func TestADegradedEngineSaysSo(t *testing.T) {
	log := logged(t, slog.LevelInfo, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule.Period = time.Second
		set, s := stallable(readiness, p)
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Minute)
		s.stall(t, e, 3*time.Second)
		pass(3 * time.Second)
		if e.Health().Score != 1 {
			t.Errorf("the score is %d", e.Health().Score)
		}
		h.give(probe.Broken("engine.descriptors", "too many open files"))
		pass(5 * time.Second)
		if !e.Health().Degraded() {
			t.Errorf("the score is %d", e.Health().Score)
		}
		h.give(probe.Succeed(""))
		pass(time.Minute)
	})
	degraded, well := lines(log, "level=WARN msg=\"engine degraded"), lines(log, "level=INFO msg=\"engine no longer degraded\" stalls=1 stalled=3s")
	if len(degraded) != 1 || !strings.Contains(degraded[0], "score=3 stalls=1 stalled=3s") || len(well) != 1 {
		t.Errorf("the log is\n%s", log)
	}
}

func TestDebugLogHasEachAttempt(t *testing.T) {
	for level, want := range map[slog.Level]int{slog.LevelDebug: 6, slog.LevelInfo: 0} {
		log := logged(t, level, func(t *testing.T, e *engine.Engine) {
			apply(t, e, probe.Set{liveness: with(says(probe.Success))})
			e.Report(instance("1"))
			pass(time.Minute)
		})
		if got := len(lines(log, "level=DEBUG msg=attempt target=web probe=liveness instance=1 outcome=success")); got != want {
			t.Errorf("%v: %d lines about attempts, want %d:\n%s", level, got, want, log)
		}
	}
}
