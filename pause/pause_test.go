package pause

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// harness is a running Keeper of an engine with targets.
type harness struct {
	*testing.T
	engine  *engine.Engine
	keeper  *Keeper
	log     *testsync.Buffer
	changes atomic.Int32 // reported
	set     atomic.Int64 // by how much the wall clock was set, in nanoseconds
}

// inBubble runs a test with the targets web and db, after what begins has done.
func inBubble(t *testing.T, begin func(*harness), test func(*harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t, engine: engine.New(engine.Config{}), log: new(testsync.Buffer)}
		h.keeper = New(Config{Engine: h.engine, Logger: slog.New(slog.NewTextHandler(h.log, nil)), Changed: func() { h.changes.Add(1) }})
		h.keeper.wallClock = func() time.Time { return time.Now().Round(0).Add(time.Duration(h.set.Load())) }
		begin(h)
		for _, target := range []string{"web", "db"} {
			h.engine.Report(probe.Instance{Target: target, ID: "static", Phase: probe.Running, Since: time.Now(), Managed: true})
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.keeper.Run(ctx) }()
		synctest.Wait()
		test(h)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func nothing(*harness) {}

func (h *harness) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h *harness) pause(target string, d time.Duration) {
	h.Helper()
	p := Pause{At: time.Now(), By: "alice", Why: "disk"}
	if d > 0 {
		p.Until = p.At.Add(d)
	}
	if r, err := h.keeper.Pause(h.Context(), "", []string{target}, p); err != nil || r != (Result{Targets: 1, Changed: 1}) {
		h.Fatalf("pausing %s: %+v, %v", target, r, err)
	}
	synctest.Wait()
}

// isPaused compares what the engine and the keeper say.
func (h *harness) isPaused(target string, want bool) {
	h.Helper()
	_, kept := h.keeper.Pauses()[target]
	if got := h.engine.Admin().Suppressed(target) == probe.ReasonPaused; got != want || kept != want {
		h.Errorf("%s is paused: %v, and %v by the keeper, want %v\n%s", target, got, kept, want, h.log)
	}
}

func TestAPauseEndsAtItsTime(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.pause("web", time.Hour)
		h.pause("db", 0)
		h.pass(time.Hour - time.Nanosecond)
		h.isPaused("web", true)
		before := h.changes.Load()
		h.pass(time.Nanosecond)
		h.isPaused("web", false)
		if h.changes.Load() == before {
			t.Error("the end was not reported to be written")
		}
		h.pass(24 * time.Hour)
		h.isPaused("db", true)
		if r, err := h.keeper.Unpause(t.Context(), "", []string{"db"}, "bob"); err != nil || r.Changed != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		h.isPaused("db", false)
		for _, want := range []string{"target paused\" target=web by=alice why=disk", "no longer paused\" target=web paused_by=alice", "no longer paused\" target=db by=bob"} {
			if !strings.Contains(h.log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, h.log)
			}
		}
	})
}

func TestAPauseCanBeChanged(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.pause("web", time.Hour)
		h.pause("web", time.Minute)
		p := h.keeper.Pauses()["web"]
		if r, err := h.keeper.Pause(t.Context(), "", []string{"web"}, p); err != nil || r.Changed != 0 {
			t.Errorf("the same pause again: %+v, %v", r, err)
		}
		h.pass(time.Minute)
		h.isPaused("web", false)
		if r, err := h.keeper.Unpause(t.Context(), "", []string{"web"}, "bob"); err != nil || r.Changed != 0 {
			t.Errorf("a target that is not paused: %+v, %v", r, err)
		}
	})
}

func TestOnlyTargetsThatExistArePaused(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		_, err := h.keeper.Pause(t.Context(), "", []string{"there is none"}, Pause{At: time.Now()})
		if _, unpaused := h.keeper.Unpause(t.Context(), "", []string{"there is none"}, "bob"); !errors.Is(err, ErrNoTarget) || !errors.Is(unpaused, ErrNoTarget) {
			t.Errorf("the errors are %v and %v", err, unpaused)
		}
		h.pause("web", time.Hour)
		h.pause("db", time.Hour)
		h.keeper.Keep(func(target string) bool { return target == "db" })
		h.isPaused("web", false)
		h.isPaused("db", true)
	})
}

