package restart_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// shop is a harness with targets web-0, web-1 and so on, whose probes a test replaces.
type shop struct {
	*harness
	drivers []*fakeDriver
	set     probe.Set
}

// answer is a failure of a target that responds.
var answer = probe.Fail(probe.ReasonHTTPStatus, "404")

// inShop runs a test with the given number of targets, whose liveness probes have passed.
func inShop(t *testing.T, budget restart.Budget, targets int, test func(m *shop)) {
	inBubble(t, budget, func(h *harness) {
		m := &shop{harness: h, set: probe.Set{}}
		units := map[string]restart.Unit{}
		for n := range targets {
			m.drivers = append(m.drivers, newDriver(m.name(n), healthy))
			units[m.name(n)] = restart.Unit{Driver: m.drivers[n]}
			m.set[liveness(m.name(n))] = m.probe("1", 1, new(fakeHandler))
		}
		if _, err := h.engine.Apply(m.set); err != nil {
			t.Fatal(err)
		}
		h.apply(units)
		h.sleep(10 * s)
		test(m)
	})
}

func (m *shop) name(n int) string { return fmt.Sprint("web-", n) }

// probe returns a liveness probe with a period of a second.
func (m *shop) probe(revision string, threshold int32, h probe.Handler) probe.Probe {
	return probe.Probe{Rule: probe.Rule{Period: s, FailureThreshold: threshold}, Handler: h, HandlerName: "test", Revision: revision}
}

// replace replaces the probes of the targets from web-from to before web-to.
func (m *shop) replace(from, to int, revision string, threshold int32, h probe.Handler) {
	for n := from; n < to; n++ {
		m.set[liveness(m.name(n))] = m.probe(revision, threshold, h)
	}
}

// reload puts the replaced probes into effect.
func (m *shop) reload(name string, forced bool) {
	m.Helper()
	p, err := m.engine.Plan(engine.Change{Set: m.set, All: true})
	if err != nil {
		m.Fatal(err)
	}
	m.control.Reloading(restart.Reload{Name: name, Changes: p.Preview().Probes, Forced: forced})
	p.Commit()
}

// restarts returns the number of terminated instances, and of targets that they belong to.
func (m *shop) restarts() (instances, targets int) {
	for _, d := range m.drivers {
		if n := len(d.graces()); n > 0 {
			instances += n
			targets++
		}
	}
	return instances, targets
}

func (m *shop) expectRestarts(instances int) {
	m.Helper()
	if n, _ := m.restarts(); n != instances {
		m.Fatalf("%d instances were restarted, want %d\n%s", n, instances, m.log)
	}
}

// If a push contains a wrong liveness probe, nothing is restarted until it is corrected, regardless of its threshold.
func TestAWrongProbeThatAReloadBringsRestartsNothing(t *testing.T) {
	for _, threshold := range []int32{1, 3} {
		inShop(t, restart.Budget{}, 40, func(m *shop) {
			m.replace(0, 40, "wrong", threshold, &fakeHandler{failing: true, result: answer})
			m.reload("the push of revision 2", false)
			m.sleep(2 * time.Minute)
			m.expectRestarts(0)
			st, _ := m.engine.Target("web-7")
			if st.State != probe.StateRestartBlocked || st.Cause.Reason != probe.ReasonReload || st.Instance.Managed {
				t.Errorf("the state is %v, %+v", st.State, st.Cause)
			}
			m.expectText(st.Cause.Detail, "the push of revision 2 changed the probe, and more than 20% of the changed probes fail")
			log := m.log.String()
			m.expectText(log, `level=WARN msg="restarts delayed: too many of the probes changed by a reload fail" reload="the push of revision 2" failing=`)
			for text, want := range map[string]int{"restarts delayed": 1, "delay_reason=restart.reload": 40} {
				if n := strings.Count(log, text); n != want {
					t.Errorf("the log has %q %d times, want %d", text, n, want)
				}
			}
			m.replace(0, 1, "corrected", 1, new(fakeHandler)) // another reload, which corrects only one probe
			m.reload("the reload", false)
			m.sleep(2 * time.Minute)
			m.replace(1, 40, "wrong too", threshold, &fakeHandler{failing: true, result: answer})
			m.reload("the push of revision 3", false)
			m.sleep(2 * time.Minute)
			m.expectRestarts(0)
			m.replace(0, 40, "corrected", threshold, new(fakeHandler))
			m.reload("the push of revision 4", false)
			m.sleep(2 * time.Minute)
			m.expectRestarts(0)
			m.expect("web-7", "web-7-0", probe.Running, "")
		})
	}
}

func TestAnOperatorOverridesTheBrake(t *testing.T) {
	inShop(t, restart.Budget{}, 40, func(m *shop) {
		m.replace(0, 40, "wrong", 1, &fakeHandler{failing: true, result: answer})
		m.reload("the reload", false)
		m.sleep(time.Minute)
		m.operate(m.control.Restart, "web-7")
		m.sleep(s)
		m.expectRestarts(1)
		m.sleep(time.Minute)
		m.reload("the reload", true)
		m.sleep(2 * s)
		if _, targets := m.restarts(); targets != 40 {
			t.Errorf("%d of 40 targets were restarted after a forced reload\n%s", targets, m.log)
		}
	})
}

