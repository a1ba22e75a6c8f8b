package group

import "github.com/sonde-probe/sonde/probe"

// State says whether a member, or a group, is ready. A group is Undecided, Ready or Down.
type State = probe.GatewayState

// The states.
const (
	Undecided = probe.GatewayUndecided
	Ready     = probe.GatewayReady
	Degraded  = probe.GatewayDegraded
	Draining  = probe.GatewayDraining
	Down      = probe.GatewayDown
)

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
func (c Counts) Serving() int { return c[Ready] + c[Degraded] }

// decide returns the state of a group that needs some of its members to take requests, and
// has others of the weight 0, which cannot: Undecided if it depends on what becomes of the
// undecided ones, and if there are no members: they are not known yet, or were lost by
// what finds them.
func decide(c Counts, zeroWeight, need int) State {
	switch {
	case c.Total()+zeroWeight == 0:
		return Undecided
	case c.Serving() >= need:
		return Ready
	case c.Serving()+c[Undecided] < need:
		return Down
	}
	return Undecided
}
