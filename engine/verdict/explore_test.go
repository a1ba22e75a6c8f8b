package verdict_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

var all = flag.Bool("all", false, "explore all states: thresholds up to 5, three instances")

// TestEveryReachableStateAgreesWithTheKubeletsWorker follows all events from all states that they lead to. Step, and a model of
// the kubelet's worker with the differences of byDesign, get the same events. They must publish the same, hold the same, and
// begin the same attempts. With -all the thresholds are up to 5 and there are three instances, and docs/guarantees.md must have
// the resulting figures.
func TestEveryReachableStateAgreesWithTheKubeletsWorker(t *testing.T) {
	tier.Slow(t)
	begin := time.Now()
	var states, transitions atomic.Int64
	t.Run("each kind", func(t *testing.T) {
		for kind := probe.Startup; kind <= probe.Liveness; kind++ {
			t.Run(kind.String(), func(t *testing.T) {
				t.Parallel()
				x := newExploration(kind)
				if *all {
					x.widen(5, "a", "b", "c")
					x.events = append(x.events, policyEvents(kind)...)
				}
				if problem := x.run(); problem != "" {
					t.Error(problem)
				}
				states.Add(int64(len(x.states)))
				transitions.Add(x.transitions)
			})
		}
	})
	t.Run("both policies", func(t *testing.T) {
		for kind := probe.Readiness; kind <= probe.Liveness && !*all; kind++ {
			t.Run(kind.String(), func(t *testing.T) {
				t.Parallel()
				x := newExploration(kind)
				x.widen(1, "a")
				x.events = append(x.events, policyEvents(kind)...)
				if problem := x.run(); problem != "" {
					t.Error(problem)
				}
				states.Add(int64(len(x.states)))
				transitions.Add(x.transitions)
			})
		}
	})
	t.Logf("%d states, %d transitions, %d differences by design, no other: %v",
		states.Load(), transitions.Load(), len(byDesign), time.Since(begin).Round(100*time.Millisecond))
	if *all {
		checkFigures(t, states.Load(), transitions.Load())
	} else if states.Load() < 4000 || transitions.Load() < 400_000 {
		t.Errorf("only %d states and %d transitions were found", states.Load(), transitions.Load())
	}
}

// checkFigures checks the figures in docs/guarantees.md.
func checkFigures(t *testing.T, states, transitions int64) {
	guarantees, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d,%03d states and %d million transitions", states/1000, states%1000, transitions/1_000_000)
	if !strings.Contains(strings.Join(strings.Fields(string(guarantees)), " "), want) {
		t.Errorf("docs/guarantees.md does not say %q", want)
	}
}

// TestEachDifferenceIsNeeded removes each difference in turn from the model, which then must no longer agree with Step.
func TestEachDifferenceIsNeeded(t *testing.T) {
	tier.Slow(t)
	for i, d := range byDesign {
		t.Run(d.k+" "+d.sonde, func(t *testing.T) {
			for kind := probe.Startup; kind <= probe.Liveness; kind++ {
				x := newExploration(kind)
				if x.lacks = i; i == weighsOutcomes {
					x.events = append(x.events, policyEvents(kind)...)
				}
				if x.run() != "" {
					return
				}
			}
			t.Error("the kubelet's worker does the same")
		})
	}
}

// exploration follows the events of one kind of probe.
type exploration struct {
	model
	most   int32 // maximum threshold
	events []event
	visit  func(from, to *pair, e *event) // called for each transition; may be nil

	states      []pair
	from        []origin // indexed by state
	transitions int64
}

// origin is how a state was first reached.
type origin struct {
	state int
	event event
}

// newExploration returns a short exploration: thresholds up to 2, and two instances.
func newExploration(kind probe.Kind) *exploration {
	x := &exploration{model: model{kind: kind, lacks: none}}
	x.widen(2, "a", "b")
	return x
}

// widen explores thresholds up to most, and the given instances.
func (x *exploration) widen(most int32, instances ...string) {
	x.most, x.events = most, allEvents(x.kind, instances)
}

