package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestTailIsTheSumOfTheBinomialDistribution(t *testing.T) {
	for _, n := range []int{1, 2, 7, 60} {
		for _, p := range []float64{1e-6, 0.01, 0.3, 0.5, 0.97} {
			sum, choose := 0.0, 1.0
			terms := make([]float64, n+1)
			for k := range n + 1 {
				terms[k] = choose * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
				choose *= float64(n-k) / float64(k+1)
			}
			for k := n; k > 0; k-- {
				if sum += terms[k]; sum > 1e-250 {
					near(t, "tail", tail(float64(k), float64(n), p), sum, 1e-9)
				}
			}
		}
	}
	if tail(0, 5, 0.1) != 1 || tail(6, 5, 0.1) != 0 || tail(3, 5, 0) != 0 || tail(3, 5, 1) != 1 {
		t.Error("the ends are wrong")
	}
}

func TestIntervalsAreThoseOfClopperAndPearson(t *testing.T) {
	for _, n := range []float64{1, 10, 1e6} {
		none := share(0, n)
		near(t, "no failure", none.High, -math.Expm1(math.Log(0.025)/n), 1e-9)
		if all := share(n, n); none.Low != 0 || all.High != 1 {
			t.Errorf("got %v and %v", none, all)
		}
	}
	some := share(5, 50) // compare R's binom.test(5, 50)
	near(t, "low", some.Low, 0.03327509, 1e-6)
	near(t, "high", some.High, 0.21813537, 1e-6)
	if nothing := share(0, 0); nothing != (interval{High: 1}) {
		t.Errorf("nothing says %v", nothing)
	}
}

func TestTheFiguresOfTheDocumentsAboutTuning(t *testing.T) {
	some := share(14, 17265)
	near(t, "share", some.Estimate, 0.00081, 0.005)
	near(t, "low", some.Low, 0.00044, 0.02)
	near(t, "high", some.High, 0.0014, 0.04)
}

