package quorum_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

const (
	vantages = 5
	targets  = 400
	period   = 100 * time.Millisecond
	tick     = period / 10 // the attempts of a vantage are spread over its period
)

// now is the time at which a world begins.
var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// column is a method of deriving a joint verdict from votes.
type column struct {
	name   string
	decide func(votes []quorum.Vote, last probe.Verdict) quorum.Decision

	last    [targets]quorum.Decision
	changes int
	latest  time.Time // when a joint verdict last changed
}

// byRule returns a column that decides by a rule.
func byRule(name string, r quorum.Rule) *column {
	r.Vantages = vantages
	r = r.WithDefaults()
	return &column{name: name, decide: func(votes []quorum.Vote, last probe.Verdict) quorum.Decision {
		return quorum.Decide(r, votes, "1", last)
	}}
}

// byNumber returns a column that works like other systems: it counts vantages, whether they are alive or not. A target
// fails if it fails for failing of them.
func byNumber(name string, failing int) *column {
	fresh := quorum.Rule{Vantages: vantages, Fail: quorum.FailAny, Min: 1}
	return &column{name: name, decide: func(votes []quorum.Vote, last probe.Verdict) quorum.Decision {
		d := quorum.Decide(fresh, votes, "1", last)
		switch {
		case len(d.Failing) >= failing:
			d.Verdict = probe.Failing
		case len(d.Passing) > vantages-failing:
			d.Verdict = probe.Passing
		default:
			d.Verdict = last
		}
		return d
	}}
}

// world has vantages that probe the same targets, each as an engine does.
type world struct {
	random *rand.Rand
	now    time.Time
	rule   probe.Rule
	states [vantages][targets]verdict.State
	votes  [targets][vantages]quorum.Vote
	died   [vantages]time.Time // when the vantage stopped making attempts

	loss   float64        // share of the attempts that fail though the target is well
	isCut  [vantages]bool // the vantage is alive, but reaches no target
	isDead [vantages]bool // the vantage makes no attempts, and its votes vanish with its lease
	isDown bool           // the targets are down
}

func newWorld() *world {
	w := &world{random: rand.New(rand.NewPCG(1, 2)), now: now, rule: probe.Rule{Kind: probe.Readiness, Period: period}.WithDefaults()}
	for v := range w.votes[0] {
		for i := range w.votes {
			w.votes[i][v] = quorum.Vote{Vantage: fmt.Sprint("vantage-", v), Instance: "1"}
		}
	}
	return w
}

// pass lets time pass, and updates columns with changed votes.
func (w *world) pass(d time.Duration, columns []*column) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(tick) {
		for i := range targets {
			hasNew := false
			for v := range vantages {
				offset := time.Duration((i+3*v)%10) * tick
				if !w.isDead[v] {
					w.died[v] = w.now
				}
				if !w.isDead[v] && w.now.Sub(now)%period == offset {
					hasNew = w.attempt(v, i) || hasNew
				}
			}
			for _, c := range columns {
				if hasNew || w.now.Sub(now)%period == 0 { // votes may have vanished
					c.count(w, i)
				}
			}
		}
	}
}

// attempt makes an attempt of a vantage at a target, and reports whether its verdict has changed.
func (w *world) attempt(v, i int) (isChanged bool) {
	in := probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: now}
	s, next := verdict.Step(w.rule, w.states[v][i], verdict.Event{Instance: in, Started: true}, w.now)
	if next.WaitReason != verdict.NotWaiting {
		panic("no attempt at a target that runs")
	}
	outcome := probe.Success
	if w.isDown || w.isCut[v] || w.random.Float64() < w.loss {
		outcome = probe.Failure
	}
	s, _ = verdict.Step(w.rule, s, verdict.Event{Attempted: true, Instance: in, Outcome: outcome}, w.now)
	w.states[v][i] = s
	vote := &w.votes[i][v]
	isChanged = vote.Verdict != s.Verdict
	vote.Verdict = s.Verdict
	return isChanged
}

// count updates the joint verdict of a target.
func (c *column) count(w *world, i int) {
	before := c.last[i].Verdict
	var votes []quorum.Vote
	for v, vote := range w.votes[i] {
		if w.now.Sub(w.died[v]) < 2*period {
			votes = append(votes, vote)
		}
	}
	c.last[i] = c.decide(votes, before)
	if c.last[i].Verdict != before {
		c.changes++
		c.latest = w.now
	}
}

// Scenarios in which several vantages are worth their cost. The columns other than majority show the results of simpler
// rules, and that the scenarios are hard enough.
func TestTheMajorityOfFreshVotesIsRightWhereOtherRulesAreNot(t *testing.T) {
	tier.Slow(t)
	anyOf, majority := byRule("any", quorum.Rule{Fail: quorum.FailAny}), byRule("majority", quorum.Rule{})
	allOfFive, fourOfFive := byNumber("all of 5", 5), byNumber("4 of 5", 4)
	columns := []*column{anyOf, majority, allOfFive, fourOfFive}
	w := newWorld()
	w.pass(10*period, columns)
	for _, step := range []struct {
		name                        string
		change                      func()
		periods                     int
		anyOf, majority, five, four int // changes of joint verdicts, by column; -1: at least one
	}{
		{"all is well", func() {}, 20, 0, 0, 0, 0},
		{"10 % of attempts are lost", func() { w.loss = 0.1 }, 40, -1, 0, 0, 0},
		{"none is lost any more", func() { w.loss = 0 }, 10, -1, 0, 0, 0},
		{"one vantage is cut off", func() { w.isCut[0] = true }, 30, targets, 0, 0, 0},
		{"two are", func() { w.isCut[1] = true }, 30, 0, 0, 0, 0},
		{"none is any more", func() { w.isCut = [vantages]bool{} }, 30, targets, 0, 0, 0},
		{"two vantages are dead", func() { w.isDead[3], w.isDead[4] = true, true }, 20, 0, 0, 0, 0},
		{"and the targets are down", func() { w.isDown = true }, 30, targets, targets, 0, 0},
		{"and well again", func() { w.isDown = false }, 30, targets, targets, 0, 0},
	} {
		for _, c := range columns {
			c.changes = 0
		}
		step.change()
		began := w.now
		w.pass(time.Duration(step.periods)*period, columns)
		for i, want := range []int{step.anyOf, step.majority, step.five, step.four} {
			c := columns[i]
			t.Logf("%s: %s: %d joint changes, %d fail, the last after %v", step.name, c.name, c.changes, c.failing(), c.latest.Sub(began))
			if c.changes != want && (want >= 0 || c.changes == 0) {
				t.Errorf("%s: %s: %d joint verdicts have changed, want %d", step.name, c.name, c.changes, want)
			}
		}
		if took := majority.latest.Sub(began); majority.changes > 0 && took > 3*period {
			t.Errorf("%s: the last target was noticed after %v, want at most as many periods as failures decide", step.name, took)
		}
	}
}

// failing returns the number of joint verdicts that are failing.
func (c *column) failing() (n int) {
	for _, d := range c.last {
		if d.Verdict == probe.Failing {
			n++
		}
	}
	return n
}
