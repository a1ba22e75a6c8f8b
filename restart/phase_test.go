package restart

import (
	"fmt"
	"strings"
	"testing"
)

var phaseNames = [phases]string{"starting", "running", "failing", "ending", "replacing", "terminating", "shutting down", "releasing"}

func (p phase) String() string { return phaseNames[p] }

var eventNames = [...]string{
	"none", "begins", "continues", "recovers", "ignores", "waits", "fails", "requested", "expires", "refused", "unwanted", "stops", "outlives",
}

func (e event) String() string { return eventNames[e] }

var actionNames = [...]string{
	"nothing", "announce", "settle", "cancel", "disregard", "postpone", "end", "end later", "replace", "give up", "free", "terminate", "release", "finish, then release", "let go",
}

func (a action) String() string { return actionNames[a] }

// The whole table: an event that is not listed changes nothing.
func TestEachEventInEachPhase(t *testing.T) {
	want := map[phase]string{
		starting:     "begins: running, announce; continues: ending, announce; unwanted: terminating, terminate; stops: shutting down, terminate; outlives: releasing, release",
		running:      "recovers: running, settle; ignores: running, disregard; waits: failing, postpone; fails: ending, end; requested: replacing, replace; refused: running, free; unwanted: terminating, terminate; stops: shutting down, terminate; outlives: releasing, release",
		failing:      "recovers: running, cancel; ignores: running, disregard; waits: failing, postpone; fails: ending, end; requested: replacing, replace; refused: failing, free; unwanted: terminating, terminate; stops: shutting down, terminate; outlives: releasing, release",
		ending:       "recovers: running, cancel; ignores: running, disregard; requested: replacing, replace; expires: failing, end later; refused: ending, free; unwanted: terminating, terminate; stops: shutting down, terminate; outlives: releasing, finish, then release",
		replacing:    "expires: running, give up; refused: running, give up; unwanted: terminating, terminate; stops: shutting down, terminate; outlives: releasing, finish, then release",
		terminating:  "begins: terminating, announce; continues: terminating, announce; refused: terminating, free",
		shuttingDown: "begins: shutting down, announce; continues: shutting down, announce; refused: shutting down, free",
		releasing:    "begins: releasing, announce; continues: releasing, announce; expires: releasing, let go; refused: releasing, let go",
	}
	for p := range phase(phases) {
		var all []string
		for e := range event(len(eventNames)) {
			if next, do := p.on(e); next != p || do != doNothing {
				all = append(all, fmt.Sprintf("%v: %v, %v", e, next, do))
			}
		}
		if got := strings.Join(all, "; "); got != want[p] {
			t.Errorf("%v:\n%s, want\n%s", p, got, want[p])
		}
	}
}

// walk calls visit for each reachable phase and event.
func walk(visit func(before phase, e event, after phase, do action)) {
	seen, open := map[phase]bool{starting: true}, []phase{starting}
	for len(open) > 0 {
		p := open[0]
		open = open[1:]
		for e := range event(len(eventNames)) {
			next, do := p.on(e)
			visit(p, e, next, do)
			if !seen[next] {
				seen[next] = true
				open = append(open, next)
			}
		}
	}
}

func TestLawsOfPhases(t *testing.T) {
	reached, done := map[phase]bool{}, map[action]bool{}
	walk(func(before phase, e event, after phase, do action) {
		reached[after], done[do] = true, true
		asks := do == doEnd || do == doReplace || do == doTerminate
		switch name := fmt.Sprintf("%v on %v", before, e); {
		case before.isLast() && after != before:
			t.Errorf("%s: an instance that is not wanted comes back as %v", name, after)
		case asks != (after != before && (after == ending && e != continues || after == replacing || after.isTerminating())):
			t.Errorf("%s: the driver is asked to terminate it (%v), and it is %v", name, do, after)
		case before == starting && do != doNothing && e != begins && e != continues && !after.isLast():
			t.Errorf("%s: an instance that has not started is %v", name, after)
		case (e == unwanted || e == stops || e == outlives) && !after.isLast():
			t.Errorf("%s: an instance that is not wanted stays %v", name, after)
		case do == doLetGo && before != releasing:
			t.Errorf("%s: an instance is let go that is not released", name)
		}
	})
	for p := range phase(phases) {
		if !reached[p] {
			t.Errorf("%v is never reached", p)
		}
	}
	for a := range action(len(actionNames)) {
		if !done[a] {
			t.Errorf("%v is never done", a)
		}
	}
}
