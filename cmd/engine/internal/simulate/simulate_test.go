package simulate

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

func runs(failures, successes int32) probe.Rule {
	return probe.Rule{Kind: probe.Readiness, FailureThreshold: failures, SuccessThreshold: successes, Period: 10 * time.Second, Timeout: time.Second}
}

var evidence = probe.Rule{Kind: probe.Readiness, Policy: probe.PolicyEvidence, Period: 10 * time.Second, Timeout: time.Second}

// near reports an error if got differs from want by more than the relative tolerance part.
func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*want {
		t.Errorf("%s: got %.10g, want %.10g", what, got, want)
	}
}

func TestRunsTakeTheTimeOfTheClosedForm(t *testing.T) {
	inARow := func(p float64, k int32) float64 {
		all := math.Pow(p, float64(k))
		return (1 - all) / (all * (1 - p))
	}
	for _, p := range []float64{0.0001, 0.005, 0.2, 0.3, 0.5, 0.99} {
		for _, k := range []int32{1, 2, 3, 5, 30} {
			n := noise{Failures: p}
			near(t, "until it fails", meanAttempts(runs(k, 1), probe.Passing, n), inARow(p, k), 1e-9)
			near(t, "until it passes", meanAttempts(runs(3, k), probe.Failing, n), inARow(1-p, k), 1e-9)
		}
	}
}

// The test solves the recursions of a CUSUM by iteration, without verdict.Step.
func TestEvidenceTakesTheTimeOfItsMarkovChain(t *testing.T) {
	meanOf := func(up, down int, p float64) float64 {
		mean := make([]float64, probe.MaxScore)
		for change := 1.0; change > 1e-13; {
			change = 0
			for score := range mean {
				after := 1 + (1-p)*mean[max(0, score-down)]
				if score+up < probe.MaxScore {
					after += p * mean[score+up]
				}
				change = max(change, math.Abs(after-mean[score])/after)
				mean[score] = after
			}
		}
		return mean[0]
	}
	for _, p := range []float64{0.1, 1.0 / 6, 0.2, 0.3, 0.5, 0.9} {
		n := noise{Failures: p}
		near(t, "until it fails", meanAttempts(evidence, probe.Passing, n), meanOf(5, 1, p), 1e-5)
		if p < 0.5 {
			near(t, "until it passes", meanAttempts(evidence, probe.Failing, n), meanOf(1, 5, 1-p), 1e-5)
		}
	}
}

// Bursts have the mean length b and begin with the probability a. A run of k failures is a burst of at least that length: the
// mean number of bursts until one reaches it is (1-1/b)^-(k-1).
func TestBurstsTakeTheTimeOfTheirClosedForm(t *testing.T) {
	n := noise{Failures: 0.01, Burst: 4}
	enter, stay := 0.01/0.99/4, 1-1.0/4
	for k := int32(1); k <= 6; k++ {
		bursts := 1 / math.Pow(stay, float64(k-1))              // until one lasts for k attempts
		length := (1 - math.Pow(stay, float64(k))) / (1 - stay) // of a burst, up to its k-th attempt
		pause := 1/enter - 1                                    // before a burst, without the success that ends the previous one
		want := bursts*(pause+length) + (bursts - 1)
		near(t, "until it fails", meanAttempts(runs(k, 1), probe.Passing, n), want, 1e-9)
	}
	independent := noise{Failures: 0.2}
	same := noise{Failures: 0.2, Burst: 1 / 0.8}
	near(t, "bursts as long as by chance", meanAttempts(evidence, probe.Passing, same), meanAttempts(evidence, probe.Passing, independent), 1e-12)
}

