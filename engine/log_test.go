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
		var passing, failing int // counted
		more := lines(text.String(), "more first verdicts")
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
