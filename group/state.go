package group

import "github.com/sonde-probe/sonde/probe"

// Counts are the numbers of members by state.
type Counts [probe.GatewayStates]int

// Total returns how many members there are.
func (c Counts) Total() (n int) {
	for _, members := range c {
		n += members
	}
	return n
}

// Serving returns how many members take requests: those that are Ready or Degraded.
func (c Counts) Serving() int { return c[probe.GatewayReady] + c[probe.GatewayDegraded] }

// decide returns the state of a group that needs some of its members to take requests, and
// has others of the weight 0, which cannot: Undecided if it depends on what becomes of the
// undecided ones, and if there are no members: they are not known yet, or were lost by
// what finds them.
func decide(c Counts, zeroWeight, need int) probe.GatewayState {
	switch {
	case c.Total()+zeroWeight == 0:
		return probe.GatewayUndecided
	case c.Serving() >= need:
		return probe.GatewayReady
	case c.Serving()+c[probe.GatewayUndecided] < need:
		return probe.GatewayDown
	}
	return probe.GatewayUndecided
}
