package group

import "github.com/sonde-probe/sonde/probe"

// Counts are the numbers of members by state.
type Counts [probe.GatewayStates]int

// Total returns the number of members.
func (c Counts) Total() (n int) {
	for _, members := range c {
		n += members
	}
	return n
}

// Serving returns the number of members that take requests: those that are Ready or Degraded.
func (c Counts) Serving() int { return c[probe.GatewayReady] + c[probe.GatewayDegraded] }

// decide returns the state of a group that needs a number of members to take requests, given the members that count and the
// number of members with weight 0, which cannot. It is Undecided if it depends on the undecided members, or if there are no
// members: they are not known yet, or discovery has lost them.
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
