package simulate

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// noise says which attempts at a target fail.
type noise struct {
	Failures float64 // the share of attempts that fail, above 0 and below 1
	Burst    float64 // the mean number of failures in a row; 0: each attempt fails independently of the others
}

// check returns an error if there is no such noise.
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

// failure returns the probability that an attempt fails, after one that has failed or not.
func (n noise) failure(hasFailed bool) float64 {
	switch {
	case n.Burst == 0:
		return n.Failures
	case hasFailed:
		return 1 - 1/n.Burst
	}
	return n.Failures / (1 - n.Failures) / n.Burst
}

// maxThreshold bounds the thresholds of rules under noise: meanAttempts needs their third power of time.
const maxThreshold = 500

// node is a state of the Markov chain of a probe under noise.
type node struct {
	state     verdict.State
	hasFailed bool // the attempt before it; false for noise without bursts
}

// chain is an absorbing Markov chain, whose first state is the one at the start.
type chain struct {
	next   [][]float64 // the probabilities of states by state
	absorb []float64   // the probability of the end by state
}

// meanAttempts returns the mean number of attempts until a probe with rule r, which has just come
// to a verdict, comes to the other one. It is exact: the solution of the Markov chain of the states
// that verdict.Step has under that noise, with the verdicts turning for ever. It is not for startup
// probes.
func meanAttempts(r probe.Rule, from probe.Verdict, n noise) float64 {
	passing, failing := cycle(r, n)
	if from == probe.Failing {
		return failing
	}
	return passing
}

// cycle returns the mean number of attempts for which a probe passes, and for which it fails, while the
// verdicts turn for ever. The first time begins after a success, and the second one after a failure.
func cycle(r probe.Rule, n noise) (passing, failing float64) {
	passing = newChain(r, node{settle(r, probe.Passing), false}, n).solve()
	failing = newChain(r, node{settle(r, probe.Failing), n.Burst > 0}, n).solve()
	return passing, failing
}

// newChain finds the states of a probe, from the first one until its verdict is another one.
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

// solve returns the mean number of steps from the first state to the end. It takes the states away from the last to the
// second, by the method of Grassmann, Taksar and Heyman (1985), which never subtracts: also a mean of 10³⁰ is exact but
// for rounding.
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

// settle returns the state of a probe that has just come to a verdict.
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

// instance is what a simulated probe attempts. No driver replaces it.
var instance = probe.Instance{Target: "simulated", ID: "1", Phase: probe.Running}

// begin returns the state of a probe before its first attempt.
func begin(r probe.Rule) verdict.State {
	s, _ := verdict.Step(r, verdict.State{}, verdict.Event{Instance: instance, Started: r.Kind != probe.Startup}, time.Time{})
	return s
}

// count returns the state after an attempt, without what has no effect on later verdicts.
func count(r probe.Rule, s verdict.State, o probe.Outcome) verdict.State {
	s, _ = verdict.Step(r, s, verdict.Event{Attempted: true, Instance: instance, Outcome: o}, time.Time{})
	return verdict.Settled(r, s)
}
