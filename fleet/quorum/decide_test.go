package quorum_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// letters are votes, each by a letter: of a vantage that passes, fails, does not know, doubts itself, was
// heard too long ago, or has seen another instance.
var letters = map[rune]quorum.Vote{
	'p': {Instance: "1", Verdict: probe.Passing},
	'f': {Instance: "1", Verdict: probe.Failing},
	'F': {Instance: "1", Verdict: probe.Failing, Until: now.Add(time.Second)},
	'L': {Instance: "1", Verdict: probe.Failing, Until: now.Add(time.Minute)},
	'u': {Instance: "1"},
	'd': {Instance: "1", Verdict: probe.Failing, Doubtful: true},
	's': {Instance: "1", Verdict: probe.Failing, Until: now},
	'o': {Instance: "0", Verdict: probe.Failing},
}

// votes returns the votes of vantages that are named a, b, and so on.
func votes(text string) (all []quorum.Vote) {
	for i, letter := range text {
		v, ok := letters[letter]
		if !ok {
			panic("unknown letter")
		}
		v.Vantage = string(rune('a' + i))
		all = append(all, v)
	}
	return all
}

func TestVotesDecide(t *testing.T) {
	for _, c := range []struct {
		votes string
		rule  quorum.Rule
		last  probe.Verdict
		want  string // the joint verdict, in brackets if it is the last one
		agree quorum.Agreement
	}{
		{"ppp", quorum.Rule{}, probe.Undecided, "passing", quorum.Unanimous},
		{"fff", quorum.Rule{}, probe.Passing, "failing", quorum.Unanimous},
		{"ffp", quorum.Rule{}, probe.Passing, "failing", quorum.Gray},
		{"fpp", quorum.Rule{}, probe.Failing, "passing", quorum.Gray},
		{"fp", quorum.Rule{}, probe.Passing, "[passing]", quorum.Gray},
		{"fp", quorum.Rule{}, probe.Failing, "[failing]", quorum.Gray},
		{"fp", quorum.Rule{}, probe.Undecided, "[undecided]", quorum.Gray},
		{"f", quorum.Rule{}, probe.Passing, "[passing]", quorum.Unanimous},
		{"", quorum.Rule{}, probe.Failing, "[failing]", quorum.AgreementNone},
		{"fuu", quorum.Rule{}, probe.Passing, "[passing]", quorum.Unanimous},
		{"fds", quorum.Rule{}, probe.Passing, "[passing]", quorum.Unanimous},
		{"fod", quorum.Rule{}, probe.Passing, "[passing]", quorum.Unanimous},
		{"ffd", quorum.Rule{}, probe.Passing, "failing", quorum.Unanimous},
		{"pFs", quorum.Rule{}, probe.Failing, "[failing]", quorum.Gray},
		{"fpppp", quorum.Rule{Vantages: 5, Fail: quorum.FailAny}, probe.Passing, "failing", quorum.Gray},
		{"f", quorum.Rule{Fail: quorum.FailAny}, probe.Passing, "[passing]", quorum.Unanimous},
		{"f", quorum.Rule{Fail: quorum.FailAny, Min: 1}, probe.Passing, "failing", quorum.Unanimous},
		{"ffp", quorum.Rule{Fail: quorum.FailAll}, probe.Failing, "passing", quorum.Gray},
		{"ffd", quorum.Rule{Fail: quorum.FailAll}, probe.Passing, "failing", quorum.Unanimous},
	} {
		d := quorum.Decide(c.rule.WithDefaults(), votes(c.votes), "1", c.last, now)
		got := d.Verdict.String()
		if !d.Decided {
			got = "[" + got + "]"
		}
		if got != c.want || d.Agreement != c.agree {
			t.Errorf("%q by %+v after %v: %s and %s, want %s and %s", c.votes, c.rule, c.last, got, d.Agreement, c.want, c.agree)
		}
	}
}

func TestADecisionSaysWhoSaysWhat(t *testing.T) {
	all := votes("FdppsuoLf")
	slices.Reverse(all)
	d := quorum.Decide(quorum.Rule{Vantages: 9}.WithDefaults(), all, "1", probe.Undecided, now)
	got := fmt.Sprint("pass ", d.Passing, " fail ", d.Failing, " ignored ", d.Ignored, " again in ", d.Again.Sub(now))
	if want := "pass [c d] fail [a h i] ignored [b e f g] again in 1s"; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
}

// each calls f with all texts of some letters up to a length.
func each(length int, f func(text string)) {
	texts := []string{""}
	for range length + 1 {
		var longer []string
		for _, text := range texts {
			f(text)
			for _, letter := range "pfFds" { // the others are ignored as d and s are
				longer = append(longer, text+string(letter))
			}
		}
		texts = longer
	}
}

