package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// polled has the status of each target that a subscriber has received.
type polled map[string]engine.TargetStatus

// poll receives all changes of a subscription.
func (p polled) poll(sub *engine.TargetSubscription) (n int) {
	for st, ok := sub.Poll(); ok; st, ok = sub.Poll() {
		n++
		if p[st.Target] = st; st.Removed {
			delete(p, st.Target)
		}
	}
	return n
}

// differences returns the targets whose received status is wrong.
func (p polled) differences(e *engine.Engine) (wrong []string) {
	count := 0
	for st := range e.Select(context.Background(), engine.Filter{}) {
		count++
		known, ok := p[st.Target]
		if !ok || known.Ready != st.Ready || known.Decided != st.Decided || known.Gateway != st.Gateway || !maps.Equal(known.Labels, st.Labels) || known.Instance.Phase != st.Instance.Phase {
			wrong = append(wrong, fmt.Sprintf("%s: knows %v %v %v %v, is %v %v %v %v", st.Target,
				known.Ready, known.Decided, known.Labels, known.Instance.Phase, st.Ready, st.Decided, st.Labels, st.Instance.Phase))
		}
	}
	if count != len(p) {
		wrong = append(wrong, fmt.Sprintf("it knows %d targets of %d", len(p), count))
	}
	return wrong
}

// A subscriber to targets that has polled always has the current status of each target.
func TestASubscriberToTargetsMissesNothing(t *testing.T) {
	tier.Slow(t)
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				r := rand.New(rand.NewPCG(seed, 0))
				handlers := make([]*script, 6)
				for i := range handlers {
					handlers[i] = says(probe.Outcome(r.IntN(4)))
				}
				var sub *engine.TargetSubscription
				known := polled{}
				for step := range 400 {
					if step == r.IntN(20) && sub == nil || step == 20 && sub == nil {
						sub = e.SubscribeTargets()
						defer sub.Close()
					}
					randomStep(t, e, r, handlers)
					if sub == nil || r.IntN(3) == 0 {
						continue
					}
					synctest.Wait() // a report may have made an attempt due
					known.poll(sub)
					if wrong := known.differences(e); len(wrong) > 0 {
						t.Fatalf("after step %d: %s", step, wrong[0])
					}
				}
			})
		})
	}
}

// randomStep changes the handlers, the instances or the probes of six targets, reports observations of them, or lets time pass.
func randomStep(t *testing.T, e *engine.Engine, r *rand.Rand, handlers []*script) {
	i := r.IntN(len(handlers))
	target := fmt.Sprintf("t%d", i)
	switch r.IntN(7) {
	case 6:
		id := probe.ID{Target: target, Kind: probe.Kind(1 + r.IntN(3))}
		for range r.IntN(2 * engine.EjectAfter) {
			e.Observe(id, probe.Observation{Outcome: []probe.Outcome{probe.Failure, probe.Failure, probe.Failure, probe.Failure, probe.Failure, probe.Failure, probe.Success}[r.IntN(7)]})
		}
	case 0:
		handlers[i].say(probe.Outcome(r.IntN(4)))
	case 1:
		e.Report(probe.Instance{
			Target: target, ID: fmt.Sprint(r.IntN(3)), Phase: probe.Phase(r.IntN(5)), Since: time.Now(),
			Managed: r.IntN(2) == 0, Restarts: r.Int32N(2), Terminating: r.IntN(8) == 0,
		})
	case 2:
		randomApply(t, e, r, handlers)
	default:
		pass(time.Duration(r.IntN(12)) * time.Second)
	}
}

func randomApply(t *testing.T, e *engine.Engine, r *rand.Rand, handlers []*script) {
	set := probe.Set{}
	for i, h := range handlers {
		for kind := probe.Startup; kind <= probe.Liveness; kind++ {
			p := labeled(with(h), map[string]string{"color": fmt.Sprint(r.IntN(2))})
			p.Target.Address = fmt.Sprintf("10.0.0.%d", 1+r.IntN(10)/9)
			p.Rule.FailureThreshold = 1 + r.Int32N(2)
			p.Target.Static = r.IntN(8) == 0
			if r.IntN(3) > 0 {
				set[probe.ID{Target: fmt.Sprintf("t%d", i), Kind: kind}] = p
			}
		}
	}
	apply(t, e, set)
}