func TestPairsAreCountedWithoutOutages(t *testing.T) {
	for text, want := range map[string]counts{
		"":               {},
		"S5":             {successes: 4},
		"S5 F1 S3":       {successes: 4 + 1 + 2, begins: 1, failures: 1},
		"S5 F2 S3":       {successes: 4 + 1 + 2, begins: 1, failures: 2, goOn: 1},
		"S5 F3 S3":       {successes: 4 + 2, outages: 1},
		"F2 S3 F1":       {successes: 2 + 1, begins: 1, failures: 2, goOn: 1},
		"S2 W3 U9 F1 S1": {successes: 4 + 1, begins: 1, failures: 1},
		"F1 U4 F1 S1":    {failures: 2, goOn: 1},
	} {
		runs, err := probe.ParseOutcomes(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := countPairs(runs, 3); got != want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}

// recorded returns outcomes under noise.
func recorded(n noise, attempts int, seed uint64) (runs []probe.OutcomeRun) {
	rng := rand.New(rand.NewPCG(seed, 7))
	hasFailed := false
	for range attempts {
		run := probe.OutcomeRun{Outcome: probe.Success, Attempts: 1}
		if hasFailed = rng.Float64() < n.failure(hasFailed); hasFailed {
			run.Outcome = probe.Failure
		}
		runs = probe.AppendOutcomes(runs, run)
	}
	return runs
}

func TestNoiseIsEstimatedFromItsOutcomes(t *testing.T) {
	const unbounded = 1 << 30
	independent, bursts := noise{Failures: 0.02}, noise{Failures: 0.02, Burst: 4}
	falseBursts, missed := 0, 0
	for seed := range uint64(60) {
		if e := countPairs(recorded(independent, 20_000, seed), unbounded).estimate(); e.Bursts {
			falseBursts++
		} else if e.Share.Low > 0.02 || e.Share.High < 0.02 {
			missed++
		}
	}
	if falseBursts > 5 || missed > 10 { // expected: at most 0.6, and 3
		t.Errorf("%d of 60 have bursts that are none, %d intervals miss", falseBursts, missed)
	}
	missed = 0
	for seed := range uint64(60) {
		e := countPairs(recorded(bursts, 20_000, seed), unbounded).estimate()
		if !e.Bursts {
			t.Fatalf("no bursts were found: %+v", e)
		}
		if e.Burst.Low > 4 || e.Burst.High < 4 || e.Share.Low > 0.02 || e.Share.High < 0.02 {
			missed++
		}
	}
	if missed > 10 {
		t.Errorf("%d intervals of 60 miss", missed)
	}
}

var tunedRule = probe.Rule{Kind: probe.Readiness, FailureThreshold: 3, SuccessThreshold: 1, Period: 5 * time.Second, Timeout: time.Second}

const year = 365.25 * 86400

func TestProposalsKeepTheGoal(t *testing.T) {
	n := noise{Failures: 0.005}
	recorded := recorded(n, 200_000, 1)
	got, err := tune(tunedRule, recorded, goal{FalseAlarms: 1 / year, Detect: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// By the closed form, three failures in a row occur once in 8 million attempts, or 1.3 years. At 0.58 %, the upper end,
	// they occur once in 5 million attempts, which is too often.
	if !slices.Equal(got.Proposals, []string{"runs 4/1", "evidence"}) || got.AttemptsNeeded != 0 || got.Noise.Bursts {
		t.Errorf("got %+v", got)
	}
	for i, want := range []string{"runs 3/1", "runs 1/1", "runs 2/1", "runs 4/1", "evidence"} {
		if one := got.Settings[i]; one.Setting != want || one.Configured != (i == 0) || one.Keeps != slices.Contains(got.Proposals, want) {
			t.Errorf("setting %d: %+v, want %s", i, one, want)
		}
	}
	p := got.Noise.Share
	inARow := func(p float64, k int) float64 {
		all := math.Pow(p, float64(k))
		return (1 - all) / (all * (1 - p))
	}
	three := got.Settings[0]
	near(t, "false alarms", three.FalseAlarmSeconds, 5*inARow(p.Estimate, 3), 1e-9)
	near(t, "false alarms at most", three.AtLeastSeconds, 5*inARow(p.High, 3), 1e-9)
	near(t, "detection", three.DetectSeconds, 16, 1e-12)
	near(t, "alarms of one failure", float64(got.Settings[1].Alarms), 200_000/(inARow(p.Estimate, 1)+1/(1-p.Estimate)), 0.02)
}

func TestAHistoryThatIsTooShortSaysHowLongItMustBe(t *testing.T) {
	goal := goal{FalseAlarms: 1 / year, Detect: 30 * time.Second}
	for _, recorded := range [][]probe.OutcomeRun{nil, {{Outcome: probe.Success, Attempts: 50}}, {{Outcome: probe.Success, Attempts: 60}, {Outcome: probe.Failure, Attempts: 1}, {Outcome: probe.Success, Attempts: 50}}} {
		short, err := tune(tunedRule, recorded, goal)
		if err != nil || len(short.Proposals) > 0 || short.AttemptsNeeded <= short.Noise.Attempts {
			t.Fatalf("got %+v, %v", short, err)
		}
		if short.Noise.Failures == 0 {
			long, err := tune(tunedRule, []probe.OutcomeRun{{Outcome: probe.Success, Attempts: uint64(short.AttemptsNeeded + 1)}}, goal)
			if err != nil || len(long.Proposals) == 0 {
				t.Errorf("after %d attempts: %+v, %v", short.AttemptsNeeded, long, err)
			}
			if half, err := tune(tunedRule, []probe.OutcomeRun{{Outcome: probe.Success, Attempts: uint64(short.AttemptsNeeded / 2)}}, goal); err != nil || len(half.Proposals) > 0 {
				t.Errorf("half of %d are enough: %+v, %v", short.AttemptsNeeded, half, err)
			}
		}
	}
}

func TestNoiseThatIsTooHighHasNoProposal(t *testing.T) {
	for _, n := range []noise{{Failures: 0.1}, {Failures: 0.01, Burst: 3}} {
		got, err := tune(tunedRule, recorded(n, 100_000, 5), goal{FalseAlarms: 1 / year, Detect: 30 * time.Second})
		if err != nil || len(got.Proposals) > 0 || got.AttemptsNeeded != 0 || got.Noise.Bursts != (n.Burst > 0) {
			t.Errorf("%+v: got %+v, %v", n, got, err)
		}
	}
}

func TestWhatCannotBeTunedIsAnError(t *testing.T) {
	startup := tunedRule
	startup.Kind = probe.Startup
	for _, r := range []probe.Rule{startup, {Kind: probe.Readiness, FailureThreshold: 501, Period: time.Second, Timeout: time.Second}, {Kind: probe.Liveness, FailureThreshold: 3, Period: time.Minute, Timeout: time.Second}} {
		if got, err := tune(r, nil, goal{FalseAlarms: 1, Detect: 30 * time.Second}); err == nil {
			t.Errorf("%+v: got %+v", r, got)
		}
	}
}
