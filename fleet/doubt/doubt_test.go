package doubt_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/doubt"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestAnEngineDoubtsWhatItAloneSees(t *testing.T) {
	for _, c := range []struct {
		name     string
		wasAlone bool
		o        doubt.Observation
		want     bool
	}{
		{"many fail, and none of others' targets", false, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 40, Others: doubt.Sample{Targets: 300, Failing: 3}}, true},
		{"others see the same", false, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 40, Others: doubt.Sample{Targets: 300, Failing: 120}}, false},
		{"others see a third of it", false, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 40, Others: doubt.Sample{Targets: 300, Failing: 40}}, false},
		{"it doubted, and others see a third of it", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 40, Others: doubt.Sample{Targets: 300, Failing: 40}}, true},
		{"it doubted, and others see half of it", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 40, Others: doubt.Sample{Targets: 300, Failing: 60}}, false},
		{"few fail", false, doubt.Observation{Own: doubt.Sample{Targets: 1000, Failing: 100}, New: 100, Others: doubt.Sample{Targets: 3000, Failing: 0}}, false},
		{"nine of nine fail", false, doubt.Observation{Own: doubt.Sample{Targets: 9, Failing: 9}, New: 9, Others: doubt.Sample{Targets: 300, Failing: 0}}, false},
		{"many fail, but not at once", false, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 5, Others: doubt.Sample{Targets: 300, Failing: 3}}, false},
		{"it doubted, and they still fail after the window", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 0, Others: doubt.Sample{Targets: 300, Failing: 3}}, true},
		{"it doubted, and they are well again", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 4}, New: 0, Others: doubt.Sample{Targets: 300, Failing: 3}}, false},
		{"it doubted, and a few still fail", true, doubt.Observation{Own: doubt.Sample{Targets: 20, Failing: 7}, New: 0, Others: doubt.Sample{Targets: 300, Failing: 0}}, true},
		{"it doubted, and four still fail", true, doubt.Observation{Own: doubt.Sample{Targets: 20, Failing: 4}, New: 0, Others: doubt.Sample{Targets: 300, Failing: 0}}, false},
		{"it doubted, and a twelfth still fails", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 8}, New: 0, Others: doubt.Sample{Targets: 300, Failing: 0}}, true},
		{"it doubted, and a fourteenth still fails", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 7}, New: 0, Others: doubt.Sample{Targets: 300, Failing: 0}}, false},
		{"it doubted, and half as many others are left as it needs to begin", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 20}, New: 0, Others: doubt.Sample{Targets: 20, Failing: 0}}, true},
		{"it doubted, and fewer others are left", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 20}, New: 0, Others: doubt.Sample{Targets: 19, Failing: 0}}, false},
		{"there are no others", false, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 100}, New: 100}, false},
		{"it doubted, and there are no others any more", true, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 100}, New: 100}, false},
		{"others have too few targets to tell", false, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 20}, New: 20, Others: doubt.Sample{Targets: 39, Failing: 0}}, false},
		{"others have enough targets to tell", false, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 20}, New: 20, Others: doubt.Sample{Targets: 40, Failing: 0}}, true},
		{"it has no targets", false, doubt.Observation{Others: doubt.Sample{Targets: 300, Failing: 0}}, false},
	} {
		s := step(doubt.State{Alone: c.wasAlone}, c.o, zero)
		if s.Alone != c.want || s.Doubtful != c.want || s.MayAct == c.want {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

// step returns the state after the same observation was made until others had time to publish theirs.
func step(s doubt.State, o doubt.Observation, now time.Time) doubt.State {
	for _, at := range []time.Time{now.Add(-doubt.Settle), now} {
		o.HeardAt = at
		s = doubt.Step(s, o, at)
	}
	return s
}

// steps returns the states after the same observation was made each second.
func steps(s doubt.State, o doubt.Observation, from time.Time, seconds int) (all []doubt.State) {
	for i := range seconds {
		o.HeardAt = from.Add(time.Duration(i) * time.Second)
		s = doubt.Step(s, o, o.HeardAt)
		all = append(all, s)
	}
	return all
}

func TestVotesCountAgainAndActsAreMadeAgainAfterTheRecovery(t *testing.T) {
	const recovery = int(doubt.Recovery / time.Second)
	well := doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 1}, Others: doubt.Sample{Targets: 300, Failing: 3}}
	if s := steps(doubt.State{}, well, zero, 1)[0]; s.Doubtful || !s.MayAct {
		t.Errorf("an engine that is well: %+v", s)
	}
	if (doubt.State{}).MayAct {
		t.Error("an engine acts that has observed nothing")
	}
	unwell := doubt.Step(doubt.State{}, doubt.Observation{Unwell: true, Own: well.Own, Others: well.Others}, zero)
	for i, s := range append([]doubt.State{unwell}, steps(unwell, well, zero.Add(time.Second), 2*recovery)...) {
		if isOver := i >= recovery; s.Doubtful == isOver || !s.MayAct {
			t.Errorf("%d s after it was unwell: %+v", i, s)
		}
	}
	alone := step(doubt.State{}, doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 50}, New: 50, Others: well.Others}, zero)
	for i, s := range append([]doubt.State{alone}, steps(alone, well, zero.Add(time.Second), 2*recovery)...) {
		if s.Doubtful != (i == 0) || s.MayAct != (i >= recovery) {
			t.Errorf("%d s after it alone saw targets fail: %+v", i, s)
		}
	}
}

