package group

import (
	"github.com/sonde-probe/sonde/engine"
)

// State says whether a member, or a group, is ready.
type State uint8

// The states.
const (
	Undecided State = iota // it is not known
	Ready
	Down // it is known not to be ready
)

var stateNames = [...]string{"undecided", "ready", "down"}

// String returns the state as it is written in JSON and metrics: "undecided", "ready" or
// "down".
func (s State) String() string { return stateNames[s] }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// States are all states.
var States = [...]State{Undecided, Ready, Down}

// Counts are the numbers of members by state.
type Counts [len(States)]int

// Total returns how many members there are.
func (c Counts) Total() int { return c[Undecided] + c[Ready] + c[Down] }

// decide returns the state of a group that needs some of its members to be ready:
// Undecided if it depends on what becomes of the undecided ones, and if there are no
// members: they are not known yet, or whoever finds them has lost them.
func decide(c Counts, need int) State {
	switch {
	case c.Total() == 0:
		return Undecided
	case c[Ready] >= need:
		return Ready
	case c[Ready]+c[Undecided] < need:
		return Down
	}
	return Undecided
}

// stateOf returns the state of a target as a member.
func stateOf(t *engine.TargetStatus) State {
	switch {
	case t.Ready:
		return Ready
	case t.Decided:
		return Down
	}
	return Undecided
}
