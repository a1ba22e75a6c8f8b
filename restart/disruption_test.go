package restart_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// members are the targets of a group that withholds restarts: each has a liveness and a readiness probe.
type members struct {
	*harness
	live, ready map[string]*fakeHandler
	drivers     map[string]*fakeDriver
}

// inGroup runs a test with the given number of targets, and groups in the form "members: MinReady", such as "web-*: 2".
func inGroup(t *testing.T, budget restart.Budget, targets int, groups map[string]string, test func(m *members)) {
	inBubble(t, budget, func(h *harness) {
		m := &members{h, map[string]*fakeHandler{}, map[string]*fakeHandler{}, map[string]*fakeDriver{}}
		ctx, stop := context.WithCancel(h.Context())
		var following sync.WaitGroup
		following.Go(func() { _ = h.groups.Run(ctx) })
		defer following.Wait()
		defer stop()
		m.add(targets)
		rules := map[string]group.Rule{}
		for name, text := range groups {
			glob, min, _ := strings.Cut(text, ": ")
			r := group.Rule{HoldRestarts: true}
			var err error
			if r.Members, err = probe.NewSelector([]string{glob}, nil); err != nil {
				t.Fatal(err)
			}
			if err := r.MinReady.UnmarshalText([]byte(min)); err != nil {
				t.Fatal(err)
			}
			rules[name] = r
		}
		if err := h.groups.Apply(rules); err != nil {
			t.Fatal(err)
		}
		h.sleep(5 * s)
		test(m)
	})
}

// add creates the given number of targets: web-0, web-1 and so on. The next instance of each is well.
func (m *members) add(targets int) {
	set, units := probe.Set{}, map[string]restart.Unit{}
	for n := range targets {
		name := fmt.Sprint("web-", n)
		if m.drivers[name] == nil {
			live := new(fakeHandler)
			m.live[name], m.ready[name] = live, new(fakeHandler)
			m.drivers[name] = newDriver(name, func(n int) behavior {
				if n > 0 {
					live.setFailing(false)
				}
				return behavior{endsAfter: 2 * s}
			})
		}
		units[name] = restart.Unit{Driver: m.drivers[name], TerminationGracePeriod: 3 * s, BackOff: restart.BackOff{Initial: 5 * s}}
		rule := probe.Rule{Period: s, FailureThreshold: 1}
		set[liveness(name)] = probe.Probe{Rule: rule, Handler: m.live[name], HandlerName: "test"}
		set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{Rule: rule, Handler: m.ready[name], HandlerName: "test"}
	}
	if _, err := m.engine.Apply(set); err != nil {
		m.Fatal(err)
	}
	m.apply(units)
}

// serving returns the number of targets that are ready, and whose instance is not being terminated.
func (m *members) serving() (n int) {
	for name := range m.drivers {
		if st, _ := m.engine.Target(name); st.Gateway.TakesRequests() {
			n++
		}
	}
	return n
}

// restarts returns the number of terminated instances.
func (m *members) restarts() (n int) {
	for _, d := range m.drivers {
		n += len(d.graces())
	}
	return n
}

// All members fail at once: they are restarted one after the other.
func TestRestartsLeaveEnoughMembersOfAGroup(t *testing.T) {
	inGroup(t, restart.Budget{}, 5, map[string]string{"shop": "web-*: 3"}, func(m *members) {
		for _, live := range m.live {
			live.setFailing(true)
		}
		for range 600 {
			m.sleep(s / 10)
			if n := m.serving(); n < 3 {
				t.Fatalf("%d members are ready\n%s", n, m.log)
			}
		}
		if n := m.restarts(); n != 5 {
			t.Errorf("%d restarts\n%s", n, m.log)
		}
		var at []time.Duration
		for _, d := range m.drivers {
			at = append(at, d.starts()[1].Round(s))
		}
		slices.Sort(at)
		if at[0] != at[1] || at[1] >= at[2] {
			t.Errorf("restarted at %v, want two at first", at)
		}
	})
}

func TestAWithheldRestartSaysWhichGroupWithholdsIt(t *testing.T) {
	inGroup(t, restart.Budget{}, 2, map[string]string{"shop": "web-*: 2"}, func(m *members) {
		m.live["web-0"].setFailing(true)
		m.sleep(time.Minute)
		in := m.expect("web-0", "web-0-0", probe.Running, probe.ReasonFloor)
		st, _ := m.engine.Target("web-0")
		if st.State != probe.StateRestartBlocked || st.Cause.Reason != probe.ReasonFloor || in.Managed {
			t.Errorf("its state is %v (%+v), managed: %v", st.State, st.Cause, in.Managed)
		}
		m.expectText(st.Cause.Detail, "the group shop would have fewer than min_ready ready members without it")
		if v := m.groups.Get("shop").View(); v.RestartsWithheld != 1 || v.Counts.Serving() != 2 {
			t.Errorf("the group withholds %d restarts, and has %d ready members", v.RestartsWithheld, v.Counts.Serving())
		}
		m.expectText(m.log.String(), "delay_reason=restart.floor")
		m.expectText(m.log.String(), "group=shop")
		if n := strings.Count(m.log.String(), "restart delayed"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, m.log)
		}
		m.live["web-0"].setFailing(false)
		m.sleep(3 * s)
		in = m.expect("web-0", "web-0-0", probe.Running, "")
		if v := m.groups.Get("shop").View(); v.RestartsWithheld != 0 || in.Detail != "" || m.restarts() != 0 {
			t.Errorf("%d restarts are withheld, detail %q, %d restarts", v.RestartsWithheld, in.Detail, m.restarts())
		}
	})
}

