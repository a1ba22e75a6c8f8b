package simulate

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Noise says which attempts at a target fail.
type Noise struct {
	Failures float64 // the share of attempts that fail, above 0 and below 1

	// Burst is the mean number of attempts in a row that are within a burst. With 0 each attempt fails
	// independently of the others. Otherwise the target is in one of two conditions, as in the model of
	// a channel by Gilbert (1960) and Elliott (1963): within a burst or outside of one.
	Burst float64

	// Within is the share of attempts that fail within a burst; 0: all of them. Outside is the share
	// that fails outside of bursts. Without Burst both are 0.
	Within, Outside float64
}

// Check returns an error if there is no such noise.
func (n Noise) Check() error {
	switch {
	case !(n.Failures > 0 && n.Failures < 1):
		return fmt.Errorf("a share of failures of %v %% is not between 0 and 100 %%", 100*n.Failures)
	case n.Burst != 0 && !(n.Burst >= 1):
		return fmt.Errorf("a burst of %v attempts is shorter than one", n.Burst)
	case !(n.Within >= 0 && n.Within <= 1 && n.Outside >= 0 && n.Outside < 1):
		return fmt.Errorf("a share of failures within or outside of bursts is not between 0 and 100 %%")
	case n.Burst == 0 && (n.Within != 0 || n.Outside != 0):
		return fmt.Errorf("shares of failures within and outside of bursts need the length of a burst")
	case n.Burst == 0:
		return nil
	case !(n.Outside < n.Failures && n.Failures < n.within()):
		return fmt.Errorf("a share of failures of %v %% is not between those outside of bursts and within them, %v %% and %v %%", 100*n.Failures, 100*n.Outside, 100*n.within())
	case n.enter() > 1:
		return fmt.Errorf("bursts of %v attempts are too short for a share of %v %%", n.Burst, 100*n.Failures)
	}
	return nil
}

func (n Noise) within() float64 { return cmp.Or(n.Within, 1) }

// enter returns the probability that a burst begins with an attempt, after one outside of a burst.
func (n Noise) enter() float64 {
	inBurst := (n.Failures - n.Outside) / (n.within() - n.Outside)
	return inBurst / (1 - inBurst) / n.Burst
}

// attempt returns the probability that an attempt is within a burst, after one that was or was not.
func (n Noise) attempt(inBurst bool) float64 {
	switch {
	case n.Burst == 0:
		return 0
	case inBurst:
		return 1 - 1/n.Burst
	}
	return n.enter()
}

// failure returns the probability that an attempt fails that is within a burst, or is not.
func (n Noise) failure(inBurst bool) float64 {
	switch {
	case n.Burst == 0:
		return n.Failures
	case inBurst:
		return n.within()
	}
	return n.Outside
}

// MaxThreshold bounds the thresholds of rules under noise: MeanAttempts needs their third power of time.
const MaxThreshold = 500

// node is a state of the Markov chain of a probe under noise.
type node struct {
	state   verdict.State
	inBurst bool // the attempt before it
}

// conditions are probabilities of what a node has as inBurst: first false, then true.
type conditions [2]float64

func index(inBurst bool) int {
	if inBurst {
		return 1
	}
	return 0
}

// chain is an absorbing Markov chain, whose first state is the one at the start.
type chain struct {
	next   [][]float64  // the probabilities of states by state
	absorb []conditions // the probability of the end, by state and by the condition at the end
}

// MeanAttempts returns the mean number of attempts until a probe with rule r, which has just come
// to a verdict, comes to the other one. It is exact: the solution of the Markov chain of the states
// that verdict.Step has under that noise, with the verdicts turning for ever. It is not for startup
// probes.
func MeanAttempts(r probe.Rule, from probe.Verdict, n Noise) float64 {
	passing, failing := cycle(r, n)
	if from == probe.Failing {
		return failing
	}
	return passing
}

