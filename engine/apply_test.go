package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func TestApplyLeavesAnUnchangedProbeAlone(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		set := probe.Set{readiness: with(h), liveness: with(h)}
		if n := apply(t, e, set); n != (engine.Changes{Added: 2}) {
			t.Errorf("first: %+v", n)
		}
		e.Report(instance("a"))
		pass(15 * time.Second)
		before := status(t, e, liveness)
		if n := apply(t, e, set); n != (engine.Changes{Kept: 2}) {
			t.Errorf("second: %+v", n)
		}
		if after := status(t, e, liveness); !reflect.DeepEqual(after, before) {
			t.Errorf("was %+v, is %+v", before, after)
		}
	})
}

func TestEqualRevisionsAreTheSameHandler(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		ok := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })
		p := with(ok)
		apply(t, e, probe.Set{readiness: p})
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 {
			t.Errorf("functions cannot be compared: %+v", n)
		}
		p.Revision = "1"
		apply(t, e, probe.Set{readiness: p})
		if n := apply(t, e, probe.Set{readiness: p}); n.Kept != 1 {
			t.Errorf("equal revisions: %+v", n)
		}
		p.Revision = "2"
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 {
			t.Errorf("another revision: %+v", n)
		}
	})
}

func TestAnotherThresholdKeepsTheRun(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Failure))
		p.Rule.FailureThreshold = 100
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		pass(41 * time.Second)
		before := status(t, e, liveness)
		p.Rule.FailureThreshold = 5
		if n := apply(t, e, probe.Set{liveness: p}); n.Updated != 1 {
			t.Errorf("got %+v", n)
		}
		after := status(t, e, liveness)
		if after.Run != before.Run || !after.Next.Equal(before.Next) {
			t.Errorf("was %+v, is %+v", before, after)
		}
		pass(10 * time.Second)
		want(t, e, liveness, probe.Failing)
	})
}

func TestAnotherPeriodMovesTheNextAttempt(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule.Period = time.Hour
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		pass(time.Second)
		p.Rule.Period = time.Second
		apply(t, e, probe.Set{liveness: p})
		n := len(h.attempts())
		pass(10 * time.Second)
		if got := len(h.attempts()) - n; got != 10 {
			t.Errorf("%d attempts in ten seconds, want 10", got)
		}
	})
}

func TestAReplacedProbeStartsAgainAndKeepsItsVerdict(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		old := says(probe.Success)
		p := with(old)
		p.Rule.SuccessThreshold = 2
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(time.Minute)
		p.Handler = says(probe.Failure)
		p.Handler.(*script).take(500 * time.Millisecond)
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 {
			t.Errorf("got %+v", n)
		}
		want(t, e, readiness, probe.Passing)
		if old.closed != 1 {
			t.Errorf("the old handler was closed %d times", old.closed)
		}
		pass(10 * time.Second)
		if st := status(t, e, readiness); st.Verdict != probe.Passing || st.Run != 1 || st.Last != probe.Failure {
			t.Errorf("after one failure that counts: %+v", st)
		}
		pass(time.Minute)
		want(t, e, readiness, probe.Failing)
	})
}

func TestTheResultOfARemovedOrReplacedProbeIsDropped(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		slow := says(probe.Success)
		slow.take(time.Hour)
		p := with(slow)
		p.Rule.Timeout = 2 * time.Hour
		apply(t, e, probe.Set{readiness: p, liveness: p})
		e.Report(instance("a"))
		pass(10 * time.Second)
		gauge, _ := e.Watch(liveness)
		p.Handler = says(probe.Failure)
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 || n.Removed != 1 {
			t.Errorf("got %+v", n)
		}
		if st := e.Stats(); st.Dropped != 2 || st.InFlight != 0 {
			t.Errorf("attempts were not cancelled: %+v", st)
		}
		if _, ok := e.Status(liveness); ok || gauge.Verdict() != probe.Undecided {
			t.Error("a removed probe is still there")
		}
		if slow.closed != 1 {
			t.Errorf("a shared handler was closed %d times", slow.closed)
		}
	})
}

func TestATargetWithoutProbesIsRemoved(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		in := instance("a")
		in.Managed = false
		apply(t, e, probe.Set{readiness: with(says(probe.Success))})
		e.Report(in)
		apply(t, e, probe.Set{})
		if _, ok := e.Target("web"); ok {
			t.Error("an endpoint without probes is still there")
		}
		e.Report(instance("b")) // a process becomes supervised
		if tg, ok := e.Target("web"); !ok || !tg.Ready {
			t.Errorf("got %+v", tg)
		}
		gone := instance("b")
		gone.Phase = probe.Gone
		e.Report(gone)
		if _, ok := e.Target("web"); ok {
			t.Error("a target that is gone and has no probes is still there")
		}
	})
}