// rules are those that the laws are explored for.
func rules() (all []quorum.Rule) {
	for _, fail := range []quorum.Fail{quorum.FailMajority, quorum.FailAny, quorum.FailAll} {
		for least := 1; least <= 3; least++ {
			all = append(all, quorum.Rule{Vantages: 4, Fail: fail, Spread: quorum.SpreadZone, Min: least})
		}
	}
	return all
}

// Every law for all combinations of up to four votes, with each rule and each last verdict.
func TestLawsOfDecisions(t *testing.T) {
	tier.Slow(t)
	explored := 0
	each(4, func(text string) {
		for _, r := range rules() {
			for _, last := range []probe.Verdict{probe.Undecided, probe.Passing, probe.Failing} {
				explored++
				checkLaws(t, r, text, last)
			}
		}
	})
	if explored < 20_000 {
		t.Errorf("only %d decisions were explored", explored)
	}
}

func checkLaws(t *testing.T, r quorum.Rule, text string, last probe.Verdict) {
	t.Helper()
	all := votes(text)
	decide := func(all []quorum.Vote) quorum.Decision { return quorum.Decide(r, all, "1", last, now) }
	d := decide(all)
	counting := len(d.Passing) + len(d.Failing)
	law := func(isKept bool, name string) {
		if !isKept {
			t.Errorf("%q by %+v after %v: %s: %+v", text, r, last, name, d)
		}
	}
	law(!d.Decided || counting >= r.Min, "fewer than min decide nothing")
	law(d.Decided || d.Verdict == last, "without a decision the last verdict stands")
	law(!d.Decided || d.Verdict != probe.Undecided, "a decision is passing or failing")
	law(d.Decided || counting < r.Min || r.Fail == quorum.FailMajority && len(d.Passing) == len(d.Failing), "only too few votes and ties decide nothing")
	law((d.Agreement == quorum.Gray) == (len(d.Passing) > 0 && len(d.Failing) > 0), "gray is that some pass and some fail")
	law(counting+len(d.Ignored) == len(all), "each vantage is named once")
	law(d.Again.IsZero() || d.Again.After(now), "it is decided again later")
	if d.Agreement == quorum.Unanimous && d.Decided {
		law((d.Verdict == probe.Failing) == (len(d.Failing) > 0), "a unanimous decision is what all say")
	}

	more := decide(append(slices.Clone(all), quorum.Vote{Vantage: "z", Instance: "1", Verdict: probe.Failing}))
	law(!d.Decided || d.Verdict != probe.Failing || more.Decided && more.Verdict == probe.Failing, "one more failing vote does not make a failing decision another one")
	other := decide(append(slices.Clone(all), quorum.Vote{Vantage: "z", Instance: "1", Verdict: probe.Passing}))
	law(!d.Decided || d.Verdict != probe.Passing || other.Decided && other.Verdict == probe.Passing, "one more passing vote does not make a passing decision another one")
	for i, v := range all {
		checkVote(t, r, text, last, d, all, i, v)
	}
	slices.Reverse(all)
	law(reflect.DeepEqual(d, decide(all)), "the order does not matter")
}

// checkVote checks the laws about one of several votes that have added up to d.
func checkVote(t *testing.T, r quorum.Rule, text string, last probe.Verdict, d quorum.Decision, all []quorum.Vote, i int, v quorum.Vote) {
	t.Helper()
	with := func(v quorum.Vote) quorum.Decision {
		changed := slices.Clone(all)
		changed[i] = v
		return quorum.Decide(r, changed, "1", last, now)
	}
	law := func(isKept bool, name string) {
		if !isKept {
			t.Errorf("%q by %+v after %v, vote %d: %s", text, r, last, i, name)
		}
	}
	same := func(a, b quorum.Decision) bool {
		return a.Verdict == b.Verdict && a.Decided == b.Decided && a.Agreement == b.Agreement && len(a.Passing) == len(b.Passing) && len(a.Failing) == len(b.Failing)
	}
	renamed := v
	renamed.Vantage = "another"
	law(same(d, with(renamed)), "names do not matter")
	if slices.Contains(d.Ignored, v.Vantage) {
		without := slices.Delete(slices.Clone(all), i, i+1)
		law(same(d, quorum.Decide(r, without, "1", last, now)), "a vote that is ignored is as none")
		return
	}
	failing, passing := v, v
	failing.Verdict, passing.Verdict = probe.Failing, probe.Passing
	law(rank(with(failing).Verdict) <= rank(d.Verdict), "a vote that turns to failing makes nothing better")
	law(rank(with(passing).Verdict) >= rank(d.Verdict), "a vote that turns to passing makes nothing worse")
	stale := v
	stale.Until = now.Add(-time.Hour)
	law(slices.Contains(with(stale).Ignored, v.Vantage), "a stale vote does not count")
}

// rank orders verdicts, the worst first.
func rank(v probe.Verdict) int {
	return map[probe.Verdict]int{probe.Failing: 0, probe.Undecided: 1, probe.Passing: 2}[v]
}
