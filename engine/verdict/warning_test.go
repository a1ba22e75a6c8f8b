package verdict_test

import (
	"testing"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

func TestWhenAProbeWarns(t *testing.T) {
	evidence := probe.Rule{Policy: probe.PolicyEvidence}
	restored := verdict.Warnings{Warns: true}
	for name, c := range map[string]struct {
		rule     probe.Rule
		before   verdict.Warnings
		outcomes string
		want     string // state after each: ! means that it warns
	}{
		"three warnings in a row":               {probe.Rule{}, verdict.Warnings{}, "W2 S1 W3", ".....!"},
		"and three successes":                   {probe.Rule{}, verdict.Warnings{}, "W3 S2 W1 S3", "..!!!!!!."},
		"failures count for the verdict only":   {probe.Rule{}, verdict.Warnings{}, "W2 F2 U1 W1 S1 F9 S2", ".....!!!!!!!!!!!!."},
		"its own threshold":                     {probe.Rule{FailureThreshold: 5}, verdict.Warnings{}, "W5 S5", "....!!!!!."},
		"at the first, and not after one":       {probe.Rule{FailureThreshold: 1}, verdict.Warnings{}, "W1 S3", "!!!."},
		"as many as make it pass":               {probe.Rule{SuccessThreshold: 4}, verdict.Warnings{}, "W3 S4", "..!!!!."},
		"by evidence":                           {evidence, verdict.Warnings{}, "W1 S1 W4 S19 S1", ".....!!!!!!!!!!!!!!!!!!!!."},
		"restored":                              {probe.Rule{}, restored, "S3", "!!."},
		"restored, by evidence":                 {evidence, restored, "S19 S1", "!!!!!!!!!!!!!!!!!!!."},
		"another policy":                        {probe.Rule{}, verdict.Warnings{Policy: probe.PolicyEvidence, Warns: true, Run: 40}, "S3", "!!."},
		"another policy, before there are many": {evidence, verdict.Warnings{Run: 2}, "W3 W1", "...!"},
	} {
		runs, err := probe.ParseOutcomes(c.outcomes)
		if err != nil {
			t.Fatal(err)
		}
		rule, w, got := c.rule.WithDefaults(), c.before, ""
		for _, run := range runs {
			for range run.Attempts {
				w = w.After(&rule, run.Outcome)
				got += map[bool]string{false: ".", true: "!"}[w.Warns]
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