// cycle returns the mean number of attempts for which a probe passes, and for which it fails, while the
// verdicts turn for ever. Each time begins within a burst or outside of one, as the time before has
// ended: the shares of both are those of the stationary chain of the beginnings.
func cycle(r probe.Rule, n Noise) (passing, failing float64) {
	if n.Burst == 0 {
		passing, _ = newChain(r, node{settle(r, probe.Passing), false}, n).solve()
		failing, _ = newChain(r, node{settle(r, probe.Failing), false}, n).solve()
		return passing, failing
	}
	var mean [2]conditions // by verdict, and by the condition at its beginning
	var end [2][2]conditions
	for v, from := range []probe.Verdict{probe.Passing, probe.Failing} {
		for _, inBurst := range []bool{false, true} {
			c := newChain(r, node{settle(r, from), inBurst}, n)
			mean[v][index(inBurst)], end[v][index(inBurst)] = c.solve()
		}
	}
	// The conditions at the beginnings of times in which the probe passes are a chain of two states.
	toBurst := func(begin int) float64 {
		return end[0][begin][0]*end[1][0][1] + end[0][begin][1]*end[1][1][1]
	}
	begin, leave, enter := conditions{1, 0}, 1-toBurst(1), toBurst(0)
	if leave+enter > 0 {
		begin = conditions{leave / (leave + enter), enter / (leave + enter)}
	}
	for i, share := range begin {
		passing += share * mean[0][i]
		for k, ends := range end[0][i] {
			failing += share * ends * mean[1][k]
		}
	}
	return passing, failing
}

// newChain finds the states of a probe, from the first one until its verdict is another one.
func newChain(r probe.Rule, first node, n Noise) *chain {
	known, nodes := map[node]int{first: 0}, []node{first}
	c := &chain{}
	for i := 0; i < len(nodes); i++ {
		c.next, c.absorb = append(c.next, nil), append(c.absorb, conditions{})
		burst := n.attempt(nodes[i].inBurst)
		for _, inBurst := range []bool{false, true} {
			condition, failure := burst, n.failure(inBurst)
			if !inBurst {
				condition = 1 - burst
			}
			for _, to := range []struct {
				outcome     probe.Outcome
				probability float64
			}{{probe.Failure, condition * failure}, {probe.Success, condition * (1 - failure)}} {
				if to.probability == 0 {
					continue
				}
				after := node{count(r, nodes[i].state, to.outcome), inBurst}
				if after.state.Verdict != first.state.Verdict {
					c.absorb[i][index(inBurst)] += to.probability
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
	}
	for i, row := range c.next {
		c.next[i] = append(row, make([]float64, len(nodes)-len(row))...)
	}
	return c
}

// solve returns the mean number of steps from the first state to the end, and the conditions at the
// end. It takes the states away from the last to the second, by the method of Grassmann, Taksar and
// Heyman (1985), which never subtracts: also a mean of 10³⁰ is exact but for rounding.
func (c *chain) solve() (mean float64, end conditions) {
	steps := make([]float64, len(c.next))
	for i := range steps {
		steps[i] = 1
	}
	for k := len(c.next) - 1; k > 0; k-- {
		leave := c.absorb[k][0] + c.absorb[k][1]
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
			for condition := range end {
				c.absorb[i][condition] += share * c.absorb[k][condition]
			}
			steps[i] += share * steps[k]
		}
	}
	all := c.absorb[0][0] + c.absorb[0][1]
	return steps[0] / all, conditions{c.absorb[0][0] / all, c.absorb[0][1] / all}
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
	s, _ := verdict.Step(r, verdict.State{}, verdict.Event{Type: verdict.Looked, Instance: instance, Started: r.Kind != probe.Startup}, time.Time{})
	return s
}

// count returns the state after an attempt, without what has no effect on later verdicts.
func count(r probe.Rule, s verdict.State, o probe.Outcome) verdict.State {
	s, _ = verdict.Step(r, s, verdict.Event{Type: verdict.Attempted, Instance: instance, Outcome: o}, time.Time{})
	return verdict.Settled(r, s)
}
