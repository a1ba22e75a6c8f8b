package restart_test

import (
	"context"
	"encoding"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// next runs a test with the next engine, which has the current probes of m and resumes from its state. The instances
// keep running: the engine only probes them, and restarts them by a command.
func (m *shop) next(test func(next *shop)) {
	m.Helper()
	memories, restarts := map[probe.ID]engine.Memory{}, map[string]restart.Memory{}
	for id := range m.set {
		if of, ok := m.engine.Snapshot(id); ok {
			memories[id] = written(m.T, of)
		}
		if of, ok := m.control.Memory(id.Target); ok {
			restarts[id.Target] = of
		}
	}
	m.stop()
	<-m.ended
	next := &shop{harness: newHarness(m.T, restart.Budget{}), drivers: m.drivers, set: m.set}
	units := map[string]restart.Unit{}
	for n := range m.drivers {
		units[m.name(n)] = restart.Unit{Driver: m.drivers[n], Revision: "1"}
	}
	if err := next.control.Apply(units); err != nil {
		m.Fatal(err)
	}
	next.control.Restore(restarts)
	p, err := next.engine.Plan(engine.Change{Set: m.set, All: true, Memories: memories})
	if err != nil {
		m.Fatal(err)
	}
	next.control.Reloading(restart.Reload{Name: "the configuration of this start", Changes: p.Preview().Probes, Memories: restarts})
	p.Commit()
	ctx, stop := context.WithCancel(m.Context())
	var running sync.WaitGroup
	next.stop = stop
	running.Go(func() { _ = next.engine.Run(ctx) })
	running.Go(func() { next.ended <- next.control.Run(ctx) })
	for _, d := range m.drivers {
		d.callsMu.Lock()
		d.ends = nil // drop those at the end of the previous engine
		d.callsMu.Unlock()
	}
	test(next)
	stop()
	next.control.Kill()
	running.Wait()
}

// written returns a memory after encoding and decoding, as another engine reads it.
func written(t *testing.T, m engine.Memory) (read engine.Memory) {
	t.Helper()
	text, err := encoding.BinaryMarshaler(m).MarshalBinary()
	if err == nil {
		err = read.UnmarshalBinary(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// Between two engines a liveness probe becomes wrong, in its handler or its rule: the next engine restarts nothing, nor
// does the one after it, for which nothing has changed.
func TestAWrongProbeThatAStartBringsRestartsNothing(t *testing.T) {
	for name, change := range map[string]func(m *shop){
		"handler": func(m *shop) { m.replace(0, 40, "wrong", 1, &fakeHandler{failing: true, result: answer}) },
		"timeout": func(m *shop) {
			for id, p := range m.set {
				p.Handler, p.Rule.Timeout = &fakeHandler{failing: true, result: answer}, time.Millisecond
				m.set[id] = p
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, restart.Budget{}, 40, func(m *shop) {
				change(m)
				m.next(func(next *shop) {
					next.sleep(2 * time.Minute)
					next.expectRestarts(0)
					next.expectText(next.log.String(), `reload="the configuration of this start"`)
					next.next(func(last *shop) {
						last.sleep(2 * time.Minute)
						last.expectRestarts(0)
						last.replace(0, 40, "1", 1, new(fakeHandler))
						last.reload("the reload", false)
						last.sleep(2 * time.Minute)
						last.expectRestarts(0)
						last.replace(0, 40, "2", 1, new(fakeHandler))
						last.next(func(well *shop) {
							well.sleep(time.Minute)
							if st, _ := well.engine.Target("web-7"); !st.Ready || !st.Live || st.Instance.Reason != "" {
								well.Errorf("after the correction, web-7 is %+v", st)
							}
						})
					})
				})
			})
		})
	}
}

// An engine starts with unchanged probes: a failing target was well before, or has failed before, and is restarted.
func TestAStartWithTheSameProbesHasNoBrake(t *testing.T) {
	inShop(t, restart.Budget{}, 40, func(m *shop) {
		failing := &fakeHandler{result: answer}
		m.replace(0, 20, "2", 1, failing)
		m.reload("the reload", false)
		m.sleep(10 * s)
		m.next(func(next *shop) {
			next.sleep(10 * s)
			failing.setFailing(true)
			next.sleep(5 * s)
			if _, targets := next.restarts(); targets != 20 {
				t.Errorf("%d targets were restarted, want 20\n%s", targets, next.log)
			}
			next.next(func(last *shop) {
				last.sleep(20 * time.Minute)
				if _, targets := last.restarts(); targets != 20 {
					t.Errorf("%d targets were restarted after the start, want 20\n%s", targets, last.log)
				}
			})
		})
	})
}

// A push changes only thresholds and timeouts, in such a way that all targets fail.
func TestAWrongRuleThatAReloadBringsRestartsNothing(t *testing.T) {
	for name, change := range map[string]func(r *probe.Rule){
		"timeout":           func(r *probe.Rule) { r.Timeout = time.Millisecond },
		"failure threshold": func(r *probe.Rule) { r.FailureThreshold = 2 },
		"fail after":        func(r *probe.Rule) { r.FailAfter = time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, restart.Budget{}, 40, func(m *shop) {
				slow := new(fakeHandler)
				m.replace(0, 40, "slow", 3, slow)
				m.reload("the reload", false)
				m.sleep(time.Minute)
				for id, p := range m.set {
					change(&p.Rule)
					m.set[id] = p
				}
				m.reload("the push of revision 2", false)
				slow.setFailing(true)
				m.sleep(2 * time.Minute)
				m.expectRestarts(0)
			})
		})
	}
}

// A change of labels or grace periods does not put a probe in doubt: targets that fail by it are restarted.
func TestAReloadThatChangesNoVerdictHasNoBrake(t *testing.T) {
	inShop(t, restart.Budget{}, 40, func(m *shop) {
		failing := new(fakeHandler)
		m.replace(0, 40, "2", 1, failing)
		m.reload("the reload", false)
		m.sleep(time.Minute)
		for id, p := range m.set {
			p.Rule.TerminationGracePeriod, p.Target.Labels = 3*s, map[string]string{"team": "shop"}
			m.set[id] = p
		}
		m.reload("the reload", false)
		failing.setFailing(true)
		m.sleep(5 * s)
		if _, targets := m.restarts(); targets != 40 {
			t.Errorf("%d targets were restarted, want 40\n%s", targets, m.log)
		}
	})
}
