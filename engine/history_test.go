package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

func describe(past []engine.Transition) (all []string) {
	for _, t := range past {
		about := fmt.Sprintf("%s %v restarts %d", t.Instance, t.Phase, t.Restarts)
		if t.Kind != 0 {
			about = fmt.Sprintf("%v %v after %d, blind %v", t.Kind, t.Verdict, t.Attempts, t.Blind)
		}
		all = append(all, strings.TrimRight(fmt.Sprintf("%s, %v: %s %s", about, t.State, t.Reason, t.Detail), " :"))
	}
	return all
}

func TestHistoryHasWhatHasTurnedAndWhy(t *testing.T) {
	var told atomic.Int32
	bubble(t, engine.Config{Recorded: func(_ string, r engine.Record) {
		if r == engine.RecordHistory {
			told.Add(1)
		}
	}}, func(t *testing.T, e *engine.Engine) {
		live, ready := says(probe.Success), says(probe.Success)
		apply(t, e, probe.Set{liveness: with(live), readiness: with(ready)})
		e.Report(instance("1"))
		pass(time.Minute)
		if past := e.Records().History("web"); past != nil || told.Load() > 0 {
			t.Errorf("a target that is well has the history %v", past)
		}
		live.give(probe.Fail(probe.ReasonHTTPStatus, "status 503"))
		pass(time.Minute)
		over := instance("1")
		over.Phase, over.Reason, over.Detail = probe.Ended, probe.ReasonEnded, "exit status 143: bye"
		e.Report(over)
		live.give(probe.Succeed(""))
		again := instance("2")
		again.Restarts = 1
		e.Report(again)
		pass(time.Minute)
		ready.give(probe.Broken("plugin.trap", "unreachable"))
		pass(time.Minute)
		ready.give(probe.Succeed(""))
		pass(time.Minute)
		want := []string{
			"liveness failing after 3, blind false, failing: http.status status 503",
			"1 ended restarts 0, restarting: restart.ended exit status 143: bye",
			"2 running restarts 1, starting",
			"readiness passing after 1, blind false, ready",
			"readiness passing after 3, blind true, blind: plugin.trap unreachable",
			"readiness passing after 1, blind false, ready",
		}
		if got := describe(e.Records().History("web")); !slices.Equal(got, want) {
			t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if int(told.Load()) != len(want) {
			t.Errorf("told of %d transitions", told.Load())
		}
	})
}

func TestHistoryGoesOnWithThatOfAnEarlierEngine(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		apply(t, e, probe.Set{readiness: with(h)})
		e.Report(instance("1"))
		pass(time.Minute)
		first := e.Records().History("web")
		h.say(probe.Success)
		pass(time.Minute)
		next := engine.New(engine.Config{})
		for _, target := range e.Records().Histories() {
			next.Records().RestoreHistory(target, e.Records().History(target))
		}
		if got := next.Records().History("web"); len(first) != 1 || len(got) != 2 || got[0] != first[0] {
			t.Errorf("got %v, first %v", got, first)
		}
		memory, _ := e.Snapshot(readiness)
		for name, memories := range map[string]map[probe.ID]engine.Memory{"with its state": {readiness: memory}, "without": nil} {
			next := engine.New(engine.Config{})
			next.Records().RestoreHistory("web", first)
			if _, err := next.Change(engine.Change{Set: probe.Set{readiness: with(h)}, Memories: memories}); err != nil {
				t.Fatal(err)
			}
			goesOn := instance("1")
			goesOn.Since = time.Now().Add(-time.Minute)
			next.Report(goesOn)
			if got := next.Records().History("web"); len(got) != 1 {
				t.Errorf("%s: an instance that goes on adds %v", name, describe(got[1:]))
			}
			next.Report(instance("2"))
			if got := next.Records().History("web"); len(got) != 2 {
				t.Errorf("%s: another instance is not in %v", name, describe(got))
			}
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	e := engine.New(engine.Config{})
	long := strings.Repeat("x", 2*engine.MaxTransitionText)
	var past []engine.Transition
	for i := range 2 * engine.MaxTransitions {
		past = append(past, engine.Transition{At: time.Unix(int64(i), 0), Detail: long})
	}
	const targets = 4000
	for i := range targets {
		e.Records().RestoreHistory(fmt.Sprint(i), past)
	}
	last := e.Records().History(fmt.Sprint(targets - 1))
	if len(last) != engine.MaxTransitions || last[0].At.Unix() != engine.MaxTransitions || len(last[0].Detail) != engine.MaxTransitionText {
		t.Errorf("%d transitions, the first %+v", len(last), last[0])
	}
	bytes, kept := 0, 0
	for _, target := range e.Records().Histories() {
		kept++
		for _, t := range e.Records().History(target) {
			bytes += len(t.Detail)
		}
	}
	if kept == targets || bytes > engine.MaxHistory || bytes < engine.MaxHistory/4 || e.Records().History("0") != nil {
		t.Errorf("%d targets have %d bytes", kept, bytes)
	}
}

// A reader that lags behind gets all transitions in the order in which they occurred, and learns how many were discarded. So does
// a reader that continues after transitions of an earlier engine.
func TestTransitionsOfAllTargetsAreReadInOrder(t *testing.T) {
	e := engine.New(engine.Config{})
	const targets, each = 3, engine.MaxTransitions + 2
	for i := range each {
		for target := range targets {
			e.Records().RestoreHistory(fmt.Sprint(target), []engine.Transition{{At: time.Unix(int64(i), 0)}})
		}
	}
	for _, limit := range []int{1, 7, 1000} {
		for _, from := range []uint64{0, 1, 2*targets - 1, 2 * targets, 2*targets + 1, targets*each - 1, targets * each, targets*each + 5} {
			read, at := 0, from
			for {
				some, to := e.Records().TransitionsAfter(at, limit)
				for _, tr := range some {
					if tr.Seq <= at || tr.Target != fmt.Sprint((tr.Seq-1)%targets) {
						t.Fatalf("after %d: got %d of target %s", at, tr.Seq, tr.Target)
					}
					at = tr.Seq
				}
				if read += len(some); len(some) == 0 {
					at = to
					break
				}
			}
			if want := targets*each - max(int(from), 2*targets); read != max(want, 0) || at != max(from, targets*each) {
				t.Errorf("from %d by %d: read %d, want %d, up to %d", from, limit, read, want, at)
			}
		}
	}
	next := engine.New(engine.Config{})
	all, _ := e.Records().TransitionsAfter(0, 1000)
	for _, tr := range all {
		next.Records().RestoreHistory(tr.Target, []engine.Transition{tr.Transition})
	}
	if got, last := next.Records().TransitionsAfter(0, 1000); !slices.Equal(got, all) || last != targets*each {
		t.Errorf("the next engine has %d transitions up to %d, want %d", len(got), last, len(all))
	}
	next.Records().SkipTransitions(1000)
	next.Records().RestoreHistory("0", []engine.Transition{{}})
	if got, last := next.Records().TransitionsAfter(1000, 10); len(got) != 1 || got[0].Seq != 1001 || last != 1001 {
		t.Errorf("after skipping: %+v, %d", got, last)
	}
}