func TestATargetIsUndecidedUntilAttemptsFindOut(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Unknown)
		is := func(ready, decided bool) {
			t.Helper()
			if st, _ := e.Target("web"); st.Ready != ready || st.Decided != decided {
				t.Errorf("ready is %v and decided %v, want %v and %v: %+v", st.Ready, st.Decided, ready, decided, st)
			}
		}
		apply(t, e, probe.Set{readiness: with(h)})
		is(false, false)
		e.Report(instance("a"))
		pass(time.Minute)
		is(false, false) // attempts that could not be made are no evidence
		h.say(probe.Failure)
		pass(time.Minute)
		is(false, true)
		h.say(probe.Success)
		pass(time.Minute)
		is(true, true)
		h.say(probe.Unknown)
		e.Report(instance("b"))
		pass(time.Minute)
		is(false, true) // it was replaced: it is not ready, which is known from the earlier instance
		moved := with(h)
		moved.Target.Address = "10.0.0.2"
		apply(t, e, probe.Set{readiness: moved})
		is(false, false) // nothing is known of the new address
	})
}

func TestATargetThatDoesNotStartIsDecided(t *testing.T) {
	for _, c := range []struct {
		in      probe.Instance
		decided bool
	}{
		{probe.Instance{Phase: probe.Waiting}, false},
		{probe.Instance{Phase: probe.Waiting, Reason: probe.ReasonResources}, false},
		{probe.Instance{Phase: probe.Waiting, Reason: probe.ReasonNoStart}, true},
		{probe.Instance{Phase: probe.Waiting, Reason: probe.ReasonBackOff}, true},
		{probe.Instance{Phase: probe.Waiting, Restarts: 1}, true},
		{probe.Instance{Phase: probe.Ended}, true},
		{probe.Instance{Phase: probe.Gone}, true},
	} {
		e := engine.New(engine.Config{})
		if _, err := e.Apply(probe.Set{readiness: with(says(probe.Success))}); err != nil {
			t.Fatal(err)
		}
		c.in.Target, c.in.ID = "web", "a"
		e.Report(c.in)
		if st, _ := e.Target("web"); st.Ready || st.Decided != c.decided {
			t.Errorf("%+v: ready is %v, decided %v", c.in, st.Ready, st.Decided)
		}
	}
}

// A removal need not be delivered if the subscriber never received the target, so that short-lived targets do not fill its queue.
func TestAnUnreadTargetSubscriptionDoesNotKeepRemovedNames(t *testing.T) {
	e := engine.New(engine.Config{})
	sub := e.SubscribeTargets()
	defer sub.Close()
	polled{}.poll(sub)
	for i := range 10_000 {
		id := probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}
		if _, err := e.Change(engine.Change{Set: probe.Set{id: with(says(probe.Success))}}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Change(engine.Change{Remove: []probe.ID{id}}); err != nil {
			t.Fatal(err)
		}
		e.Report(probe.Instance{Target: fmt.Sprint("u", i), ID: "a", Phase: probe.Gone})
		e.Report(probe.Instance{Target: fmt.Sprint("v", i), ID: "a", Phase: probe.Running, Managed: true})
		e.Report(probe.Instance{Target: fmt.Sprint("v", i), ID: "a", Phase: probe.Gone})
	}
	if n := (polled{}).poll(sub); n != 0 {
		t.Errorf("%d targets were delivered, and none exists", n)
	}
}

// A gateway keeps the gauge of a target, and must not lose it to a change of the target's probes.
func TestATargetWhoseOnlyProbeIsReplacedByAnotherIsTheSame(t *testing.T) {
	for name, id := range map[string]probe.ID{"name before": named(readiness, "a"), "name after": named(readiness, "z"), "kind before": startup, "kind after": liveness} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				p := with(says(probe.Success))
				p.Target.Static = true
				old := named(readiness, "m")
				apply(t, e, probe.Set{old: p})
				pass(time.Minute)
				gauge, _ := e.WatchTarget("web")
				if !gauge.Ready() {
					t.Fatal("the target is not ready")
				}
				preview, err := preview(e, engine.Change{Set: probe.Set{id: p}, All: true})
				if err != nil || !slices.IsSortedFunc(preview.Probes, func(a, b engine.ProbeChange) int { return a.ID.Compare(b.ID) }) {
					t.Errorf("the preview is %+v, %v", preview, err)
				}
				apply(t, e, probe.Set{id: p})
				pass(time.Minute)
				checkGauge(t, e, "web", gauge)
				if now, _ := e.WatchTarget("web"); now != gauge || !gauge.Ready() || gauge.Gateway() != probe.GatewayReady {
					t.Errorf("the gauge that was kept is %v", gauge.Gateway())
				}
			})
		})
	}
}