// observations calls f with observations of all kinds.
func observations(f func(o doubt.Observation)) {
	for _, targets := range []int{0, 9, 10, 40, 100} {
		for failing := 0; failing <= targets; failing++ {
			for _, recent := range []int{0, failing / 2, failing} {
				for _, others := range []int{0, 8, 50, 300} {
					for _, theirs := range []int{0, others / 20, others / 8, others / 5, others / 3, others / 2, others} {
						f(doubt.Observation{Own: doubt.Sample{Targets: targets, Failing: failing}, New: recent, Others: doubt.Sample{Targets: others, Failing: theirs}})
					}
				}
			}
		}
	}
}

// All laws hold for all observations, from a state with doubts and from one without.
func TestLawsOfDoubts(t *testing.T) {
	explored := 0
	observations(func(o doubt.Observation) {
		for _, before := range []doubt.State{{}, {Alone: true, AloneAt: zero}} {
			explored++
			after := step(before, o, zero)
			law := func(isKept bool, name string) {
				if !isKept {
					t.Errorf("%+v after %+v: %s: %+v", o, before, name, after)
				}
			}
			changed := func(change func(*doubt.Observation)) doubt.State {
				c := o
				change(&c)
				return step(before, c, zero)
			}
			law(!after.Alone || after.Doubtful && !after.MayAct, "an engine that alone sees targets fail does not act")
			law(step(after, o, zero) == after, "the same observation changes nothing more")
			law(!after.Alone || o.Own.Failing > 0 && o.Others.Targets > 0, "alone is an engine whose targets fail, and not those of others")
			if o.Others.Failing < o.Others.Targets {
				law(after.Alone || !changed(func(o *doubt.Observation) { o.Others.Failing++ }).Alone, "a failing target of others gives no reason to doubt")
			}
			if o.Own.Failing < o.Own.Targets {
				more := changed(func(o *doubt.Observation) { o.Own.Failing++; o.New++ })
				law(!after.Alone || more.Alone, "a failing target of its own takes no reason to doubt away")
			}
			ill := changed(func(o *doubt.Observation) { o.Unwell = true })
			law(ill.Doubtful && ill.MayAct == after.MayAct && ill.Alone == after.Alone, "an engine that is not well doubts, and acts on what it does not doubt")
			deaf := o
			deaf.Others = doubt.Sample{}
			deafAfter := doubt.Step(before, deaf, zero)
			law(!deafAfter.Alone || before.Alone, "an engine that hears of no others does not begin to doubt")
			law(deafAfter.Alone || !after.Alone || !before.Alone, "an engine that hears of no others does not end to doubt for that")
		}
	})
	if explored < 5_000 {
		t.Errorf("only %d states were explored", explored)
	}
}

