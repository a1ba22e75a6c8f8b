package fleet

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Bounds of what is said about one target. As many ballots as one request may have transactions fit into it.
const (
	maxBallot = coord.MaxRequest / coord.MaxTransactions // bytes; a longer ballot counts as none
	maxPolls  = 64                                       // probes with a quorum
)

// Vantage is what an engine that votes says about itself.
type Vantage struct {
	Zone     string      `json:"zone,omitempty"`     // where it is, at most quorum.MaxZone bytes
	Doubtful bool        `json:"doubtful,omitempty"` // none of its votes counts: see package doubt
	Drained  bool        `json:"drained,omitempty"`  // it may have no shards, and is chosen for no quorum: what it knows of targets may be old
	Targets  int         `json:"targets,omitempty"`  // how many targets with a verdict it probes
	Failing  int         `json:"failing,omitempty"`  // how many of them fail
	Lease    coord.Lease `json:"lease"`              // of its membership: its ballots from an earlier one do not count
}

// ballot is what a vantage says about a target.
type ballot struct {
	Instance string      `json:"instance"` // of the target, which the votes are about
	Lease    coord.Lease `json:"lease"`    // of the vantage's membership
	Votes    []vote      `json:"votes"`
}

// vote is what a vantage says about one probe.
type vote struct {
	Poll    string        `json:"poll"` // the name of the probe's poll: see pollOf
	Verdict probe.Verdict `json:"verdict"`
	Of      uint32        `json:"of,omitempty"` // the engine.Definition of the probe that has decided it; 0 if that is not the present one
}

// ballotKey says whose ballot it is, and about which target.
type ballotKey struct{ vantage, target string }

// electorate is whom a rule chooses from for the targets of a shard.
type electorate struct {
	shard shard.ID
	rule  quorum.Rule
}

// votes mirrors what the engines of the fleet say, as the store shows it, and keeps what this engine says there as it is now.
type votes struct {
	coordinator *coord.Coordinator
	rechoose    wake.Signal                                   // set when other engines may be chosen
	voted       func(target string)                           // called when a ballot about a target has changed
	ballot      func(target string, lease coord.Lease) []byte // what this engine says about a target now; nil: nothing
	sparse      *sparselog.Logger
	wake        wake.Signal // something is marked

	votesMu  sync.Mutex         // guards all below
	lease    coord.Lease        // of the membership in which the entries were read; 0: changes may be missing
	readAt   time.Time          // when they were read
	vantages map[string]Vantage // by name
	ballots  map[ballotKey]ballot
	own      map[string]coord.Entry  // the entries of this engine: its ballots by target, "" for its Vantage
	chosen   map[electorate][]string // the vantages that were chosen from those there are now
	marked   map[string]bool         // the entries of this engine that may not be as the store has them
	self     Vantage
}

func newVotes(c *coord.Coordinator, zone string, log *slog.Logger) *votes {
	v := &votes{coordinator: c, sparse: sparselog.New(log), rechoose: wake.New(), wake: wake.New(), marked: map[string]bool{}, self: Vantage{Zone: zone}}
	v.clear(0)
	return v
}

// clear forgets all entries. It needs votesMu.
func (v *votes) clear(lease coord.Lease) {
	v.lease, v.readAt, v.vantages, v.ballots = lease, time.Now(), map[string]Vantage{}, map[ballotKey]ballot{}
	v.own, v.chosen = map[string]coord.Entry{}, map[electorate][]string{}
}

// run follows the store until ctx is done.
func (v *votes) run(ctx context.Context) {
	v.coordinator.Follow(ctx, "the votes of the fleet cannot be followed, trying again", func(ctx context.Context) error {
		lease, _ := v.coordinator.Lease() // with another one, ctx ends
		defer v.outdate()
		return coord.FollowEntries(ctx, v.coordinator.Backend(), coord.KeyVote, func(events []coord.Event, isAll bool) {
			v.apply(lease, events, isAll)
		})
	})
}

// outdate says that changes may be missing from now on.
func (v *votes) outdate() {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	v.lease = 0
}

// apply applies the events of a watch that has begun with a lease, and calls those who wait for them.
func (v *votes) apply(lease coord.Lease, events []coord.Event, isAll bool) {
	voted, isRechosen := v.note(lease, events, isAll)
	if isRechosen {
		v.rechoose.Set()
	}
	v.wake.Set()
	if isAll {
		return // owners look at all votes once a second
	}
	for _, target := range voted {
		v.voted(target)
	}
}

