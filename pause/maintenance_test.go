package pause

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/cron"
	"github.com/sonde-probe/sonde/probe"
)

// daily is a maintenance of some targets that begins each day at a time of UTC.
func daily(t *testing.T, at string, d time.Duration, names ...string) Maintenance {
	t.Helper()
	members, err := probe.NewSelector(names, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin, err := cron.Parse(at + " * * *")
	if err != nil {
		t.Fatal(err)
	}
	return Maintenance{Members: members, Windows: cron.Windows{Begin: begin, Duration: d, In: time.UTC}, Why: "backup"}
}

// maintain puts maintenances into use, as a reload does.
func (h *harness) maintain(all map[string]Maintenance) {
	h.Helper()
	h.keeper.Maintain(all, nil)
	synctest.Wait()
}

// is compares which targets have which reason, such as "db=restart.paused web=".
func (h *harness) is(want string) {
	h.Helper()
	var got []string
	for t := range h.engine.Select(context.Background(), engine.Filter{}) {
		reason := h.engine.Admin().Suppressed(t.Target)
		if t.State == probe.StatePaused != (reason != "") {
			h.Errorf("%s is %v, suppressed because of %q", t.Target, t.State, reason)
		}
		got = append(got, t.Target+"="+strings.TrimPrefix(string(reason), "restart."))
	}
	if text := strings.Join(got, " "); text != want {
		h.Errorf("at %v: %s, want %s\n%s", h.keeper.wallClock().UTC().Format("15:04:05"), text, want, h.log)
	}
}

// TestTargetsOfOtherEnginesAreUnderMaintenanceToo has a target that another engine probes: it is under maintenance
// here, too.
func TestTargetsOfOtherEnginesAreUnderMaintenanceToo(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		others := engine.New(engine.Config{NoIsolationCheck: true})
		h.keeper.config.Others = others
		check := func(want probe.Reason) {
			h.Helper()
			synctest.Wait()
			if got := others.Admin().Suppressed("theirs"); got != want {
				h.Errorf("at %v it is suppressed because of %q, want %q", h.keeper.wallClock().UTC().Format("15:04:05"), got, want)
			}
		}
		h.keeper.Maintain(map[string]Maintenance{"nightly": daily(t, "30 2", time.Hour, "theirs")}, map[string]map[string]string{"theirs": nil, "other": nil})
		check("")
		time.Sleep(3 * time.Hour)
		check(probe.ReasonMaintenance)
		if got := others.Admin().Suppressed("other"); got != "" {
			h.Errorf("another target is suppressed because of %q", got)
		}
		time.Sleep(time.Hour)
		check("")
	})
}

// Bubbles begin at midnight UTC.
func TestAMaintenanceBeginsAndEndsByTheClock(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.maintain(map[string]Maintenance{"nightly": daily(t, "30 2", time.Hour, "web")})
		h.pass(150*time.Minute - 1)
		h.is("db= web=")
		h.pass(1)
		h.is("db= web=maintenance")
		st, _ := h.engine.Target("web")
		until := time.Date(2000, 1, 1, 3, 30, 0, 0, time.UTC)
		if p := st.Pause; p == nil || p.Detail != "nightly: backup" || !p.Until.Equal(until) || st.Gateway != probe.GatewayDraining {
			t.Errorf("the status is %+v", st)
		}
		want := []MaintenanceStatus{{"nightly", true, until.Add(-time.Hour), until, "backup", 1}}
		if got := h.keeper.Maintenances(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		h.pass(time.Hour - 1)
		h.is("db= web=maintenance")
		h.pass(1)
		h.is("db= web=")
		if past := h.engine.Records().History("web"); len(past) != 2 || !past[0].Paused || !past[1].Unpaused || past[1].Reason != probe.ReasonMaintenance {
			t.Errorf("the history is %+v", past)
		}
		want = []MaintenanceStatus{{"nightly", false, until.Add(23 * time.Hour), until.Add(24 * time.Hour), "backup", 0}}
		if got := h.keeper.Maintenances(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		h.pass(23*time.Hour + time.Minute)
		h.is("db= web=maintenance")
		for _, want := range []string{"maintenance has begun\" maintenance=nightly", "maintenance has ended\" maintenance=nightly"} {
			if !strings.Contains(h.log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, h.log)
			}
		}
	})
}

func TestAPauseGoesBeforeMaintenance(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.pause("web", 30*time.Minute)
		h.maintain(map[string]Maintenance{"nightly": daily(t, "10 0", time.Hour, "*")})
		h.pass(11 * time.Minute)
		h.is("db=maintenance web=paused")
		h.pass(20 * time.Minute)
		h.is("db=maintenance web=maintenance")
		_, err := h.keeper.Unpause(t.Context(), "", []string{"web"}, "bob")
		if err == nil || !strings.Contains(err.Error(), "until 2000-01-01T01:10:00Z") || !strings.Contains(err.Error(), "nightly: backup") {
			t.Errorf("the error is %v", err)
		}
		h.pause("db", 0)
		h.pass(time.Hour)
		h.is("db=paused web=")
	})
}