// A target that really fails after a reload that changed its probe is restarted, at once if the other targets have
// responded.
func TestFewFailuresAfterAReloadRestart(t *testing.T) {
	for name, failing := range map[string]int{"one": 1, "a fifth": 8} {
		t.Run(name, func(t *testing.T) {
			inShop(t, restart.Budget{}, 40, func(m *shop) {
				m.replace(0, failing, "2", 3, &fakeHandler{failing: true, result: answer})
				m.replace(failing, 40, "2", 3, new(fakeHandler))
				m.reload("the reload", false)
				m.sleep(5 * s)
				if _, targets := m.restarts(); targets != failing {
					t.Errorf("%d targets were restarted, want %d\n%s", targets, failing, m.log)
				}
			})
		})
	}
}

func TestTheBrakeEndsWhenFewerProbesFail(t *testing.T) {
	inShop(t, restart.Budget{}, 40, func(m *shop) {
		heals := &fakeHandler{failing: true, result: answer}
		m.replace(0, 4, "2", 1, &fakeHandler{failing: true, result: answer})
		m.replace(4, 40, "2", 1, heals)
		m.reload("the reload", false)
		m.sleep(time.Minute)
		m.expectRestarts(0)
		heals.setFailing(false)
		m.sleep(3 * s)
		if _, targets := m.restarts(); targets != 4 {
			t.Errorf("%d targets were restarted, want 4\n%s", targets, m.log)
		}
		m.expectText(m.log.String(), `level=INFO msg="restarts no longer delayed: fewer of the probes changed by a reload fail" reload="the reload"`)
		heals.setFailing(true) // long after a success, so not caused by a reload
		m.sleep(3 * s)
		if _, targets := m.restarts(); targets != 40 {
			t.Errorf("%d targets were restarted, want 40\n%s", targets, m.log)
		}
	})
}

// With so few probes, a single failure already exceeds the threshold of one fifth.
func TestAReloadOfFewProbesHasNoBrake(t *testing.T) {
	for changed, want := range map[int]int{4: 4, 5: 0} {
		inShop(t, restart.Budget{}, 40, func(m *shop) {
			m.replace(0, changed, "2", 1, &fakeHandler{failing: true, result: answer})
			m.reload("the reload", false)
			m.sleep(2 * s)
			if _, targets := m.restarts(); targets != want {
				t.Errorf("%d of %d targets were restarted\n%s", targets, changed, m.log)
			}
		})
	}
}

// A target that failed before the reload does not count, and is restarted as before.
func TestTargetsThatFailedBeforeAReloadAreRestartedOn(t *testing.T) {
	inShop(t, restart.Budget{}, 40, func(m *shop) {
		failing := &fakeHandler{failing: true, result: answer}
		m.replace(0, 20, "2", 1, failing)
		if _, err := m.engine.Apply(m.set); err != nil {
			t.Fatal(err)
		}
		m.sleep(5 * time.Minute)
		before, _ := m.restarts()
		m.replace(0, 20, "3", 1, failing)
		m.replace(20, 40, "3", 1, new(fakeHandler))
		m.reload("the reload", false)
		m.sleep(20 * time.Minute)
		if n, targets := m.restarts(); n < before+60 || targets != 20 {
			t.Errorf("%d restarts before the reload, and %d of %d targets after it\n%s", before, n-before, targets, m.log)
		}
	})
}

// A target that has not started yet has not failed.
func TestTheBrakeCountsTargetsThatStart(t *testing.T) {
	inShop(t, restart.Budget{}, 0, func(m *shop) {
		units := map[string]restart.Unit{}
		for n := range 40 {
			m.drivers = append(m.drivers, newDriver(m.name(n), healthy))
			units[m.name(n)] = restart.Unit{Driver: m.drivers[n]}
			m.set[liveness(m.name(n))] = m.probe("1", 1, new(fakeHandler))
			m.set[probe.ID{Target: m.name(n), Kind: probe.Startup}] = m.probe("1", 1, new(fakeHandler))
		}
		if _, err := m.engine.Apply(m.set); err != nil {
			t.Fatal(err)
		}
		for n := range 40 {
			m.engine.Report(probe.Instance{Target: m.name(n), ID: "none", Phase: probe.Waiting, Since: time.Now(), Reason: probe.ReasonStartAfter})
		}
		m.sleep(s)
		m.replace(0, 40, "wrong", 1, &fakeHandler{failing: true, result: answer})
		m.reload("the reload", false)
		m.apply(units)
		m.sleep(time.Minute)
		m.expectRestarts(0)
	})
}