func TestRemovingTheLastStartupProbeStartsTheInstance(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		r := says(probe.Success)
		apply(t, e, probe.Set{startup: with(says(probe.Unknown)), readiness: with(r)})
		e.Report(instance("a"))
		pass(time.Minute)
		if len(r.attempts()) != 0 {
			t.Error("attempted before the start")
		}
		apply(t, e, probe.Set{readiness: with(r)})
		synctest.Wait()
		if tg, _ := e.Target("web"); !tg.Ready {
			t.Errorf("got %+v", tg)
		}
	})
}

func TestApplyNamesTheFirstInvalidProbesInOrder(t *testing.T) {
	e := engine.New(engine.Config{})
	set := probe.Set{readiness: with(says(probe.Success))}
	bad := with(says(probe.Success))
	bad.Rule.SuccessThreshold = 2
	for n := range 13 {
		set[probe.ID{Target: fmt.Sprintf("t%02d", n), Kind: probe.Liveness}] = bad
	}
	_, err := e.Apply(set)
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	for n, line := range lines[:min(10, len(lines))] {
		if want := fmt.Sprintf(`probe "t%02d:liveness": success_threshold`, n); !strings.HasPrefix(line, want) {
			t.Errorf("line %d is %q, want %q", n, line, want)
		}
	}
	if last := lines[len(lines)-1]; len(lines) != 11 || last != "3 more probes are invalid" {
		t.Errorf("%d lines, the last is %q", len(lines), last)
	}
}

func static(target string) probe.Instance {
	return probe.Instance{Target: target, ID: "static", Phase: probe.Running, Since: time.Now()}
}

func TestATargetIsProbedAgainWhenItsProbesAreAddedAgain(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		set := probe.Set{readiness: with(h)}
		apply(t, e, set)
		e.Report(static("web"))
		pass(time.Minute)
		apply(t, e, probe.Set{})
		if _, ok := e.Target("web"); ok {
			t.Error("an endpoint without probes is still a target")
		}
		pass(time.Hour)
		apply(t, e, set)
		pass(time.Second)
		want(t, e, readiness, probe.Passing)
		apply(t, e, probe.Set{})
		gone := static("web")
		gone.Phase = probe.Gone
		e.Report(gone)
		apply(t, e, set)
		n := len(h.attempts())
		pass(time.Minute)
		if len(h.attempts()) != n {
			t.Error("an instance that was reported as gone is probed")
		}
	})
}

func TestOnlyAsManyIdleInstancesAreKeptAsThereWereProbes(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		name := func(n int) probe.ID { return probe.ID{Target: fmt.Sprintf("t%04d", n), Kind: probe.Readiness} }
		const all, kept = 3000, 1024
		for n := range all { // one probe at a time
			apply(t, e, probe.Set{name(n): with(h)})
			e.Report(static(name(n).Target))
		}
		set := probe.Set{}
		for n := range all {
			set[name(n)] = with(h)
		}
		apply(t, e, set)
		probed := 0
		for n := range all {
			if st := status(t, e, name(n)); st.Instance != "" {
				probed++
			}
		}
		if probed != kept+1 { // the last target never lost its probe
			t.Errorf("%d instances were kept, want %d", probed-1, kept)
		}
	})
}

// After the removal of its probes, a target keeps its state, but it is never ready while it terminates.
func TestATargetThatLosesItsProbesIsNotReadyForThat(t *testing.T) {
	cases := []struct {
		name              string
		startup           probe.Outcome
		readiness         probe.Outcome
		started, ready    bool // after the probes were removed
		terminatesStarted bool
	}{
		{"a healthy one", probe.Success, probe.Success, true, true, true},
		{"one that is not ready", probe.Success, probe.Failure, true, false, true},
		{"one that has not started", probe.Unknown, probe.Success, false, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				check := func(when string, started, ready bool) {
					t.Helper()
					if tg, _ := e.Target("web"); tg.Started != started || tg.Ready != ready {
						t.Errorf("%s: started %v, ready %v", when, tg.Started, tg.Ready)
					}
				}
				apply(t, e, probe.Set{startup: with(says(c.startup)), readiness: with(says(c.readiness)), liveness: with(says(probe.Success))})
				e.Report(instance("a"))
				pass(time.Minute)
				apply(t, e, probe.Set{})
				check("without probes", c.started, c.ready)
				leaving := instance("a")
				leaving.Terminating = true
				e.Report(leaving)
				check("terminating", c.terminatesStarted, false)
				e.Report(leaving)
				check("terminating still", c.terminatesStarted, false)
			})
		})
	}
}

