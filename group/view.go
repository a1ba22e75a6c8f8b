package group

import (
	"iter"
	"time"
)

// View is what a group is at some time. It never changes.
type View struct {
	Group   string
	Version uint64 // grows with each View of the group, also from one engine to the next
	Rule    Rule

	State State // whether enough members are ready

	// Last is State or, while that is Undecided, the last one that was not: what to go by
	// for whoever has to act. It is Undecided only before the first decision.
	Last  State
	Since time.Time // when Last changed; zero while it is Undecided

	Need   int    // how many members must be ready: Rule.MinReady of all
	Counts Counts // of members, by state

	Removed bool // Apply has removed the group: there is no further View

	members  members
	replaced chan struct{} // closed when there is a newer View
}

// Decided reports whether there are members, and the state of each is known.
func (v *View) Decided() bool { return v.Counts[Undecided] == 0 && v.Counts.Total() > 0 }

// Members yields the members, sorted by name. The caller must not change them.
func (v *View) Members() iter.Seq[*Member] { return v.members.from("") }

// MembersAfter yields the members whose names sort after a name, sorted by name. The
// caller must not change them.
func (v *View) MembersAfter(name string) iter.Seq[*Member] { return v.members.from(name) }

// Member returns the member of a name, or nil. The caller must not change it.
func (v *View) Member(name string) *Member { return v.members.get(name) }