// Failures right after a reload are held until the other probes have outcomes, for at most a minute. Probes that are
// never attempted do not count.
func TestProbesWithoutAnOutcomeWithholdARestartForAMinute(t *testing.T) {
	inShop(t, restart.Budget{}, 40, func(m *shop) {
		later := m.probe("2", 1, new(fakeHandler))
		later.Rule.InitialDelay = time.Hour
		for n := range 40 {
			m.set[liveness(m.name(n))] = later
		}
		m.replace(0, 1, "2", 1, &fakeHandler{failing: true, result: answer})
		m.reload("the reload", false)
		m.sleep(58 * s)
		m.expectRestarts(0)
		m.sleep(4 * s)
		if len(m.drivers[0].graces()) == 0 {
			t.Errorf("it was not restarted\n%s", m.log)
		}
	})
}

// A target that also fails by a probe that the reload did not change is restarted.
func TestABrakedProbeWithholdsNoRestartByAnother(t *testing.T) {
	inShop(t, restart.Budget{}, 40, func(m *shop) {
		other := &fakeHandler{result: answer}
		m.set[probe.ID{Target: "web-7", Kind: probe.Liveness, Name: "other"}] = m.probe("1", 1, other)
		if _, err := m.engine.Apply(m.set); err != nil {
			t.Fatal(err)
		}
		m.sleep(3 * s)
		m.replace(0, 40, "wrong", 1, &fakeHandler{failing: true, result: answer})
		m.reload("the reload", false)
		m.sleep(time.Minute)
		m.expectRestarts(0)
		other.setFailing(true)
		m.sleep(3 * s)
		if n := len(m.drivers[7].graces()); n == 0 {
			t.Errorf("it was not restarted\n%s", m.log)
		}
		if _, targets := m.restarts(); targets != 1 {
			t.Errorf("%d targets were restarted", targets)
		}
	})
}

// A startup probe fails while its target starts, which does not count until it has failed for good.
func TestTheBrakeCountsStartupProbesByTheirVerdicts(t *testing.T) {
	inShop(t, restart.Budget{}, 0, func(m *shop) {
		units := map[string]restart.Unit{}
		for n := range 40 {
			m.drivers = append(m.drivers, newDriver(m.name(n), healthy))
			units[m.name(n)] = restart.Unit{Driver: m.drivers[n]}
			threshold := int32(600) // it starts slowly
			if n == 0 {
				threshold = 65
			}
			m.set[probe.ID{Target: m.name(n), Kind: probe.Startup}] = m.probe("1", threshold, &fakeHandler{failing: true, result: answer})
		}
		m.reload("the reload", false)
		m.apply(units)
		m.sleep(70 * s)
		m.expectRestarts(1)
	})
}

// The default budget counts targets. A target that is counted already may be restarted again and again, as its back-off
// allows.
func TestTheDefaultBudgetCountsTargets(t *testing.T) {
	for targets, want := range map[int]int{40: 10, 4: 3} {
		inShop(t, restart.DefaultBudget, targets, func(m *shop) {
			m.replace(0, targets, "2", 1, &fakeHandler{failing: true, result: answer})
			if _, err := m.engine.Apply(m.set); err != nil {
				t.Fatal(err)
			}
			m.sleep(4 * time.Minute)
			if n, restarted := m.restarts(); restarted != want || n < 4*want {
				t.Errorf("%d restarts of %d of %d targets, want %d", n, restarted, targets, want)
			}
			if n := m.engine.States()[probe.StateRestartBlocked]; n != targets-want {
				t.Errorf("%d restarts are blocked", n)
			}
			m.sleep(10 * time.Minute) // time for other targets
			if _, restarted := m.restarts(); restarted < min(2*want, targets) {
				t.Errorf("%d targets were restarted in 14 minutes", restarted)
			}
		})
	}
}

// The charge of a unit is released when the unit is removed.
func TestARemovedTargetDoesNotCountForTheBudget(t *testing.T) {
	inShop(t, restart.Budget{Max: 1, Per: time.Hour}, 2, func(m *shop) {
		m.replace(0, 1, "2", 1, &fakeHandler{failing: true, result: answer})
		if _, err := m.engine.Apply(m.set); err != nil {
			t.Fatal(err)
		}
		m.sleep(2 * s)
		m.replace(1, 2, "2", 1, &fakeHandler{failing: true, result: answer})
		if _, err := m.engine.Apply(m.set); err != nil {
			t.Fatal(err)
		}
		m.sleep(2 * s)
		m.expect("web-1", "web-1-0", probe.Running, probe.ReasonBudget)
		m.apply(map[string]restart.Unit{"web-1": {Driver: m.drivers[1]}})
		m.operate(m.control.Stop, "web-1")
		m.sleep(2 * s)
		m.operate(m.control.Start, "web-1")
		m.sleep(2 * s)
		if in := m.instance("web-1"); in.ID == "web-1-1" && in.Reason == probe.ReasonBudget {
			t.Errorf("it waits for the budget that a removed target had: %+v", in)
		}
	})
}
