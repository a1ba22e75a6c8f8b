package verdict_test

import (
	"fmt"
	"testing"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// TestEveryReachableStateAgreesWithTheKubeletsWorker follows all ticks from all states
// that they lead to, for all thresholds up to 5 and three instances. Step, and a model of
// the kubelet's worker that is written from docs/kubelet.md and shares no code with it,
// get the same ticks. They must publish the same, and make the same attempts; by default
// too, with a model that lacks the accidents which Sonde mends.
func TestEveryReachableStateAgreesWithTheKubeletsWorker(t *testing.T) {
	const most = 5
	states, ticks := 0, 0
	for _, c := range []probe.Compatibility{probe.Kubelet, probe.Mended} {
		for kind := probe.Startup; kind <= probe.Liveness; kind++ {
			for failure := range int32(most) {
				for success := range int32(most) {
					if success > 0 && kind != probe.Readiness {
						continue
					}
					r := probe.Rule{Kind: kind, SuccessThreshold: success + 1, FailureThreshold: failure + 1, Compatibility: c}
					s, n := explore(t, r)
					states, ticks = states+s, ticks+n
					if t.Failed() {
						return
					}
				}
			}
		}
	}
	if states < 5000 || ticks < 2_000_000 {
		t.Errorf("only %d states and %d ticks were found", states, ticks)
	}
}

// pairOf is the state of both sides.
type pairOf struct {
	step   verdict.State
	worker kubeletWorker
}

// explore returns how many states and ticks there are.
func explore(t *testing.T, r probe.Rule) (states, ticks int) {
	all := allTicks()
	first := pairOf{worker: kubeletWorker{last: true}}
	seen := map[pairOf]bool{first: true}
	for queue := []pairOf{first}; len(queue) > 0; queue = queue[1:] {
		for _, tick := range all {
			ticks++
			next, attempted := queue[0], false
			next.step, attempted = stepOn(r, next.step, tick)
			expected := next.worker.tick(r, tick)
			if text := difference(next); text != "" || attempted != expected {
				t.Errorf("%+v\nfrom %+v\nby %+v\nto %+v\n%s; attempted %v, the worker %v", r, queue[0], tick, next, text, attempted, expected)
				return
			}
			next.forget()
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return len(seen), ticks
}

// forget bounds what grows for ever, and decides no more.
func (p *pairOf) forget() {
	const enough = 6
	p.step.Run, p.step.Errors = min(p.step.Run, enough), 0
	p.worker.run = min(p.worker.run, enough)
}

// oneTick is what a worker finds at a tick, and what an attempt would find.
type oneTick struct {
	instance    string
	phase       probe.Phase
	started     bool
	terminating bool
	outcome     probe.Outcome
	extra       bool // not at a regular time: the kubelet triggers readiness like that (K96)
}

func allTicks() (all []oneTick) {
	bools := []bool{false, true}
	for _, id := range []string{"a", "b", "c"} {
		for phase := probe.Absent; phase <= probe.Gone; phase++ {
			for _, started := range bools {
				for _, terminating := range bools {
					for outcome := probe.Unknown; outcome <= probe.Failure; outcome++ {
						for _, extra := range bools {
							all = append(all, oneTick{id, phase, started, terminating, outcome, extra})
						}
					}
				}
			}
		}
	}
	return all
}

// stepOn gives a tick to Step: a look and, if it may be made, an attempt.
func stepOn(r probe.Rule, s verdict.State, k oneTick) (verdict.State, bool) {
	in := probe.Instance{Target: "web", ID: k.instance, Phase: k.phase, Since: t0, Managed: true, Terminating: k.terminating}
	s, next := verdict.Step(r, s, verdict.Event{Type: verdict.Looked, Instance: in, Started: k.started}, t0)
	if next.Do != verdict.Attempt {
		return s, false
	}
	s, _ = verdict.Step(r, s, verdict.Event{Type: verdict.Attempted, Instance: in, Outcome: k.outcome, Extra: k.extra}, t0)
	return s, true
}

// kubeletWorker is the kubelet's worker of one probe. Published is what is in the results
// cache: 's', 'f', 'u' for its Unknown, and 0 for nothing.
type kubeletWorker struct {
	container string
	published byte
	last      bool // of the run: it succeeded; so it is before the first attempt
	run       int
	onHold    bool
	down      bool // Mended only: published since the container does not run
}

// tick is doProbe, and reports whether it made an attempt.
func (w *kubeletWorker) tick(r probe.Rule, k oneTick) bool {
	mended := r.Compatibility == probe.Mended
	initial := map[probe.Kind]byte{probe.Startup: 'u', probe.Readiness: 'f', probe.Liveness: 's'}[r.Kind]
	if k.phase == probe.Absent { // K31, K33
		return false
	}
	if w.container != k.instance { // K34
		w.container, w.published, w.onHold, w.down = k.instance, initial, false, false
		if mended { // K48
			w.last, w.run = true, 0
		}
	}
	if w.onHold { // K36
		return false
	}
	if k.phase != probe.Running { // K37
		w.published = 'f'
		if w.down = mended; mended && r.Kind == probe.Liveness {
			w.published = 'u'
		}
		return false
	}
	if w.down {
		w.published, w.down = initial, false
	}
	if k.terminating && r.Kind != probe.Readiness { // K38
		if r.Kind == probe.Liveness || !mended { // K99
			w.published = 's'
		}
		return false
	}
	if k.started == (r.Kind == probe.Startup) { // K40
		return false
	}
	w.count(r, k)
	return true
}

// count is the part of doProbe after the attempt.
func (w *kubeletWorker) count(r probe.Rule, k oneTick) {
	succeeded := k.outcome == probe.Success || k.outcome == probe.Warning // K45
	switch {
	case k.outcome == probe.Unknown: // K41
		return
	case k.extra && !succeeded: // counts only against a run of successes
		if w.last {
			w.run = 0
		}
		return
	case w.last == succeeded:
		w.run++
	default:
		w.last, w.run = succeeded, 1
	}
	if succeeded && w.run < int(r.SuccessThreshold) || !succeeded && w.run < int(r.FailureThreshold) { // K46
		return
	}
	w.published = 'f'
	if succeeded {
		w.published = 's'
	}
	if r.Kind == probe.Startup || r.Kind == probe.Liveness && !succeeded { // K49
		w.onHold, w.run = true, 0
	}
}

// difference says how the sides differ, if they do.
func difference(p pairOf) string {
	published := map[probe.Verdict]byte{probe.Undecided: 'u', probe.Passing: 's', probe.Failing: 'f'}[p.step.Verdict]
	if p.worker.published == 0 {
		published = 0 // nothing was published yet
	}
	if published != p.worker.published || p.step.Instance != p.worker.container || p.step.OnHold != p.worker.onHold {
		return fmt.Sprintf("Step has published %c about %q, hold %v", published, p.step.Instance, p.step.OnHold)
	}
	return ""
}
