package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// The targets of a zoo, which are in various states.
const (
	crashLooping = "shop/web-0"
	draining     = "shop/web-2"
	unrestarted  = "shop/web-4"
	pausedTarget = "shop/web-6"
	damped       = "shop/web-8"
	withheld     = "shop/web-10"
	gray         = "shop/web-12"
	unstarted    = "shop/web-14"
	notReady     = "shop/web-1"
	warning      = "shop/web-3"
	blindTarget  = "shop/web-5"
	ejected      = "shop/web-7"
	unreachable  = "shop/web-9"
	undecided    = "shop/web-11"
	moody        = "shop/web-13"
	onlyWarns    = "shop/web-15"
)

// zoo returns the targets of a world for an engine. Some of them are in special states.
func (w *world) zoo(name string) fleet.Targets {
	t := w.targets(40)
	set := func(target string, k probe.Kind, change func(*probe.Probe), result func() probe.Result) {
		id := probe.ID{Target: target, Kind: k}
		p := t.Probes[probe.ID{Target: target, Kind: probe.Readiness}]
		if own, exists := t.Probes[id]; exists {
			p = own
		}
		if change != nil {
			change(&p)
		}
		if result != nil {
			p.Handler = probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return result() })
		}
		t.Probes[id] = p
	}
	set(withheld, probe.Liveness, nil, func() probe.Result { return probe.Fail("test.deadlock", "no progress") })
	set(withheld, probe.Readiness, nil, func() probe.Result { return probe.Succeed("") })
	set(unstarted, probe.Startup, func(p *probe.Probe) { p.Rule.FailureThreshold = 1e6 }, func() probe.Result { return probe.Fail("test.cold", "warming up") })
	set(warning, probe.Readiness, nil, func() probe.Result { return probe.Warn("test.slow", "slower than usual") })
	set(onlyWarns, probe.Liveness, func(p *probe.Probe) { p.Rule.Effect = probe.EffectWarn }, func() probe.Result { return probe.Fail("test.deadlock", "no progress") })
	set(blindTarget, probe.Readiness, nil, func() probe.Result { return probe.Broken("test.trap", "a bug of the handler") })
	set(moody, probe.Readiness, nil, func() probe.Result { // its reason changes every two minutes
		return probe.Fail(probe.Reason(fmt.Sprint("test.mood_", time.Now().Minute()/2)), "at %v", time.Now())
	})
	set(undecided, probe.Readiness, func(p *probe.Probe) { p.Rule.InitialDelay = time.Hour }, nil)
	set(gray, probe.Readiness, nil, func() probe.Result {
		if name == "one" {
			return probe.Fail("test.cut", "no way to it")
		}
		return probe.Succeed("")
	})
	t.Quorums = map[probe.ID]quorum.Rule{{Target: gray, Kind: probe.Readiness}: {Vantages: 3, Min: 2}}
	t.Dampings = map[string]probe.Damping{damped: {}}
	t.Dependencies = map[string][]string{unreachable: {notReady}}
	u := t.Units[unrestarted]
	u.Driver = lasting{driver{world: w, target: unrestarted, asks: func(string) {}}, func() bool { return true }}
	t.Units[unrestarted] = u
	return t
}

// disturb brings the targets of a zoo into their states.
func (w *world) disturb(t *testing.T, all []*member) {
	p := engine.Pause{Reason: probe.ReasonPaused, Detail: "by ops", Since: time.Now()}
	for _, m := range all {
		m.engine.Admin().Pause(pausedTarget, p)
		m.fleet.Others().Admin().Pause(pausedTarget, p)
	}
	w.cripple(crashLooping, 0)
	w.infect(draining, time.Hour)
	w.infect(unrestarted, 0)
	w.infect(pausedTarget, 0)
	w.infect(notReady, 0)
	time.Sleep(20 * time.Second)
	w.infect(unreachable, 0)
	for range 5 {
		w.infect(damped, time.Hour)
		time.Sleep(5 * time.Second)
		w.heal(damped)
		time.Sleep(5 * time.Second)
	}
	for _, m := range all {
		for range 20 {
			m.engine.Observe(probe.ID{Target: ejected, Kind: probe.Readiness}, probe.Observation{Outcome: probe.Failure, Reason: probe.ReasonTCPRefused, Detail: "connection refused"})
		}
	}
}

// attempted are the fields of a probe that only its owner knows, since each attempt changes them.
var attempted = []string{"attempts", "attempting", "changes", "errors", "fault", "last", "next", "progress", "result", "run", "threshold", "waitReason"}

// answers returns the responses of an engine's API, without ages.
func (m *member) answers() map[string]string {
	m.Helper()
	union := m.fleet.Union()
	server, err := api.New(api.Config{Engine: union, Others: api.Others{
		Has: union.IsOther, Name: m.co.Name(), OwnerOf: m.co.OwnerOf, Heard: m.fleet.Heard, Stale: m.fleet.Stale,
	}})
	if err != nil {
		m.Fatal(err)
	}
	all := map[string]string{}
	var list struct {
		Targets []map[string]any
		Counts  any
	}
	r := httptest.NewRecorder()
	server.ServeHTTP(r, httptest.NewRequest("GET", "http://127.0.0.1/v1/targets?probes=true", nil))
	if err := json.Unmarshal(r.Body.Bytes(), &list); err != nil {
		m.Fatal(err)
	}
	counts, _ := json.Marshal(list.Counts)
	all["counts"] = string(counts)
	for _, target := range list.Targets {
		delete(target, "heard")
		if cause, ok := target["cause"].(map[string]any); ok && cause["probe"] != nil {
			delete(cause, "detail") // of the latest attempt
		}
		if probes, ok := target["probes"].([]any); ok {
			for _, p := range probes {
				for _, field := range attempted {
					delete(p.(map[string]any), field)
				}
			}
		}
		text, _ := json.MarshalIndent(target, "", " ")
		all[target["name"].(string)] = string(text)
	}
	return all
}