// run explores all states, and returns the first disagreement, with the events that lead to it.
func (x *exploration) run() (problem string) {
	rule := probe.Rule{Kind: x.kind, SuccessThreshold: 1, FailureThreshold: 1, InitialDelay: time.Second}
	first := pair{rule: rule, worker: kubeletWorker{succeeded: true, rule: rule}}
	x.states, x.from = []pair{first}, []origin{{}}
	seen := map[pair]bool{first: true}
	for n := 0; n < len(x.states); n++ {
		for i := range x.events {
			e := &x.events[i]
			if !x.applies(&x.states[n], e) {
				continue
			}
			x.transitions++
			next := x.states[n]
			if problem := x.move(&next, e); problem != "" {
				return x.story(n, e, &next, problem)
			}
			if x.visit != nil {
				x.visit(&x.states[n], &next, e)
			}
			if !seen[next] {
				seen[next] = true
				x.states, x.from = append(x.states, next), append(x.from, origin{n, *e})
			}
		}
	}
	return ""
}

// story describes a disagreement.
func (x *exploration) story(n int, last *event, next *pair, problem string) string {
	var events []string
	for ; n > 0; n = x.from[n].state {
		events = append([]string{x.from[n].event.String()}, events...)
	}
	events = append(events, last.String())
	return fmt.Sprintf("%v: %s after\n  %s\nstep   %+v, attempt %q\nworker %+v",
		x.kind, problem, strings.Join(events, "\n  "), next.state, next.attempt, next.worker)
}

// pair is the state of both sides.
type pair struct {
	rule    probe.Rule // current rule of Step
	state   verdict.State
	attempt string // instance of the attempt in flight; empty if there is none
	worker  kubeletWorker
}

// move applies an event to both sides, and returns how they differ, or "".
func (x *exploration) move(p *pair, e *event) (problem string) {
	e.change(&p.rule)
	switch e.what {
	case tick:
		p.look(e)
		x.tick(&p.worker, e)
	case result:
		p.count(e)
		x.result(&p.worker, e)
	case reloaded, replaced, moved:
		p.reload(e.what)
		x.reload(&p.worker, p.rule, e.what)
	case trusted, verified, forgotten:
		if err := p.resume(e.what); err != nil {
			return err.Error()
		}
		x.restart(&p.worker, p.rule, e.what)
	}
	p.bound(x.most + 1)
	w := &p.worker
	switch {
	case letterOf(p.state) != w.published:
		return "another verdict"
	case p.state.Instance != w.container:
		return "another instance"
	case p.state.OnHold != w.onHold:
		return "another hold"
	case p.attempt != w.attempt:
		return "another attempt"
	}
	return ""
}

// bound limits a value that grows forever without further effect: a run that exceeds all thresholds.
func (p *pair) bound(enough int32) {
	if p.state.Errors = 0; p.state.Policy == probe.PolicyRuns {
		p.state.Run = min(p.state.Run, enough)
	}
	p.worker.run = min(p.worker.run, enough)
}

// look passes a look at an instance to Step, and begins an attempt if Step permits one. An attempt in flight continues, unless
// another one begins: its result may be passed to Step regardless of later events.
func (p *pair) look(e *event) {
	in := e.at(e.instance)
	var next verdict.Next
	p.state, next = verdict.Step(p.rule, p.state, verdict.Event{Instance: in, Started: e.started}, t0)
	if next.WaitReason == verdict.NotWaiting {
		p.attempt = in.ID
	}
}

// count passes the result of the attempt in flight to Step. A failure of the engine itself never counts, regardless of the rule.
func (p *pair) count(e *event) {
	rule := p.rule
	if e.ours {
		rule.OnError = probe.ErrorIgnored
	}
	ev := verdict.Event{Attempted: true, Instance: e.at(p.attempt), Outcome: e.outcome, Extra: e.extra}
	p.state, _ = verdict.Step(rule, p.state, ev, t0)
	p.attempt = ""
}

// reload does what the engine does when a probe changes. The attempt in flight continues only if nothing but the rule changes.
func (p *pair) reload(what eventType) {
	switch what {
	case replaced:
		p.state, p.attempt = verdict.Renew(p.rule.Kind, p.state), ""
	case moved:
		p.state, p.attempt = verdict.Relocate(p.rule.Kind, p.state), ""
	}
}

// resume does what an engine does when it starts with the state of the previous one.
func (p *pair) resume(what eventType) (err error) {
	p.attempt = ""
	switch what {
	case trusted:
		p.state, err = verdict.Restore(p.rule, p.state)
	case verified:
		p.state, err = verdict.Restore(p.rule, verdict.Renew(p.rule.Kind, p.state))
	case forgotten:
		p.state = verdict.State{}
	}
	return err
}