func TestATargetThatGoesOnWithoutProbesIsReadyWhenItIsReportedAgain(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{startup: with(says(probe.Unknown)), readiness: with(says(probe.Failure))})
		e.Report(instance("a"))
		pass(time.Minute)
		apply(t, e, probe.Set{})
		e.Report(instance("a"))
		if tg, _ := e.Target("web"); !tg.Started || !tg.Ready {
			t.Errorf("got %+v", tg)
		}
		leaving := instance("a")
		leaving.Terminating = true
		e.Report(leaving)
		if tg, _ := e.Target("web"); !tg.Started || tg.Ready {
			t.Errorf("terminating: %+v", tg)
		}
	})
}

// connector is a handler with an endpoint.
type connector struct {
	*script
	host, port string
}

func (c connector) Endpoint(t probe.Target) string { return cmp.Or(c.host, t.Address) + ":" + c.port }

func TestAnotherEndpointOfAHandlerIsNotKnownToPass(t *testing.T) {
	s := says(probe.Success)
	before := probe.Probe{Handler: connector{s, "", "80"}, HandlerName: "http", Target: probe.Target{Address: "10.0.0.1"}}
	with := func(change func(*probe.Probe)) probe.Probe {
		p := before
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		probe probe.Probe
		want  probe.Verdict
	}{
		"another port":    {with(func(p *probe.Probe) { p.Handler = connector{s, "", "81"} }), probe.Undecided},
		"another host":    {with(func(p *probe.Probe) { p.Handler = connector{s, "10.0.0.2", "80"} }), probe.Undecided},
		"another address": {with(func(p *probe.Probe) { p.Target.Address = "10.0.0.2" }), probe.Undecided},
		"another network": {with(func(p *probe.Probe) { p.Target.Network = &probe.Network{Namespace: "blue"} }), probe.Undecided},
		"the same host":   {with(func(p *probe.Probe) { p.Handler = connector{s, "10.0.0.1", "80"} }), probe.Passing},
		"another handler": {with(func(p *probe.Probe) { p.Handler = connector{says(probe.Success), "", "80"} }), probe.Passing},
		"a port, and a handler": {with(func(p *probe.Probe) {
			p.Target.Ports, p.Handler = map[string]uint16{"admin": 1}, connector{says(probe.Success), "", "80"}
		}), probe.Passing},
		"a handler of no host":   {with(func(p *probe.Probe) { p.Handler = says(probe.Success) }), probe.Passing},
		"a host, another target": {with(func(p *probe.Probe) { p.Handler, p.Target.Address = connector{s, "10.0.0.1", "80"}, "10.0.0.2" }), probe.Passing},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				before.Rule.Period, c.probe.Rule.Period = time.Hour, time.Hour
				s.take(0)
				apply(t, e, probe.Set{readiness: before})
				e.Report(static("web"))
				pass(2 * time.Hour)
				want(t, e, readiness, probe.Passing)
				s.take(500 * time.Millisecond)
				if n := apply(t, e, probe.Set{readiness: c.probe}); n.Replaced != 1 {
					t.Errorf("got %+v", n)
				}
				want(t, e, readiness, c.want)
			})
		})
	}
}