// Of several maintenances the one counts that ends last.
func TestMaintenancesOverlap(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.maintain(map[string]Maintenance{
			"a": daily(t, "0 1", time.Hour, "web"), "b": daily(t, "30 1", time.Hour, "*"), "c": daily(t, "40 1", 10*time.Minute, "web"),
		})
		h.pass(45 * time.Minute)
		for _, step := range []struct{ want, detail string }{
			{"db= web=", ""},                                // 00:45
			{"db= web=maintenance", "a: backup"},            // 01:15
			{"db=maintenance web=maintenance", "b: backup"}, // 01:45
			{"db=maintenance web=maintenance", "b: backup"}, // 02:15
			{"db= web=", ""},                                // 02:45
		} {
			h.is(step.want)
			if st, _ := h.engine.Target("web"); st.Pause != nil && st.Pause.Detail != step.detail || st.Pause == nil && step.detail != "" {
				t.Errorf("the pause is %+v, want %q", st.Pause, step.detail)
			}
			h.pass(30 * time.Minute)
		}
		if past := h.engine.Records().History("web"); len(past) != 3 {
			t.Errorf("the history is %+v", past)
		}
	})
}

// A reload inside a window takes effect at once, and what it does not change has no further transition.
func TestAReloadChangesMaintenancesAtOnce(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.pass(time.Hour + time.Minute)
		h.maintain(map[string]Maintenance{"nightly": daily(t, "0 1", time.Hour, "web")})
		h.is("db= web=maintenance")
		h.maintain(map[string]Maintenance{"nightly": daily(t, "0 1", time.Hour, "web")})
		if past := h.engine.Records().History("web"); len(past) != 1 {
			t.Errorf("the history is %+v", past)
		}
		h.maintain(map[string]Maintenance{"nightly": daily(t, "0 1", time.Hour, "db")})
		h.is("db=maintenance web=")
		h.maintain(map[string]Maintenance{"nightly": daily(t, "0 5", time.Hour, "db")})
		h.is("db= web=")
		h.pass(4 * time.Hour)
		h.is("db=maintenance web=")
		h.maintain(nil)
		h.is("db= web=")
		h.pass(48 * time.Hour)
		h.is("db= web=")
	})
}

// An engine that starts inside a window has no target that is seen without its maintenance.
func TestAnEngineStartsInsideAWindow(t *testing.T) {
	inBubble(t, func(h *harness) {
		time.Sleep(time.Hour)
		h.keeper.Maintain(map[string]Maintenance{"nightly": daily(t, "0 1", time.Hour, "w*")}, map[string]map[string]string{"web": nil, "db": nil})
	}, func(h *harness) {
		h.is("db= web=maintenance")
		if past := h.engine.Records().History("web"); len(past) > 0 {
			t.Errorf("the history is %+v", past)
		}
		h.pass(time.Hour)
		h.is("db= web=")
	})
}

// The wall clock counts, whatever it is set to.
func TestTheWallClockIsSet(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.maintain(map[string]Maintenance{"nightly": daily(t, "0 3", time.Hour, "web")})
		for _, step := range []struct {
			set  time.Duration
			want string
		}{
			{3 * time.Hour, "db= web=maintenance"}, // into the window
			{90 * time.Minute, "db= web="},         // back, before it
			{200 * time.Minute, "db= web=maintenance"},
			{5 * time.Hour, "db= web="}, // over its end
			{51 * time.Hour, "db= web=maintenance"},
			{-48*time.Hour + 190*time.Minute, "db= web=maintenance"}, // another window, days ago
			{-26280 * time.Hour, "db= web="},
		} {
			h.set.Store(int64(step.set))
			h.pass(clockInterval)
			h.is(step.want)
		}
	})
}

