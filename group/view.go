package group

import (
	"context"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// View is the state of a group at some time. It never changes.
type View struct {
	Group   string
	Version uint64 // grows with each View of the group, including across engines
	Rule    Rule

	State probe.GatewayState // whether enough members take requests

	// Last is the latest State that was not Undecided; gateways act on it. It is Undecided only before the first decision.
	Last  probe.GatewayState
	Since time.Time // when Last changed; zero while it is Undecided

	Need       int    // number of members that must take requests: Rule.MinReady applied to those in Counts
	Counts     Counts // numbers of members by state, without members of weight 0
	ZeroWeight int    // number of members with weight 0

	// Frozen makes a gateway keep its current members, whatever their states are: the group waits for its members to be
	// decided, no state is known, or the engine is isolated. A group waits for at most a minute, from when it first has
	// members, and again when all members that took requests are gone: removed, renamed or moved. A single undecided member
	// does not freeze the group: it keeps its place, and a new one is out of rotation.
	Frozen bool

	InRotation int  // number of members in rotation
	Panicking  bool // all members are in rotation since too few take requests: see Rule.Panic

	// RestartsWithheld is the number of members of this engine that fail and are not restarted, since too few members would
	// be left that take requests: see Groups.Acquire. They count by their readiness.
	RestartsWithheld int

	Removed bool // Apply has removed the group: no further View is published

	members   members
	replaced  chan struct{} // closed when a newer View is published
	pickOnce  sync.Once
	picked    shares // set by the first Pick
	indexOnce sync.Once
	byAddress map[string][]*Member // set by the first MembersAt; without members that have no address
}

// Total returns the number of members.
func (v *View) Total() int { return v.Counts.Total() + v.ZeroWeight }

// Decided reports whether there are members and no member that counts is undecided.
func (v *View) Decided() bool { return v.Counts[probe.GatewayUndecided] == 0 && v.Total() > 0 }

// Members yields the members, sorted by name. The caller must not change them.
func (v *View) Members() iter.Seq[*Member] { return v.members.from("") }

// MembersAfter yields the members whose names sort after name, sorted by name. The caller must not change them.
func (v *View) MembersAfter(name string) iter.Seq[*Member] { return v.members.from(name) }

// Member returns the member with a name, or nil. The caller must not change it.
func (v *View) Member(name string) *Member { return v.members.get(name) }

// Replaced returns a channel that is closed when a newer View is published.
func (v *View) Replaced() <-chan struct{} { return v.replaced }

// AwaitReplaced waits until ctx is done, one of views has been replaced, or one of the channels can be received from. It
// returns the index of that channel, or -1.
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
