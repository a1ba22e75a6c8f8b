package verdict_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// statesFile has the states of probes. It is generated from an exploration.
const statesFile = "../../docs/states.md"

// TestDocumentShowsTheStatesThatExist compares docs/states.md with the states and
// transitions that an exploration finds. With -rewrite it writes the file.
func TestDocumentShowsTheStatesThatExist(t *testing.T) {
	var b strings.Builder
	b.WriteString(statesIntroduction)
	for kind := probe.Startup; kind <= probe.Liveness; kind++ {
		newDiagram(t, kind).write(&b)
	}
	writeDifferences(&b)
	if *rewrite {
		if err := os.WriteFile(statesFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(statesFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Errorf("%s is out of date, run make docs. It should be:\n%s", statesFile, b.String())
	}
}

// A paused target is never in trouble, and gets no requests while its instance runs. A target that is absent, or has ended, keeps
// its state.
func TestAPausedTargetIsNotInTroubleAndDrains(t *testing.T) {
	for s := range probe.TargetState(probe.TargetStates) {
		got, _ := verdict.Conditions{Paused: true}.Fold(probe.Running, s, probe.GatewayReady)
		kept := s == probe.StateAbsent || s == probe.StateStopped || s == probe.StateCompleted
		if got.InTrouble() || kept != (got == s && s != probe.StatePaused) || !kept && got != probe.StatePaused {
			t.Errorf("of a paused target %v is %v", s, got)
		}
	}
	for g := range probe.GatewayState(probe.GatewayStates) {
		for p := probe.Absent; p <= probe.Gone; p++ {
			want := g
			if p == probe.Running {
				want = probe.GatewayDraining
			}
			if _, got := (verdict.Conditions{Paused: true}).Fold(p, probe.StateReady, g); got != want {
				t.Errorf("to gateways a paused target that is %v, and is %v, is %v, want %v", p, g, got, want)
			}
		}
	}
}

const statesIntroduction = `<!-- Written by make docs from the code of engine/verdict. Do not edit. -->

# The states of a probe

A test gives every event to ` + "`verdict.Step`" + ` in every state that events lead to, beside a model of the kubelet's worker.
This page is written from what it finds. The diagrams leave out the counts of runs, and the attempts that change no
state. They are for the default compatibility, and for a target whose instances a driver replaces; a startup or
liveness probe of another target is not held when it fails.

Not in the diagrams: a probe that is removed has no state. A restart of the engine changes no state with
` + "`resume = \"trust\"`" + `, is like another handler with ` + "`\"verify\"`" + `, and without ` + "`state`" + ` leads back to "no instance".
`

// diagram is the result of exploring one kind of probe, without counts.
type diagram struct {
	kind   probe.Kind
	states map[string]*stateRow
	arrows map[[2]string]map[string]bool // from and to; the events
}

// stateRow has the properties of one state.
type stateRow struct {
	verdict  probe.Verdict
	attempts bool
	waits    map[string]bool
}

// abstractStates are the states of the diagrams, in order: ID and name.
var abstractStates = [][2]string{
	{"none", "no instance"},
	{"stopped", "not running"},
	{"undecided", "undecided"},
	{"failing", "failing"},
	{"passing", "passing"},
	{"held_failing", "failing, on hold"},
	{"held_passing", "passing, on hold"},
}

// abstractState returns the ID of the state without its counts.
func abstractState(s verdict.State) string {
	switch {
	case s.Instance == "":
		return "none"
	case s.Down:
		return "stopped"
	case s.OnHold:
		return "held_" + s.Verdict.String()
	}
	return s.Verdict.String()
}

func newDiagram(t *testing.T, kind probe.Kind) *diagram {
	d := &diagram{kind: kind, states: map[string]*stateRow{}, arrows: map[[2]string]map[string]bool{}}
	x := newExploration(kind)
	x.events = slices.DeleteFunc(x.events, isLeftOut)
	x.visit = d.add
	if problem := x.run(); problem != "" {
		t.Fatal(problem)
	}
	return d
}

// isLeftOut reports whether an event is omitted from the diagrams.
func isLeftOut(e event) bool {
	hasInstance := e.what == result || e.what == tick && e.phase != probe.Absent
	return hasInstance && !e.managed || e.compatibility != 0 || e.onError != 0 || e.what >= trusted
}

// add adds a transition.
func (d *diagram) add(from, to *pair, e *event) {
	id := abstractState(to.state)
	if d.states[id] == nil {
		d.states[id] = &stateRow{verdict: to.state.Verdict, waits: map[string]bool{}}
	}
	if e.what == tick {
		_, next := verdict.Step(to.rule, to.state, verdict.Event{Instance: e.at(e.instance), Started: e.started}, t0)
		d.states[id].attempts = d.states[id].attempts || next.WaitReason == verdict.NotWaiting
		if next.WaitReason != verdict.NotWaiting {
			d.states[id].waits[next.WaitReason.String()] = true
		}
	}
	if arrow := [2]string{abstractState(from.state), id}; arrow[0] != id {
		if d.arrows[arrow] == nil {
			d.arrows[arrow] = map[string]bool{}
		}
		d.arrows[arrow][d.label(&from.state, e)] = true
	}
}

// label returns the label of an event in a diagram.
func (d *diagram) label(from *verdict.State, e *event) string {
	isAnother := from.Instance != "" && from.Instance != e.instance
	succeeded := e.outcome == probe.Success || e.outcome == probe.Warning
	switch {
	case e.what != tick && e.what != result:
		return eventNames[e.what]
	case e.what == result && succeeded && d.kind == probe.Readiness:
		return "success_threshold successes"
	case e.what == result && succeeded:
		return "a success"
	case e.what == result:
		return "failure_threshold failures"
	case e.phase != probe.Running && from.OnHold:
		return "another instance, not running"
	case e.phase != probe.Running:
		return "does not run"
	case isAnother:
		return "another instance"
	case from.Down:
		return "runs again"
	case e.terminating && from.Instance != "":
		return "is terminated"
	}
	return "an instance runs"
}

// write writes the diagram and the table of its states.
func (d *diagram) write(b *strings.Builder) {
	name := d.kind.String()
	fmt.Fprintf(b, "\n## %s%s\n\n```mermaid\nstateDiagram-v2\n    [*] --> none\n", strings.ToUpper(name[:1]), name[1:])
	for _, s := range abstractStates {
		if d.states[s[0]] != nil && s[0] != s[1] {
			fmt.Fprintf(b, "    state %q as %s\n", s[1], s[0])
		}
	}
	for _, from := range abstractStates {
		for _, to := range abstractStates {
			if events := d.arrows[[2]string{from[0], to[0]}]; len(events) > 0 {
				fmt.Fprintf(b, "    %s --> %s: %s\n", from[0], to[0], strings.Join(slices.Sorted(maps.Keys(events)), ", "))
			}
		}
	}
	b.WriteString("```\n\n| state | verdict | attempts | may wait for |\n|---|---|---|---|\n")
	for _, s := range abstractStates {
		if row := d.states[s[0]]; row != nil {
			attempts := map[bool]string{true: "yes", false: "no"}[row.attempts]
			waits := slices.Sorted(maps.Keys(row.waits))
			fmt.Fprintf(b, "| %s | %v | %s | %s |\n", s[1], row.verdict, attempts, codes(waits))
		}
	}
}

// codes formats words as code.
func codes(words []string) string {
	if len(words) == 0 {
		return "–"
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

// writeDifferences writes the table of byDesign.
func writeDifferences(b *strings.Builder) {
	b.WriteString(`
## Differences from the kubelet's worker

The model of the worker is written from [kubelet.md](kubelet.md). Step differs from it in these rows, and in no other;
the test takes away one row after the other, and fails if that makes no difference.

| K | the kubelet | Sonde | reason | with ` + "`compatibility = \"kubelet\"`" + ` |
|---|---|---|---|---|
`)
	for _, d := range byDesign {
		compatible := map[bool]string{true: "as the kubelet", false: "no change"}[d.mended]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", d.k, d.kubelet, d.sonde, d.reason, compatible)
	}
}

// A dependency explains what probes and exits have found, but not that a program cannot be started, and it does not affect a
// healthy target.
func TestADependencyExplainsFailures(t *testing.T) {
	for s := range probe.TargetState(probe.TargetStates) {
		explained := map[probe.TargetState]bool{
			probe.StateCrashLooping: true, probe.StateRestartBlocked: true, probe.StateFailing: true, probe.StateNotReady: true, probe.StateBlind: true,
		}[s]
		want := s
		if explained {
			want = probe.StateUnreachable
		}
		if got := verdict.OfDependent(s); got != want || got.InTrouble() != (s.InTrouble() && !explained) {
			t.Errorf("of a dependent %v is %v, want %v", s, got, want)
		}
		if got := verdict.ExplainsDependents(verdict.OfDependent(s)); got != verdict.ExplainsDependents(s) {
			t.Errorf("%v explains dependents: %v, and as that of a dependent: not", s, !got)
		}
	}
}