// A withheld restart proceeds automatically once there is another member.
func TestAWithheldRestartIsMadeOnceTheGroupCanDoWithoutIt(t *testing.T) {
	inGroup(t, restart.Budget{}, 1, map[string]string{"shop": "web-*: 1"}, func(m *members) {
		m.live["web-0"].setFailing(true)
		m.sleep(time.Minute)
		m.expect("web-0", "web-0-0", probe.Running, probe.ReasonFloor)
		m.add(2)
		m.sleep(4 * s)
		if m.restarts() != 1 {
			t.Errorf("%d restarts\n%s", m.restarts(), m.log)
		}
	})
}

func TestAMemberThatIsNotReadyIsRestarted(t *testing.T) {
	inGroup(t, restart.Budget{}, 1, map[string]string{"shop": "web-*: 1"}, func(m *members) {
		m.live["web-0"].setFailing(true)
		m.sleep(time.Minute)
		m.expect("web-0", "web-0-0", probe.Running, probe.ReasonFloor)
		m.ready["web-0"].setFailing(true)
		m.sleep(3 * s)
		if m.restarts() != 1 {
			t.Errorf("%d restarts\n%s", m.restarts(), m.log)
		}
	})
}

// A withheld restart is not charged to the budget, and a restart that exceeds the budget reserves nothing.
func TestAFloorAndABudgetDoNotBlockEachOther(t *testing.T) {
	groups := map[string]string{"shop": "web-*: 2", "alone": "web-2: 1"}
	inGroup(t, restart.Budget{Max: 1, Per: time.Hour}, 4, groups, func(m *members) {
		m.live["web-2"].setFailing(true)
		m.sleep(time.Minute)
		m.expect("web-2", "web-2-0", probe.Running, probe.ReasonFloor)
		m.live["web-0"].setFailing(true)
		m.sleep(time.Minute)
		m.expect("web-0", "web-0-1", probe.Running, "")
		m.live["web-1"].setFailing(true)
		m.sleep(time.Minute)
		m.expect("web-1", "web-1-0", probe.Running, probe.ReasonBudget)
		if by := m.groups.Acquire("web-3", "web-3-0", false); by != "" {
			t.Errorf("a restart that waits for the budget is reserved: withheld by %q", by)
		}
	})
}

// An operator's restart takes place, and other restarts wait for its end.
func TestAFloorWithholdsNoRestartOfAnOperator(t *testing.T) {
	inGroup(t, restart.Budget{}, 2, map[string]string{"shop": "web-*: 2"}, func(m *members) {
		if _, err := m.control.Restart("web-0", "test"); err != nil {
			t.Fatal(err)
		}
		m.sleep(s)
		if m.restarts() != 1 {
			t.Errorf("%d restarts", m.restarts())
		}
		m.expectText(m.log.String(), "group may have fewer than min_ready ready members during a restart that was requested")
	})
}

// If the restart of a member fails, the member keeps running, and others may be restarted.
func TestARestartThatFailsReservesNothing(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := &refusing{external: external{newDriver("web", healthy)}, takes: 5 * s}
		live := new(fakeHandler)
		h.apply(map[string]restart.Unit{"web": {Driver: d, TerminationGracePeriod: s}})
		h.probes(map[string]probe.Handler{"web": live, "db": new(fakeHandler)})
		h.engine.Report(probe.Instance{Target: "db", ID: "db-0", Phase: probe.Running, Since: time.Now()})
		all, err := probe.NewSelector([]string{"*"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.groups.Apply(map[string]group.Rule{"shop": {Members: all, HoldRestarts: true}}); err != nil {
			t.Fatal(err)
		}
		h.sleep(3 * s)
		live.setFailing(true)
		h.sleep(2 * s)
		if by := h.groups.Acquire("db", "db-0", false); by != "shop" {
			t.Fatalf("withheld by %q while the other restart is under way", by)
		}
		h.sleep(8 * s)
		h.groups.Release("db")
		h.expect("web", "web-0", probe.Running, probe.ReasonEnding)
		if by := h.groups.Acquire("db", "db-0", false); by != "" {
			t.Errorf("withheld by %q although the other restart has failed\n%s", by, h.log)
		}
	})
}

// withheld is an External driver whose first restarts are withheld by a fleet.
type withheld struct{ interrupted }

func (d *withheld) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	exit := d.interrupted.Run(ctx, began, end)
	if errors.Is(exit.Err, restart.ErrInterrupted) {
		exit.Err = &restart.WithheldError{Group: "shop"}
	}
	return exit
}

func TestARestartThatAFleetWithholdsIsRetried(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		d := &withheld{interrupted{lacking: lacking{fakeDriver: newDriver("web", healthy)}, id: "web-0"}}
		d.setHeals(failingUnit(h, d))
		in := h.expect("web", "web-0", probe.Running, probe.ReasonFloor)
		h.expectText(in.Detail, "the group shop would have fewer than min_ready ready members without it")
		h.sleep(time.Minute)
		if in := h.instance("web"); in.ID != "web-0+" || in.Restarts != 1 || d.restarts != 3 {
			t.Errorf("after %d requests: %+v", d.restarts, in)
		}
	})
}
