package simulate

import (
	"math"

	"github.com/sonde-probe/sonde/probe"
)

// confidence is the confidence of intervals. The rest is split equally between values below and above the interval.
const confidence = 0.95

// interval is an estimate with a confidence interval of 95 %.
type interval struct {
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// estimate is the noise of a target, estimated from recorded outcomes: attempts that fail although the target is well.
type estimate struct {
	Attempts int `json:"attempts"` // recorded attempts, without unknown ones and outages
	Failures int `json:"failures"` // failures among Attempts
	Outages  int `json:"outages"`  // runs of failures that are long enough to count as outages

	Share  interval  `json:"share"`           // share of failing attempts
	Follow interval  `json:"follow"`          // share of failures that are followed by another failure
	Bursts bool      `json:"bursts"`          // failures follow failures more often than by chance
	Burst  *interval `json:"burst,omitempty"` // mean number of failures in a row; nil unless Bursts
	likely noise     // noise by the estimates
	worst  noise     // noise by the upper ends of the intervals
}

// counts are the pairs of consecutive attempts from which an estimate is computed.
type counts struct {
	successes, begins float64 // attempts after a success, and the number of them that fail
	failures, goOn    float64 // attempts after a failure, and the number of them that fail
	outages           int
}

// countPairs counts the pairs of attempts. An outage is a run of at least outage failures. Outages are left out, together with
// the attempt after each.
func countPairs(outcomes []probe.OutcomeRun, outage uint64) counts {
	var runs []probe.OutcomeRun
	for _, run := range outcomes {
		switch run.Outcome {
		case probe.Warning:
			run.Outcome = probe.Success
		case probe.Unknown:
			continue
		}
		runs = probe.AppendOutcomes(runs, run)
	}
	var c counts
	for i, run := range runs {
		n := float64(run.Attempts)
		afterOutage := i > 0 && runs[i-1].Attempts >= outage
		switch {
		case run.Outcome == probe.Success && i > 0 && !afterOutage:
			c.failures++ // the first success comes after a failure
			c.successes += n - 1
		case run.Outcome == probe.Success:
			c.successes += n - 1
		case run.Attempts >= outage:
			c.outages++
		default:
			if i > 0 {
				c.successes++
				c.begins++
			}
			c.failures += n - 1
			c.goOn += n - 1
		}
	}
	return c
}

// maxShare limits probabilities: with 1, a burst would never end, and a probe would never pass again.
const maxShare = 0.999

// burstDoubt is the significance level for bursts: the probability that independent failures would follow each other this
// often.
const burstDoubt = 0.01

func (c counts) estimate() estimate {
	attempts, failures := c.successes+c.failures, c.begins+c.goOn
	e := estimate{Attempts: int(attempts), Failures: int(failures), Outages: c.outages, Share: share(failures, attempts), Follow: share(c.goOn, c.failures)}
	e.likely.Failures, e.worst.Failures = e.Share.Estimate, e.Share.High
	if c.goOn == 0 || tail(c.goOn, c.failures, e.Share.Estimate) > burstDoubt {
		return e
	}
	begins, goOn := share(c.begins, c.successes), e.Follow
	noiseOf := func(begin, goOn float64) noise {
		goOn = min(goOn, maxShare)
		return noise{Failures: begin / (begin + 1 - goOn), Burst: 1 / (1 - goOn)}
	}
	e.likely, e.worst = noiseOf(begins.Estimate, goOn.Estimate), noiseOf(begins.High, goOn.High)
	least := noiseOf(begins.Low, goOn.Low)
	e.Bursts = true
	e.Share = interval{e.likely.Failures, least.Failures, e.worst.Failures}
	e.Burst = &interval{e.likely.Burst, least.Burst, e.worst.Burst}
	return e
}

// scaled returns the counts of a history that is longer by the factor times.
func (c counts) scaled(times float64) counts {
	c.successes, c.begins, c.failures, c.goOn = c.successes*times, c.begins*times, c.failures*times, c.goOn*times
	return c
}

// share estimates a probability from k of n observations, with the interval of Clopper and Pearson (1934).
func share(k, n float64) interval {
	i := interval{High: 1}
	if n == 0 {
		return i
	}
	i.Estimate = k / n
	const outside = (1 - confidence) / 2
	if k > 0 {
		i.Low = bisect(func(p float64) bool { return tail(k, n, p) < outside })
	}
	if k < n {
		i.High = bisect(func(p float64) bool { return tail(k+1, n, p) < 1-outside })
	}
	return i
}

// bisect returns the largest p from 0 to 1 for which below returns true.
func bisect(below func(p float64) bool) float64 {
	low, high := 0.0, 1.0
	for range 200 {
		middle := (low + high) / 2
		if low > 0 {
			middle = math.Sqrt(low * high) // small values need relative precision
		}
		if below(middle) {
			low = middle
		} else {
			high = middle
		}
		if high-low <= 1e-13*high {
			break
		}
	}
	return (low + high) / 2
}

// tail returns the probability of k or more successes in n trials, each with probability p: the regularized incomplete beta
// function I_p(k, n-k+1).
func tail(k, n, p float64) float64 {
	a, b := k, n-k+1
	switch {
	case k <= 0 || p >= 1:
		return 1
	case p <= 0 || k > n:
		return 0
	case p > (a+1)/(a+b+2):
		return 1 - betaFraction(b, a, 1-p)
	}
	return betaFraction(a, b, p)
}

// betaFraction computes I_x(a, b) by its continued fraction, with the method of Lentz (DLMF 8.17.22).
func betaFraction(a, b, x float64) float64 {
	const tiny = 1e-300
	lgamma := func(x float64) float64 { l, _ := math.Lgamma(x); return l }
	front := math.Exp(lgamma(a+b)-lgamma(a)-lgamma(b)+a*math.Log(x)+b*math.Log1p(-x)) / a
	nonzero := func(x float64) float64 {
		if math.Abs(x) < tiny {
			return tiny
		}
		return x
	}
	f, c, d := 1.0, 1.0, 0.0
	for i := range 10_000 {
		m := float64(i / 2)
		numerator := 1.0
		switch {
		case i == 0:
		case i%2 == 0:
			numerator = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		default:
			numerator = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		d = 1 / nonzero(1+numerator*d)
		c = nonzero(1 + numerator/c)
		f *= c * d
		if i > 0 && math.Abs(1-c*d) < 1e-14 {
			break
		}
	}
	return front * (f - 1)
}
