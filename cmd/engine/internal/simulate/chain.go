package simulate

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// noise is a model of the failing attempts at a target that is well.
type noise struct {
	Failures float64 // share of failing attempts, above 0 and below 1
	Burst    float64 // mean number of failures in a row; 0 if attempts fail independently
}

// check returns an error if such a noise is impossible.
func (n noise) check() error {
	switch {
	case !(n.Failures > 0 && n.Failures < 1):
		return fmt.Errorf("a share of failures of %v %% is not between 0 and 100 %%", 100*n.Failures)
	case n.Burst != 0 && !(n.Burst >= 1):
		return fmt.Errorf("a burst of %v attempts is shorter than one", n.Burst)
	case n.failure(false) > 1:
		return fmt.Errorf("bursts of %v attempts are too short for a share of %v %%", n.Burst, 100*n.Failures)
	}
	return nil
}

// failure returns the probability that an attempt fails. hasFailed reports whether the previous attempt failed.
func (n noise) failure(hasFailed bool) float64 {
	switch {
	case n.Burst == 0:
		return n.Failures
	case hasFailed:
		return 1 - 1/n.Burst
	}
	return n.Failures / (1 - n.Failures) / n.Burst
}

// maxThreshold limits the thresholds of rules under noise, since meanAttempts takes time proportional to their cube.
const maxThreshold = 500

// node is a state of the Markov chain of a probe under noise.
type node struct {
	state     verdict.State
	hasFailed bool // the previous attempt failed; false for noise without bursts
}

// chain is an absorbing Markov chain. It starts in the first state.
type chain struct {
	next   [][]float64 // transition probabilities between states
	absorb []float64   // probability of absorption in each state
}

// meanAttempts returns the mean number of attempts until a probe with rule r, which has just reached the verdict from, reaches
// the opposite one. The result is exact: it solves the Markov chain of the states of verdict.Step under the noise, for verdicts
// that alternate forever. It does not apply to startup probes.
func meanAttempts(r probe.Rule, from probe.Verdict, n noise) float64 {
	passing, failing := cycle(r, n)
	if from == probe.Failing {
		return failing
	}
	return passing
}

// cycle returns the mean number of attempts for which a probe passes, and for which it fails, while the verdicts alternate
// forever. A passing phase begins after a success, and a failing phase after a failure.
func cycle(r probe.Rule, n noise) (passing, failing float64) {
	passing = newChain(r, node{settle(r, probe.Passing), false}, n).solve()
	failing = newChain(r, node{settle(r, probe.Failing), n.Burst > 0}, n).solve()
	return passing, failing
}

// newChain explores the states of a probe from the first one until its verdict changes.
func newChain(r probe.Rule, first node, n noise) *chain {
	known, nodes := map[node]int{first: 0}, []node{first}
	c := &chain{}
	for i := 0; i < len(nodes); i++ {
		c.next, c.absorb = append(c.next, nil), append(c.absorb, 0)
		failure := n.failure(nodes[i].hasFailed)
		for _, to := range []struct {
			outcome     probe.Outcome
			probability float64
		}{{probe.Failure, failure}, {probe.Success, 1 - failure}} {
			if to.probability == 0 {
				continue
			}
			after := node{count(r, nodes[i].state, to.outcome), n.Burst > 0 && to.outcome == probe.Failure}
			if after.state.Verdict != first.state.Verdict {
				c.absorb[i] += to.probability
				continue
			}
			k, seen := known[after]
			if !seen {
				k = len(nodes)
				known[after], nodes = k, append(nodes, after)
			}
			for len(c.next[i]) <= k {
				c.next[i] = append(c.next[i], 0)
			}
			c.next[i][k] += to.probability
		}
	}
	for i, row := range c.next {
		c.next[i] = append(row, make([]float64, len(nodes)-len(row))...)
	}
	return c
}

// solve returns the mean number of steps from the first state to absorption. It eliminates the states from the last to the
// second with the method of Grassmann, Taksar and Heyman (1985), which never subtracts: even a mean of 10³⁰ is exact except for
// rounding.
func (c *chain) solve() (mean float64) {
	steps := make([]float64, len(c.next))
	for i := range steps {
		steps[i] = 1
	}
	for k := len(c.next) - 1; k > 0; k-- {
		leave := c.absorb[k]
		for j := range k {
			leave += c.next[k][j]
		}
		for i := range k {
			share := c.next[i][k] / leave
			if share == 0 {
				continue
			}
			for j := range k {
				c.next[i][j] += share * c.next[k][j]
			}
			c.absorb[i] += share * c.absorb[k]
			steps[i] += share * steps[k]
		}
	}
	return steps[0] / c.absorb[0]
}

// settle returns the state of a probe that has just reached a verdict.
func settle(r probe.Rule, v probe.Verdict) verdict.State {
	s := count(r, begin(r), probe.Success)
	for s.Verdict != probe.Passing {
		s = count(r, s, probe.Success)
	}
	for v == probe.Failing && s.Verdict != probe.Failing {
		s = count(r, s, probe.Failure)
	}
	return s
}

// instance is the instance of a simulated probe. No driver replaces it.
var instance = probe.Instance{Target: "simulated", ID: "1", Phase: probe.Running}

// begin returns the state of a probe before its first attempt.
func begin(r probe.Rule) verdict.State {
	s, _ := verdict.Step(r, verdict.State{}, verdict.Event{Instance: instance, Started: r.Kind != probe.Startup}, time.Time{})
	return s
}

// count returns the state after an attempt, without parts that have no effect on later verdicts.
func count(r probe.Rule, s verdict.State, o probe.Outcome) verdict.State {
	s, _ = verdict.Step(r, s, verdict.Event{Attempted: true, Instance: instance, Outcome: o}, time.Time{})
	return verdict.Settled(r, s)
}