func TestPlayedNoiseHasTheMeansOfTheChain(t *testing.T) {
	tier.Slow(t)
	rng := rand.New(rand.NewPCG(13, 1))
	outcomes := make([]probe.Outcome, 1_000_000)
	for i := range outcomes {
		if outcomes[i] = probe.Success; rng.Float64() < 0.2 {
			outcomes[i] = probe.Failure
		}
	}
	for _, r := range []probe.Rule{runs(3, 1), runs(2, 3), evidence} {
		all, err := compare(r, noise{Failures: 0.2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		played := play(r, false, outcomes)
		near(t, all[0].Setting+" mistakes", float64(len(outcomes))/float64(len(played.Transitions)/2), all[0].MistakeEvery, 0.05)
		near(t, all[0].Setting+" availability", 1-float64(played.Failing)/float64(len(outcomes)), all[0].Availability, 0.05)
	}
}

func TestTheFiguresOfTheDocumentsAreThoseOfTheChain(t *testing.T) {
	all, err := compare(runs(3, 1), noise{Failures: 0.005}, []float64{0.3, 0.2})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]quality{}
	for _, q := range all {
		by[q.Setting] = q
	}
	for name, want := range map[string]struct {
		outage           int32
		third, fifth     float64
		mistake, passing float64
	}{
		"runs 3/1": {3, 51.48, 155, 8.04e6, 1.0050},
		"evidence": {4, 23.07, 56.32, 1.0069e9, 20.54},
	} {
		q := by[name]
		if q.DetectAttempts != want.outage {
			t.Errorf("%s finds an outage after %d attempts", name, q.DetectAttempts)
		}
		near(t, name+" 30 %", q.Partial[0].DetectAttempts, want.third, 1e-3)
		near(t, name+" 20 %", q.Partial[1].DetectAttempts, want.fifth, 1e-3)
		near(t, name+" mistakes", q.MistakeEvery, want.mistake, 1e-3)
		near(t, name+" duration", q.DurationSeconds, 10*want.passing, 1e-3)
	}
	if len(all) != 5 || all[0].Setting != "runs 3/1" || !all[0].Configured {
		t.Errorf("got %+v", all)
	}
}

func TestStartupProbesAndHugeThresholdsAreNotCompared(t *testing.T) {
	startup := runs(3, 1)
	startup.Kind = probe.Startup
	for _, r := range []probe.Rule{startup, runs(501, 1), runs(1, 501)} {
		if _, err := compare(r, noise{Failures: 0.1}, nil); err == nil {
			t.Errorf("%+v was compared", r)
		}
	}
}

func TestNoiseThatCannotBeIsAnError(t *testing.T) {
	for _, n := range []noise{{}, {Failures: 1}, {Failures: -0.1}, {Failures: math.NaN()}, {Failures: 0.1, Burst: 0.5}, {Failures: 0.9, Burst: 2}, {Failures: 0.1, Burst: math.NaN()}} {
		if n.check() == nil {
			t.Errorf("%+v is accepted", n)
		}
	}
}

func TestOutcomesArePlayedByTheRule(t *testing.T) {
	outcomes, err := parseOutcomes("SSWF # a burst\nUFF S")
	if err != nil {
		t.Fatal(err)
	}
	liveness := runs(3, 1)
	liveness.Kind = probe.Liveness
	got := play(liveness, true, outcomes)
	want := []transition{{Attempt: 1, Verdict: probe.Passing}, {Attempt: 7, Verdict: probe.Failing, Restarts: true}, {Attempt: 8, Verdict: probe.Passing}}
	if !slices.Equal(got.Transitions, want) || got.Restarts != 1 || got.Failing != 1 || got.Attempts != 8 {
		t.Errorf("got %+v", got)
	}
	for _, wrong := range []string{"SSX", "s", string(make([]byte, 3))} {
		if _, err := parseOutcomes(wrong); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
}

// The traces are modelled on real ones: single losses, a flapping network, a server with partial errors, a deployment.
func TestEvidenceAndRunsOnTracesWithBursts(t *testing.T) {
	for _, c := range []struct {
		trace          string
		runs, evidence int // transitions after the first verdict
	}{
		{"losses", 0, 0},
		{"flapping", 8, 2},
		{"overload", 2, 1},
		{"deployment", 2, 2},
	} {
		text, err := os.ReadFile("testdata/" + c.trace + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		outcomes, err := parseOutcomes(string(text))
		if err != nil {
			t.Fatal(err)
		}
		byRuns, byEvidence := play(runs(3, 1), false, outcomes), play(evidence, false, outcomes)
		if got := len(byRuns.Transitions) - 1; got != c.runs {
			t.Errorf("%s: runs turn %d times: %+v", c.trace, got, byRuns)
		}
		if got := len(byEvidence.Transitions) - 1; got != c.evidence {
			t.Errorf("%s: evidence turns %d times: %+v", c.trace, got, byEvidence)
		}
	}
}