func TestAnotherAddressIsNotKnownToPass(t *testing.T) {
	ports := func(port uint16) map[string]uint16 { return map[string]uint16{"http": port} }
	before := probe.Target{Address: "10.0.0.1", Ports: ports(80), Dir: "/a"}
	with := func(change func(*probe.Target)) probe.Target {
		tg := before
		change(&tg)
		return tg
	}
	cases := []struct {
		name   string
		target probe.Target
		moved  bool
	}{
		{"another address", with(func(t *probe.Target) { t.Address = "10.0.0.2" }), true},
		{"another port", with(func(t *probe.Target) { t.Ports = ports(81) }), true},
		{"another network", with(func(t *probe.Target) { t.Network = &probe.Network{Mark: 7} }), true},
		{"equal ports", with(func(t *probe.Target) { t.Ports = ports(80) }), false},
		{"another directory", with(func(t *probe.Target) { t.Dir = "/b" }), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				up, down := says(probe.Success), says(probe.Failure)
				p := probe.Probe{Handler: up, Target: before}
				failing := probe.Probe{Handler: down, Target: before}
				set := probe.Set{startup: p, readiness: p, liveness: failing}
				apply(t, e, set)
				e.Report(static("web"))
				pass(time.Minute)
				want(t, e, readiness, probe.Passing)
				want(t, e, liveness, probe.Failing)
				gauge, _ := e.Watch(readiness)
				changes := status(t, e, readiness).Changes
				up.take(500 * time.Millisecond)
				up.say(probe.Failure)
				for id, p := range set {
					p.Target = c.target
					set[id] = p
				}
				apply(t, e, set)
				if !c.moved {
					want(t, e, readiness, probe.Passing)
					want(t, e, liveness, probe.Failing)
					return
				}
				want(t, e, readiness, probe.Undecided)
				want(t, e, liveness, probe.Passing)
				want(t, e, startup, probe.Passing)
				if st := status(t, e, readiness); gauge.Verdict() != probe.Undecided || st.Changes != changes+1 || !st.Since.Equal(time.Now()) {
					t.Errorf("not published: %+v", st)
				}
				if tg, _ := e.Target("web"); tg.Ready || !tg.Started {
					t.Errorf("got %+v", tg)
				}
				pass(20 * time.Second)
				want(t, e, readiness, probe.Undecided)
				pass(20 * time.Second)
				want(t, e, readiness, probe.Failing)
				up.say(probe.Success)
				e.Trigger(readiness)
				pass(time.Second)
				want(t, e, readiness, probe.Passing)
			})
		})
	}
}

// closing is a handler that records when it is used and closed.
type closing struct {
	release chan struct{}
	running atomic.Int32
	closed  atomic.Int32
	misused atomic.Bool
}

func (c *closing) Probe(context.Context, probe.Target) probe.Result {
	c.misused.Store(c.misused.Load() || c.closed.Load() > 0)
	c.running.Add(1)
	defer c.running.Add(-1)
	<-c.release // ignores the context
	return probe.Succeed("")
}

func (c *closing) Close() error {
	c.misused.Store(c.misused.Load() || c.running.Load() > 0 || c.closed.Load() > 0)
	c.closed.Add(1)
	return nil
}

func TestAHandlerIsClosedWhenItsLastAttemptHasEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(p probe.Probe) probe.Set
	}{
		{"removed", func(probe.Probe) probe.Set { return probe.Set{} }},
		{"replaced", func(p probe.Probe) probe.Set {
			p.Handler = says(probe.Success)
			return probe.Set{readiness: p}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				h := &closing{release: make(chan struct{})}
				p := with(h)
				apply(t, e, probe.Set{readiness: p, startup: p})
				e.Report(instance("a"))
				pass(time.Second)
				if h.running.Load() == 0 {
					t.Fatal("no attempt is in flight")
				}
				apply(t, e, c.then(p))
				pass(time.Minute)
				if h.closed.Load() > 0 {
					t.Error("closed while an attempt is in flight")
				}
				close(h.release)
				synctest.Wait()
				if h.closed.Load() != 1 || h.misused.Load() {
					t.Errorf("closed %d times, misused %v", h.closed.Load(), h.misused.Load())
				}
			})
		})
	}
}

func TestAHandlerThatComesBackBeforeItIsClosedStaysOpen(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &closing{release: make(chan struct{})}
		set := probe.Set{readiness: with(h)}
		apply(t, e, set)
		e.Report(static("web"))
		pass(time.Second)
		apply(t, e, probe.Set{})
		apply(t, e, set)
		close(h.release)
		pass(time.Minute)
		if h.closed.Load() > 0 || h.misused.Load() {
			t.Errorf("closed %d times, misused %v", h.closed.Load(), h.misused.Load())
		}
		want(t, e, readiness, probe.Passing)
		apply(t, e, probe.Set{})
		if h.closed.Load() != 1 || h.misused.Load() {
			t.Errorf("closed %d times, misused %v", h.closed.Load(), h.misused.Load())
		}
	})
}

func TestAHandlerIsNotClosedAgainAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{})
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h)})
		running(t, e, func() { pass(time.Second) })
		apply(t, e, probe.Set{})
		if h.closed != 1 {
			t.Errorf("closed %d times", h.closed)
		}
	})
}