// note applies events, and marks the entries of this engine that have changed. It returns the targets about which ballots have
// changed, and whether other engines may be chosen.
func (v *votes) note(lease coord.Lease, events []coord.Event, isAll bool) (voted []string, isRechosen bool) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	if isAll {
		v.clear(lease)
	}
	for _, e := range events {
		name, target, isBallot := strings.Cut(strings.TrimPrefix(e.Key, coord.KeyVote), "/")
		if name == "" || isBallot && target == "" {
			continue // no engine has put it
		}
		if name == v.coordinator.Name() {
			v.marked[target] = true
			if v.own[target] = e.Entry; e.Deleted {
				delete(v.own, target)
			}
		}
		if isBallot {
			voted = append(voted, target)
			if v.ballots[ballotKey{name, target}] = decode[ballot](e.Value); e.Deleted {
				delete(v.ballots, ballotKey{name, target})
			}
		} else {
			isRechosen = v.noteVantage(name, decode[Vantage](e.Value), e.Deleted) || isRechosen
		}
	}
	return voted, isRechosen || isAll
}

// noteVantage notes what an engine says of itself, or that it has gone, and reports whether others may be chosen. It needs
// votesMu.
func (v *votes) noteVantage(name string, now Vantage, isGone bool) (isRechosen bool) {
	before, wasKnown := v.vantages[name]
	if v.vantages[name] = now; isGone {
		delete(v.vantages, name)
	}
	if wasKnown && !isGone && before.Zone == now.Zone && before.Drained == now.Drained {
		return false
	}
	clear(v.chosen)
	return true
}

// choose returns the engines that a rule chooses for the targets of a shard: none that is drained.
func (v *votes) choose(id shard.ID, r quorum.Rule) []string {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	return v.chosenBy(electorate{id, r})
}

// chosenBy is choose. It needs votesMu.
func (v *votes) chosenBy(e electorate) []string {
	chosen, isKnown := v.chosen[e]
	if !isKnown {
		live := make([]quorum.Vantage, 0, len(v.vantages))
		for name, vantage := range v.vantages {
			if !vantage.Drained {
				live = append(live, quorum.Vantage{Name: name, Zone: vantage.Zone})
			}
		}
		chosen = quorum.Choose(e.shard, e.rule, live)
		v.chosen[e] = chosen
	}
	return chosen
}

// about returns the votes about a probe of the vantages that its rule chooses, and which of these have voted on the probe as it
// is now.
func (v *votes) about(of joint) (all []quorum.Vote, current map[string]bool) {
	id, poll := of.id, pollOf(of.id).Name
	current = map[string]bool{}
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for _, name := range v.chosenBy(electorate{shard.Of(id.Target), of.rule}) {
		cast, vantage := v.ballots[ballotKey{name, id.Target}], v.vantages[name]
		at := slices.IndexFunc(cast.Votes, func(said vote) bool { return said.Poll == poll })
		if at >= 0 && cast.Lease == vantage.Lease {
			all = append(all, quorum.Vote{Vantage: name, Instance: cast.Instance, Verdict: cast.Votes[at].Verdict, Doubtful: vantage.Doubtful})
			current[name] = cast.Votes[at].Of == of.definition
		}
	}
	return all, current
}

// isCurrent reports whether the entries were read in the membership with a lease, and no changes are missing since.
func (v *votes) isCurrent(lease coord.Lease) bool {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	return lease != 0 && v.lease == lease
}

// ownEntry returns an entry of this engine. It has no revisions if there is none.
func (v *votes) ownEntry(target string) coord.Entry {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	return v.own[target]
}

// engines returns what the engines have said last of themselves, by name.
func (v *votes) engines() map[string]Vantage {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	return maps.Clone(v.vantages)
}

// others returns what the other engines see, without those that doubt their verdicts, and until when that is known; zero while
// the store is away, and until a ttl after the entries were read: these may be from before an outage.
func (v *votes) others() (s doubt.Sample, heardAt time.Time) {
	ttl, heardAt := v.coordinator.TTL(), v.coordinator.Heard()
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for name, other := range v.vantages {
		if name != v.coordinator.Name() && !other.Doubtful {
			s.Targets += other.Targets
			s.Failing += other.Failing
		}
	}
	if v.lease == 0 || time.Since(v.readAt) < ttl || time.Since(heardAt) > ttl/2 {
		return s, time.Time{}
	}
	return s, heardAt
}

// decode reads a value. One that is none of this release is as none: an engine without a zone, or a ballot without votes.
func decode[T Vantage | ballot](value []byte) (v T) {
	if len(value) > maxBallot || json.Unmarshal(value, &v) != nil {
		return *new(T)
	}
	return v
}

// encode returns a value.
func encode[T Vantage | ballot](v T) []byte {
	b, _ := json.Marshal(v) // it has no part that JSON lacks
	return b
}