// The next engine goes on with the pauses, in which no target is seen without its pause.
func TestPausesAreRestored(t *testing.T) {
	var saved []byte
	inBubble(t, nothing, func(h *harness) {
		h.pause("web", time.Hour)
		h.pause("db", time.Minute)
		saved, _ = json.Marshal(h.keeper.Pauses())
	})
	inBubble(t, func(h *harness) { // bubbles begin at the same time
		time.Sleep(2 * time.Minute)
		var pauses map[string]Pause
		if err := json.Unmarshal(saved, &pauses); err != nil {
			t.Fatal(err)
		}
		h.keeper.Restore(pauses)
	}, func(h *harness) {
		h.isPaused("web", true)
		h.isPaused("db", false)
		if st, _ := h.engine.Target("web"); st.Pause == nil || st.Pause.Detail != "by alice: disk" || len(h.engine.Records().History("web")) > 0 {
			t.Errorf("the status is %+v, with the history %v", st, h.engine.Records().History("web"))
		}
		h.pass(58 * time.Minute)
		h.isPaused("web", false)
	})
}

func TestTimesAreMovedWithTheWallClock(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	p := Pause{At: at, By: "alice", Until: at.Add(time.Hour)}.Shifted(48 * time.Hour)
	if want := at.Add(48 * time.Hour); !p.At.Equal(want) || !p.Until.Equal(want.Add(time.Hour)) {
		t.Errorf("the pause is %+v", p)
	}
	if p := (Pause{At: at}).Shifted(time.Hour); !p.Until.IsZero() {
		t.Errorf("a pause without an end ends at %v", p.Until)
	}
	if d := wallShift(at, at.Add(time.Hour)); d != 0 {
		t.Errorf("the wall clock was set by %v", d)
	}
}

// Run has nothing to wait for while nothing is paused.
func TestNothingIsDoneWhileNothingIsPaused(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		if wait, any := h.keeper.next(time.Now()); any {
			t.Errorf("Run waits for %v", wait)
		}
		h.pause("web", time.Second)
		if wait, any := h.keeper.next(time.Now()); !any || wait != time.Second {
			t.Errorf("Run waits for %v, %v", wait, any)
		}
	})
}

func TestAGroupIsPausedWithOneLineInTheLog(t *testing.T) {
	const targets = 30
	set := probe.Set{}
	var names []string
	for i := range targets {
		names = append(names, fmt.Sprintf("member-%02d", i))
		set[probe.ID{Target: names[i], Kind: probe.Readiness}] = probe.Probe{Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })}
	}
	begin := func(h *harness) {
		if _, err := h.engine.Apply(set); err != nil {
			h.Fatal(err)
		}
	}
	inBubble(t, begin, func(h *harness) {
		lines := func(text string, want int) {
			h.Helper()
			if got := strings.Count(h.log.String(), text); got != want {
				h.Errorf("%q is %d times in the log, want %d:\n%s", text, got, want, h.log)
			}
		}
		all := append([]string{"missing"}, names...)
		now := time.Now()
		p := Pause{At: now, By: "alice", Why: "disk", Until: now.Add(time.Hour)}
		if r, err := h.keeper.Pause(t.Context(), "shop", all, p); err != nil || r != (Result{Targets: targets, Changed: targets}) {
			h.Errorf("%+v, %v", r, err)
		}
		if r, err := h.keeper.Pause(t.Context(), "shop", all, p); err != nil || r != (Result{Targets: targets}) {
			h.Errorf("again: %+v, %v", r, err)
		}
		lines("paused", 1)
		lines(`"targets of a group paused" group=shop targets=30 by=alice why=disk`, 1)
		h.pass(2 * time.Hour)
		lines(`"target no longer paused"`, maxLines)
		lines(`"targets no longer paused" targets=30 not_named=20`, 1)
		p.Until = time.Time{}
		_, _ = h.keeper.Pause(t.Context(), "shop", names, p)
		if r, err := h.keeper.Unpause(t.Context(), "shop", all, "bob"); err != nil || r != (Result{Targets: targets, Changed: targets}) {
			h.Errorf("at the end %+v, %v", r, err)
		}
		lines(`"targets of a group no longer paused" group=shop targets=30 by=bob`, 1)
		h.isPaused(names[0], false)
	})
}
