package quorum_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// letters are the votes for which letters stand: of a vantage that passes, fails, is undecided, doubts itself, or votes
// on another instance.
var letters = map[rune]quorum.Vote{
	'p': {Instance: "1", Verdict: probe.Passing},
	'f': {Instance: "1", Verdict: probe.Failing},
	'u': {Instance: "1"},
	'd': {Instance: "1", Verdict: probe.Failing, Doubtful: true},
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

// agreement describes whether the votes that count agree.
func agreement(d quorum.Decision) string {
	switch {
	case d.IsGray():
		return "gray"
	case len(d.Passing)+len(d.Failing) > 0:
		return "unanimous"
	}
	return "none"
}

func TestVotesDecide(t *testing.T) {
	for _, c := range []struct {
		votes string
		rule  quorum.Rule
		last  probe.Verdict
		want  string // the joint verdict, in brackets if it is the last one
		agree string
	}{
		{"ppp", quorum.Rule{}, probe.Undecided, "passing", "unanimous"},
		{"fff", quorum.Rule{}, probe.Passing, "failing", "unanimous"},
		{"ffp", quorum.Rule{}, probe.Passing, "failing", "gray"},
		{"fpp", quorum.Rule{}, probe.Failing, "passing", "gray"},
		{"fp", quorum.Rule{}, probe.Passing, "[passing]", "gray"},
		{"fp", quorum.Rule{}, probe.Failing, "[failing]", "gray"},
		{"fp", quorum.Rule{}, probe.Undecided, "[undecided]", "gray"},
		{"f", quorum.Rule{}, probe.Passing, "[passing]", "unanimous"},
		{"", quorum.Rule{}, probe.Failing, "[failing]", "none"},
		{"fuu", quorum.Rule{}, probe.Passing, "[passing]", "unanimous"},
		{"fdd", quorum.Rule{}, probe.Passing, "[passing]", "unanimous"},
		{"fod", quorum.Rule{}, probe.Passing, "[passing]", "unanimous"},
		{"ffd", quorum.Rule{}, probe.Passing, "failing", "unanimous"},
		{"pfd", quorum.Rule{}, probe.Failing, "[failing]", "gray"},
		{"fpppp", quorum.Rule{Vantages: 5, Fail: quorum.FailAny}, probe.Passing, "failing", "gray"},
		{"f", quorum.Rule{Fail: quorum.FailAny}, probe.Passing, "[passing]", "unanimous"},
		{"f", quorum.Rule{Fail: quorum.FailAny, Min: 1}, probe.Passing, "failing", "unanimous"},
		{"ffp", quorum.Rule{Fail: quorum.FailAll}, probe.Failing, "passing", "gray"},
		{"ffd", quorum.Rule{Fail: quorum.FailAll}, probe.Passing, "failing", "unanimous"},
	} {
		d := quorum.Decide(c.rule.WithDefaults(), votes(c.votes), "1", c.last)
		got := d.Verdict.String()
		if !d.Decided {
			got = "[" + got + "]"
		}
		if got != c.want || agreement(d) != c.agree {
			t.Errorf("%q by %+v after %v: %s and %s, want %s and %s", c.votes, c.rule, c.last, got, agreement(d), c.want, c.agree)
		}
	}
}

func TestADecisionSaysWhoSaysWhat(t *testing.T) {
	all := votes("fdppuoff")
	slices.Reverse(all)
	d := quorum.Decide(quorum.Rule{Vantages: 9}.WithDefaults(), all, "1", probe.Undecided)
	got := fmt.Sprint("pass ", d.Passing, " fail ", d.Failing, " ignored ", d.Ignored)
	if want := "pass [c d] fail [a g h] ignored [b e f]"; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
}

// each calls f with all texts of the letters up to a length.
func each(length int, f func(text string)) {
	texts := []string{""}
	for range length + 1 {
		var longer []string
		for _, text := range texts {
			f(text)
			for _, letter := range "pfdo" { // u is ignored just like d
				longer = append(longer, text+string(letter))
			}
		}
		texts = longer
	}
}

// rules returns the rules for which the laws are checked.
func rules() (all []quorum.Rule) {
	for _, fail := range []quorum.Fail{quorum.FailMajority, quorum.FailAny, quorum.FailAll} {
		for least := 1; least <= 3; least++ {
			all = append(all, quorum.Rule{Vantages: 4, Fail: fail, Spread: quorum.SpreadZone, Min: least})
		}
	}
	return all
}

// All laws hold for all combinations of up to five votes, with each rule and each last verdict.
func TestLawsOfDecisions(t *testing.T) {
	tier.Slow(t)
	explored := 0
	each(5, func(text string) {
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
	decide := func(all []quorum.Vote) quorum.Decision { return quorum.Decide(r, all, "1", last) }
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
	law(counting+len(d.Ignored) == len(all), "each vantage is named once")
	if agreement(d) == "unanimous" && d.Decided {
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

// checkVote checks the laws about one of several votes that have led to d.
func checkVote(t *testing.T, r quorum.Rule, text string, last probe.Verdict, d quorum.Decision, all []quorum.Vote, i int, v quorum.Vote) {
	t.Helper()
	with := func(v quorum.Vote) quorum.Decision {
		changed := slices.Clone(all)
		changed[i] = v
		return quorum.Decide(r, changed, "1", last)
	}
	law := func(isKept bool, name string) {
		if !isKept {
			t.Errorf("%q by %+v after %v, vote %d: %s", text, r, last, i, name)
		}
	}
	same := func(a, b quorum.Decision) bool {
		return a.Verdict == b.Verdict && a.Decided == b.Decided && len(a.Passing) == len(b.Passing) && len(a.Failing) == len(b.Failing)
	}
	renamed := v
	renamed.Vantage = "another"
	law(same(d, with(renamed)), "names do not matter")
	if slices.Contains(d.Ignored, v.Vantage) {
		without := slices.Delete(slices.Clone(all), i, i+1)
		law(same(d, quorum.Decide(r, without, "1", last)), "a vote that is ignored is as none")
		return
	}
	failing, passing := v, v
	failing.Verdict, passing.Verdict = probe.Failing, probe.Passing
	law(rank(with(failing).Verdict) <= rank(d.Verdict), "a vote that turns to failing makes nothing better")
	law(rank(with(passing).Verdict) >= rank(d.Verdict), "a vote that turns to passing makes nothing worse")
}

// rank orders verdicts, the worst first.
func rank(v probe.Verdict) int {
	return map[probe.Verdict]int{probe.Failing: 0, probe.Undecided: 1, probe.Passing: 2}[v]
}