// Pauses by operators, maintenances, reloads and a clock that is set, in any order: what the engine
// says is always what follows from them.
func TestWhatTheEngineIsToldFollowsFromPausesAndMaintenances(t *testing.T) {
	for seed := range uint64(8) {
		inBubble(t, nothing, func(h *harness) {
			r := rand.New(rand.NewPCG(seed, 5))
			paused := map[string]time.Time{} // until when
			all := map[string]Maintenance{}
			for range 100 {
				target := []string{"web", "db"}[r.IntN(2)]
				switch r.IntN(6) {
				case 0:
					p := Pause{At: time.Now(), By: "alice", Until: time.Now().Add(time.Duration(1+r.IntN(120)) * time.Minute)}
					_, _ = h.keeper.Pause(t.Context(), "", []string{target}, p)
					paused[target] = p.Until
				case 1:
					_, _ = h.keeper.Unpause(t.Context(), "", []string{target}, "bob")
					delete(paused, target)
				case 2:
					all = maps.Clone(all)
					all[fmt.Sprint("m", r.IntN(3))] = daily(t, fmt.Sprintf("%d %d", r.IntN(60), r.IntN(24)), time.Duration(1+r.IntN(600))*time.Minute, []string{"web", "db", "*"}[r.IntN(3)])
					h.maintain(all)
				case 3:
					all = maps.Clone(all)
					delete(all, fmt.Sprint("m", r.IntN(3)))
					h.maintain(all)
				case 4:
					h.set.Add(int64(time.Duration(r.IntN(48*60)-24*60) * time.Minute))
					h.pass(clockInterval)
				default:
					h.pass(time.Duration(r.IntN(300)) * time.Minute)
				}
				synctest.Wait()
				var want []string
				for _, target := range []string{"db", "web"} {
					reason := ""
					for _, m := range all {
						if w, _ := m.Windows.At(h.keeper.wallClock()); w.Contains(h.keeper.wallClock()) && m.Members.Matches(target, nil) {
							reason = "maintenance"
						}
					}
					if until, ok := paused[target]; ok && time.Now().Before(until) {
						reason = "paused"
					}
					want = append(want, target+"="+reason)
				}
				h.is(strings.Join(want, " "))
			}
		})
	}
}

// Keeping many maintenances up to date looks at the calendar only when one begins or ends.
func TestWindowsAreLookedUpOnce(t *testing.T) {
	m := maintained{Maintenance: daily(t, "0 3", time.Hour, "web")}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m.look(now)
	first := m.window
	m.Windows.Begin = cron.Schedule{} // finds nothing any more
	for range 4 * 60 {
		if m.look(now); m.window != first {
			t.Fatalf("at %v the window is %v", now, m.window)
		}
		now = now.Add(time.Minute - time.Nanosecond)
	}
}

// A calendar may have no day left within the years that are looked ahead: February 29 on a Sunday.
func TestAMaintenanceWithoutAWindowLetsRunWait(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		m := daily(t, "0 3", time.Hour, "web")
		m.Windows.Begin = cron.Schedule{}
		h.keeper.Maintain(map[string]Maintenance{"never": m}, nil)
		if wait, waits := h.keeper.next(time.Now()); wait != clockInterval || !waits {
			t.Errorf("Run waits for %v, %t", wait, waits)
		}
		h.keeper.Maintain(nil, nil)
	})
}

func TestMaintenanceIsToldToTheEngineInUTC(t *testing.T) {
	vienna := time.FixedZone("Vienna", 3600)
	m := maintained{name: "a", window: cron.Window{From: time.Date(2026, 1, 1, 0, 0, 0, 0, vienna), To: time.Date(2026, 1, 1, 1, 0, 0, 0, vienna)}}
	if a, b := m.forEngine(), (engine.Pause{Reason: probe.ReasonMaintenance, Detail: "a", Since: m.window.From.UTC(), Until: m.window.To.UTC()}); a != b {
		t.Errorf("got %v, want %v: it would have begun again with each reload", a, b)
	}
}

func TestTheLogHasTheEndOfAMaintenanceThatIsRemoved(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		h.maintain(map[string]Maintenance{"nightly": daily(t, "0 0", time.Hour, "web"), "later": daily(t, "0 12", time.Hour, "web")})
		h.pass(time.Minute)
		h.is("db= web=maintenance")
		h.maintain(nil)
		h.is("db= web=")
		if log := h.log.String(); !strings.Contains(log, `"maintenance ended: its block was removed" maintenance=nightly`) || strings.Contains(log, "maintenance=later") {
			t.Errorf("the log has:\n%s", log)
		}
	})
}

// In a fleet an engine takes over targets at any time, also inside a window that began before.
func TestATargetThatIsTakenOverInsideAWindowIsUnderMaintenance(t *testing.T) {
	inBubble(t, nothing, func(h *harness) {
		upcoming := map[string]map[string]string{"taken": {"team": "shop"}}
		h.keeper.Maintain(map[string]Maintenance{"nightly": daily(t, "0 3", time.Hour, "*")}, upcoming)
		h.pass(3*time.Hour + time.Minute)
		id := probe.ID{Target: "taken", Kind: probe.Readiness}
		taken := probe.Probe{Target: probe.Target{Static: true}, Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{Outcome: probe.Success} })}
		if _, err := h.engine.Change(engine.Change{Set: probe.Set{id: taken}}); err != nil {
			t.Fatal(err)
		}
		h.is("db=maintenance taken=maintenance web=maintenance")
		h.pass(time.Hour)
		h.is("db= taken= web=")
	})
}