// difference returns the lines in which two texts differ.
func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	only := func(all, other []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(line string) bool { return slices.Contains(other, line) })
	}
	return fmt.Sprintf("%v, and %v", only(x, y), only(y, x))
}

// All engines respond alike about each target, whoever owns it.
func TestAllEnginesAnswerTheSame(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		var all []*member
		for _, name := range []string{"one", "two", "three"} {
			targets := w.zoo(name)
			m := start(t, name, b, targets)
			if _, err := m.engine.Change(engine.Change{Dependencies: targets.Dependencies, Dampings: targets.Dampings}); err != nil {
				t.Fatal(err)
			}
			only, err := probe.NewSelector([]string{withheld}, nil)
			if err != nil {
				t.Fatal(err)
			}
			m.runGroups(map[string]group.Rule{"alone": {Members: only, HoldRestarts: true}})
			all = append(all, m)
		}
		time.Sleep(time.Minute)
		w.disturb(t, all)
		since := func(target string) time.Time {
			st, _ := all[1].seen(target)
			return st.Since
		}
		before := map[string]time.Time{}
		for i := range 14 {
			time.Sleep(7 * time.Second)
			if i == 9 {
				for _, target := range []string{notReady, damped, pausedTarget} {
					before[target] = since(target)
				}
				owner := slices.IndexFunc(all, func(m *member) bool { return m.owns(notReady) })
				all[owner].kill()
				all = slices.Delete(all, owner, owner+1)
				time.Sleep(coord.DefaultTTL + 10*time.Second)
			}
			differences := map[string]string{}
			for range 150 {
				clear(differences)
				want := all[0].answers()
				for _, m := range all[1:] {
					for target, got := range m.answers() {
						if got != want[target] {
							differences[target] += difference(want[target], got) + " of " + m.co.Name() + "\n"
						}
					}
				}
				if len(differences) == 0 {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			for _, target := range slices.Sorted(maps.Keys(differences)) {
				t.Errorf("%s, of %s: %s", target, all[0].co.OwnerOf(target), differences[target])
			}
			if t.Failed() {
				break
			}
		}
		for target, at := range before {
			if now, _ := all[1].seen(target); !now.Since.Equal(at) {
				t.Errorf("%s is %v since %v, it was since %v before an engine was killed", target, now.State, now.Since, at)
			}
		}
		want := map[string]probe.TargetState{
			crashLooping: probe.StateCrashLooping, notReady: probe.StateNotReady, pausedTarget: probe.StatePaused, damped: probe.StateDamped,
			withheld: probe.StateRestartBlocked, unstarted: probe.StateStarting, blindTarget: probe.StateBlind, unreachable: probe.StateUnreachable,
			undecided: probe.StateStarting, warning: probe.StateDegraded, onlyWarns: probe.StateDegraded, gray: probe.StateDegraded, ejected: probe.StateReady,
		}
		for target, state := range want {
			if st, _ := all[0].seen(target); st.State != state {
				t.Errorf("%s is %v, want %v", target, st.State, state)
			}
		}
	})
}

// An instance is restarted, and takes some seconds to become ready. Meanwhile all engines respond alike, except in the
// second in which the owner stores the change.
func TestAllEnginesAnswerTheSameAfterARestart(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(20)
		const slow, starting = "shop/web-0", "shop/web-2"
		warmUp := func(target string) probe.HandlerFunc {
			return func(context.Context, probe.Target) probe.Result {
				all := w.restarts(target)
				if len(all) > 0 && time.Since(all[len(all)-1]) < 6*time.Second {
					return probe.Fail("test.cold", "warming up")
				}
				return probe.Succeed("")
			}
		}
		id := probe.ID{Target: slow, Kind: probe.Readiness}
		p := targets.Probes[id]
		p.Handler = warmUp(slow)
		targets.Probes[id] = p
		p.Handler, p.Rule.FailureThreshold = warmUp(starting), 1000
		targets.Probes[probe.ID{Target: starting, Kind: probe.Startup}] = p
		all := startAll(t, b, targets, "one", "two", "three")
		time.Sleep(time.Minute)
		all = append(all, start(t, "four", b, targets)) // has not known earlier instances
		time.Sleep(20 * time.Second)
		for range 3 {
			w.infect(slow, 0)
			w.infect(starting, 0)
			since := map[string]time.Time{}
			for range 150 {
				time.Sleep(100 * time.Millisecond)
				want := all[0].answers()
				differing := map[string]string{}
				for _, m := range all[1:] {
					for target, got := range m.answers() {
						if got != want[target] && target != "counts" {
							differing[target] += difference(want[target], got) + " of " + m.co.Name() + ", of " + m.co.OwnerOf(target) + "\n"
						}
					}
				}
				for target := range since {
					if differing[target] == "" {
						delete(since, target)
					}
				}
				for target, how := range differing {
					if since[target].IsZero() {
						since[target] = time.Now()
					}
					if d := time.Since(since[target]); d > 1500*time.Millisecond {
						t.Errorf("%s for %v: %s", target, d, how)
						since[target] = time.Now()
					}
				}
			}
		}
	})
}
