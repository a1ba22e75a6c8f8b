package group

import (
	"context"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// View is what a group is at some time. It never changes.
type View struct {
	Group   string
	Version uint64 // grows with each View of the group, also from one engine to the next
	Rule    Rule

	State probe.GatewayState // whether enough members take requests

	// Last is State or, while that is Undecided, the last one that was not: what gateways
	// act on. It is Undecided only before the first decision.
	Last  probe.GatewayState
	Since time.Time // when Last changed; zero while it is Undecided

	Need       int    // how many members must take requests: Rule.MinReady of those in Counts
	Counts     Counts // of members by state, without those of the weight 0
	ZeroWeight int    // how many members have the weight 0

	// Frozen says that a gateway keeps what it has, whatever the members say: the group waits
	// for its members to be decided, nothing is known about any, or the engine is isolated. A
	// group waits, a minute at most, from when it has members, and again when all those that
	// took requests are no longer there: removed, renamed or moved. A member that is undecided
	// while others go on freezes nothing: it stays as it was, and a new one is out of rotation.
	Frozen bool

	InRotation int  // how many members are in rotation
	Panicking  bool // all are, since too few take requests: see Rule.Panic

	// RestartsWithheld is how many members of this engine fail, and are not restarted since the group would have too few that
	// take requests: see Groups.Acquire. They count as what their readiness says.
	RestartsWithheld int

	Removed bool // Apply has removed the group: there is no further View

	members   members
	replaced  chan struct{} // closed when there is a newer View
	pickOnce  sync.Once
	picked    shares // set by the first Pick
	indexOnce sync.Once
	byAddress map[string][]*Member // set by the first MembersAt; without members that have no address
}

// Total returns how many members there are.
func (v *View) Total() int { return v.Counts.Total() + v.ZeroWeight }

// Decided reports whether there are members, and the state of each that counts is known.
func (v *View) Decided() bool { return v.Counts[probe.GatewayUndecided] == 0 && v.Total() > 0 }

// Members yields the members, sorted by name. The caller must not change them.
func (v *View) Members() iter.Seq[*Member] { return v.members.from("") }

// MembersAfter yields the members whose names sort after a name, sorted by name. The
// caller must not change them.
func (v *View) MembersAfter(name string) iter.Seq[*Member] { return v.members.from(name) }

// Member returns the member of a name, or nil. The caller must not change it.
func (v *View) Member(name string) *Member { return v.members.get(name) }

// Replaced returns a channel that is closed when there is a newer View.
func (v *View) Replaced() <-chan struct{} { return v.replaced }

// AwaitReplaced waits until ctx is done, there is a newer View than one of views, or one of some channels can be received
// from. It returns the index of that channel, or -1.
func AwaitReplaced(ctx context.Context, views []*View, channels ...any) (received int) {
	channels = append(channels, ctx.Done())
	cases := make([]reflect.SelectCase, 0, len(channels)+len(views))
	for _, c := range channels {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	for _, v := range views {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(v.replaced)})
	}
	if received, _, _ = reflect.Select(cases); received >= len(channels)-1 {
		return -1
	}
	return received
}