// Whatever the noise in the observations of others, nothing changes between the two thresholds.
func TestDoubtsDoNotFlap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, wasAlone := range []bool{false, true} {
		s := doubt.State{Alone: wasAlone}
		for i := range 1000 {
			noise := doubt.Observation{Own: doubt.Sample{Targets: 100, Failing: 40}, New: 40, Others: doubt.Sample{Targets: 300, Failing: 31 + random.IntN(28)}}
			if s = step(s, noise, zero.Add(time.Duration(i)*time.Second)); s.Alone != wasAlone {
				t.Fatalf("%+v changes it: %+v", noise, s)
			}
		}
	}
}

// engine is an engine of a fleet. Its targets are drawn at random from all targets.
type engine struct {
	doubt.State
	seen   doubt.Sample
	recent int
}

// observe makes an observation for each engine at the same time, as if the status of the others arrived late.
func observe(fleet []engine, at time.Time) {
	before := append([]engine(nil), fleet...)
	for i := range fleet {
		o := doubt.Observation{Own: fleet[i].seen, New: fleet[i].recent, HeardAt: at}
		for k, other := range before {
			if k != i && !other.Doubtful {
				o.Others.Targets += other.seen.Targets
				o.Others.Failing += other.seen.Failing
			}
		}
		fleet[i].State = doubt.Step(fleet[i].State, o, at)
	}
}

func doubtful(fleet []engine) (text string) {
	for i := range fleet {
		if fleet[i].Doubtful {
			text += fmt.Sprint(i)
		}
	}
	return text
}

func TestAFleetDoubtsTheEngineThatIsWrongAndNotAnOutage(t *testing.T) {
	well, down := doubt.Sample{Targets: 200, Failing: 2}, doubt.Sample{Targets: 200, Failing: 80}
	fleet := make([]engine, 4)
	for i := range fleet {
		fleet[i].seen = well
	}
	now := zero
	pass := func(seconds int) {
		for range seconds {
			now = now.Add(time.Second)
			observe(fleet, now)
		}
	}
	pass(5)
	fleet[2].seen, fleet[2].recent = down, 80 // its network fails partly
	pass(120)
	if got := doubtful(fleet); got != "2" {
		t.Errorf("those that doubt are %q", got)
	}
	fleet[2].recent = 0
	pass(3600)
	if got := doubtful(fleet); got != "2" {
		t.Errorf("an hour later those that doubt are %q", got)
	}
	fleet[2].seen = well
	pass(1)
	if got := doubtful(fleet); got != "" {
		t.Errorf("all is well, and those that doubt are %q", got)
	}
	pass(60)

	for i := range fleet { // a real outage, which the engines detect one after the other
		fleet[i].seen, fleet[i].recent = down, 80
		pass(1)
	}
	pass(2)
	if got := doubtful(fleet); got != "" {
		t.Errorf("the targets are down, and those that doubt are %q", got)
	}
	for i := range fleet {
		fleet[i].seen, fleet[i].recent = well, 0
	}
	pass(60)
	for i := range fleet { // all detect it together, before any has received another's status
		fleet[i].seen, fleet[i].recent = down, 80
	}
	pass(3)
	if got := doubtful(fleet); got != "" {
		t.Errorf("the targets went down at once, and those that doubt are %q", got)
	}
	pass(int(doubt.Recovery / time.Second))
	for i, e := range fleet {
		if !e.MayAct {
			t.Errorf("engine %d does not act: %+v", i, e)
		}
	}
}
