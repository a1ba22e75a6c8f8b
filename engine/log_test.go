package engine_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// lines returns the lines of a log that contain a text.
func lines(log, text string) (found []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestFirstVerdictsBeyondAHundredAreCounted(t *testing.T) {
	var text lockedBuffer
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
		log := text.String()
		passing, failing := lines(log, "verdict=passing"), lines(log, "verdict=failing")
		if len(passing) != 100 || len(failing) != 100 {
			t.Errorf("%d lines about passing probes, %d about failing ones, want 100 each", len(passing), len(failing))
		}
		more := lines(log, "more first verdicts")
		if len(more) != 2 || !strings.Contains(more[0], "level=INFO") || !strings.HasSuffix(more[0], " passing=650 failing=0") ||
			!strings.Contains(more[1], "level=WARN") || !strings.HasSuffix(more[1], " passing=0 failing=150") {
			t.Errorf("the others are counted as %q", more)
		}
	})
}

func TestLaterVerdictsHaveALineEach(t *testing.T) { // also those of a liveness probe that has always passed
	var text lockedBuffer
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
