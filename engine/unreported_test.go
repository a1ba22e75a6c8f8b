package engine_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// warned returns a Config that records the log, and a function that returns the lines about targets without an instance.
func warned() (engine.Config, func() []string) {
	var text testsync.Buffer
	c := engine.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	return c, func() (lines []string) {
		for line := range strings.Lines(text.String()) {
			if strings.Contains(line, "see Engine.Report") {
				lines = append(lines, line)
			}
		}
		return lines
	}
}

// onTargets returns a readiness probe for each target.
func onTargets(names ...string) probe.Set {
	set := probe.Set{}
	for _, name := range names {
		set[probe.ID{Target: name, Kind: probe.Readiness}] = with(says(probe.Success))
	}
	return set
}

func TestAForgottenReportIsWarnedAboutOnce(t *testing.T) {
	c, warnings := warned()
	bubble(t, c, func(t *testing.T, e *engine.Engine) {
		apply(t, e, onTargets("a", "b"))
		pass(9 * time.Second)
		if lines := warnings(); len(lines) != 0 {
			t.Errorf("too early: %q", lines)
		}
		pass(time.Hour)
		lines := warnings()
		if len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "count=2") {
			t.Fatalf("got %q, want one warning about two targets", lines)
		}
	})
}

func TestAWarningNamesAFewTargets(t *testing.T) {
	c, warnings := warned()
	bubble(t, c, func(t *testing.T, e *engine.Engine) {
		var names []string
		for i := range 5000 {
			names = append(names, fmt.Sprintf("target-%d", i))
		}
		apply(t, e, onTargets(names...))
		pass(time.Minute)
		lines := warnings()
		if len(lines) != 1 || !strings.Contains(lines[0], "count=5000") || strings.Count(lines[0], "target-") > 3 {
			t.Errorf("got %q", lines)
		}
	})
}

func TestProbesThatWereAppliedBeforeRunAreWarnedAbout(t *testing.T) {
	c, warnings := warned()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(c)
		apply(t, e, onTargets("a", "b"))
		e.Report(probe.Instance{Target: "b", ID: "static", Phase: probe.Running})
		running(t, e, func() { pass(time.Minute) })
	})
	if lines := warnings(); len(lines) != 1 || !strings.Contains(lines[0], "count=1 targets=a") {
		t.Errorf("got %q", lines)
	}
}

func TestDriversThatReportAreNotWarnedAbout(t *testing.T) {
	c, warnings := warned()
	bubble(t, c, func(t *testing.T, e *engine.Engine) {
		e.Report(probe.Instance{Target: "early", ID: "static", Phase: probe.Running})
		apply(t, e, onTargets("early", "soon", "waiting", "absent", "removed"))
		pass(5 * time.Second)
		e.Report(probe.Instance{Target: "soon", ID: "static", Phase: probe.Running})
		e.Report(probe.Instance{Target: "waiting", ID: "1", Phase: probe.Waiting, Reason: probe.ReasonBackOff})
		e.Report(probe.Instance{Target: "absent"})
		apply(t, e, onTargets("early", "soon", "waiting", "absent"))
		pass(time.Hour)
		if lines := warnings(); len(lines) != 0 {
			t.Errorf("got %q", lines)
		}
	})
}
