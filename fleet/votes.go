package fleet

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Bounds of what is said about one target. As many ballots as one request may have transactions fit into it.
const (
	maxBallot = coord.MaxRequest / coord.MaxTransactions // bytes; a longer ballot counts as none
	maxPolls  = 64                                       // probes with a quorum
)

// maxSeen bounds Vantage.Targets of others: more than one engine can probe, and few enough to be added.
const maxSeen = 1 << 24

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

// said is an entry of the votes of the fleet: what an engine says about itself, by its name, or about a target, by that name, a
// slash, and the target.
type said struct {
	vantage Vantage
	ballot  ballot
}

// entryOf returns the name of what an engine says about a target; "" is about itself.
func entryOf(engine, target string) string {
	if target == "" {
		return engine
	}
	return engine + "/" + target
}

// electorate is whom a rule chooses from for the targets of a shard.
type electorate struct {
	shard shard.ID
	rule  quorum.Rule
}

// votes mirrors what the engines of the fleet say, as the store shows it, and keeps what this engine says there as it is now.
type votes struct {
	coordinator *coord.Coordinator
	said        *coord.Mirror[said]
	rechoose    wake.Signal                                   // set when other engines may be chosen
	voted       func(target string)                           // called when a ballot about a target has changed
	ballot      func(target string, lease coord.Lease) []byte // what this engine says about a target now; nil: nothing

	votesMu     sync.Mutex              // guards all below
	vantages    map[string]Vantage      // of said, by name
	chosen      map[electorate][]string // the vantages that were chosen from those there are now
	self        Vantage
	isSelfKnown bool // whether this engine is drained: or else it would be put as drained at first
}

func newVotes(c *coord.Coordinator, zone string) *votes {
	v := &votes{coordinator: c, rechoose: wake.New(), vantages: map[string]Vantage{}, chosen: map[electorate][]string{}, self: Vantage{Zone: zone}}
	v.said = coord.NewMirror(c, coord.Kind[said]{
		Keys: coord.VoteKeys, MaxValue: maxBallot, Problem: "the votes of the fleet cannot be followed, trying again",
		Parse: parseSaid, Changed: v.changed, Own: v.own, OwnProblem: "votes cannot be put, trying again",
	})
	return v
}

// run follows the store, and puts what this engine says, until ctx is done.
func (v *votes) run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { v.followDrains(ctx) })
	v.said.Run(ctx)
}

// changed notes which engines there are, and calls those who wait for votes.
func (v *votes) changed(all []coord.ItemChange[said], isAll bool) {
	if v.note(all) || isAll {
		v.rechoose.Set()
	}
	if isAll {
		return // owners look at all votes once a second
	}
	for _, c := range all {
		if _, target, isBallot := strings.Cut(c.Name, "/"); isBallot {
			v.voted(target)
		}
	}
}

// note notes what engines say of themselves, or that they have gone, and reports whether others may be chosen.
func (v *votes) note(all []coord.ItemChange[said]) (isRechosen bool) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for _, c := range all {
		if strings.Contains(c.Name, "/") {
			continue
		}
		before, now := c.Before.Value.vantage, c.Now.Value.vantage
		if v.vantages[c.Name] = now; c.Now.Modified == 0 {
			delete(v.vantages, c.Name)
		}
		if (c.Before.Modified == 0) != (c.Now.Modified == 0) || before.Zone != now.Zone || before.Drained != now.Drained {
			isRechosen = true
			clear(v.chosen)
		}
	}
	return isRechosen
}

// choose returns the engines that a rule chooses for the targets of a shard: none that is drained.
func (v *votes) choose(id shard.ID, r quorum.Rule) []string {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	e := electorate{id, r}
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
	for _, name := range v.choose(shard.Of(id.Target), of.rule) {
		vantage, cast := v.said.Get(name).Value.vantage, v.said.Get(entryOf(name, id.Target)).Value.ballot
		at := slices.IndexFunc(cast.Votes, func(said vote) bool { return said.Poll == poll })
		if at >= 0 && cast.Lease == vantage.Lease {
			all = append(all, quorum.Vote{Vantage: name, Instance: cast.Instance, Verdict: cast.Votes[at].Verdict, Doubtful: vantage.Doubtful})
			current[name] = cast.Votes[at].Of == of.definition
		}
	}
	return all, current
}

// isCurrent reports whether the entries were read in the membership with a lease, and no changes are missing since.
func (v *votes) isCurrent(lease coord.Lease) bool { return lease != 0 && v.said.State().Lease == lease }

// engines returns what the engines have said last of themselves, by name.
func (v *votes) engines() map[string]Vantage {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	return maps.Clone(v.vantages)
}

// others returns what the other engines see, without those that doubt their verdicts, and until when that is known; zero while
// the store is away, and until a ttl after the entries were read: these may be from before an outage.
func (v *votes) others() (s doubt.Sample, heardAt time.Time) {
	ttl, heardAt, readAt := v.coordinator.TTL(), v.coordinator.Heard(), v.said.State().ReadAt
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for name, other := range v.vantages {
		if name != v.coordinator.Name() && !other.Doubtful {
			s.Targets += other.Targets
			s.Failing += other.Failing
		}
	}
	if readAt.IsZero() || time.Since(readAt) < ttl || time.Since(heardAt) > ttl/2 {
		return s, time.Time{}
	}
	return s, heardAt
}

// parseSaid returns what an entry says. A value that is none of this release is as none: an engine without a zone, or a ballot
// without votes.
func parseSaid(name string, e coord.Entry, _ said) (s said) {
	var to any = &s.vantage
	if strings.Contains(name, "/") {
		to = &s.ballot
	}
	if json.Unmarshal(e.Value, to) != nil {
		return said{}
	}
	v := &s.vantage
	v.Targets = min(max(v.Targets, 0), maxSeen)
	v.Failing = min(max(v.Failing, 0), v.Targets)
	return s
}

// mark says that what this engine says about targets may have changed; "" is about itself.
func (v *votes) mark(targets ...string) {
	names := make([]string, 0, len(targets))
	for _, target := range targets {
		names = append(names, entryOf(v.coordinator.Name(), target))
	}
	v.said.Mark(names...)
}

// say changes what this engine says of itself.
func (v *votes) say(change func(*Vantage)) {
	v.votesMu.Lock()
	before := v.self
	change(&v.self)
	isChanged := v.self != before
	v.votesMu.Unlock()
	if isChanged {
		v.mark("")
	}
}

// setHealth says whether this engine doubts its verdicts, and how many of its targets fail. Others are told
// of another number only if it differs by a percent of the targets.
func (v *votes) setHealth(doubtful bool, own doubt.Sample) {
	v.say(func(self *Vantage) {
		if doubtful != self.Doubtful || differs(own.Targets, self.Targets, own.Targets) || differs(own.Failing, self.Failing, own.Targets) {
			self.Doubtful, self.Targets, self.Failing = doubtful, own.Targets, own.Failing
		}
	})
}

// differs reports whether two numbers of so many targets differ by more than one percent of these.
func differs(a, b, targets int) bool { return max(a-b, b-a)*100 > targets }

// followDrains says whether this engine is drained, once that is known, until ctx is done.
func (v *votes) followDrains(ctx context.Context) {
	for {
		isEligible, isKnown, reassigned := v.coordinator.Eligible()
		if isKnown {
			v.votesMu.Lock()
			v.self.Drained, v.isSelfKnown = !isEligible, true
			v.votesMu.Unlock()
			v.mark("")
		}
		select {
		case <-reassigned:
		case <-ctx.Done():
			return
		}
	}
}

// own returns what the store is to have under a name of this engine; nil for nothing.
func (v *votes) own(name string, lease coord.Lease) []byte {
	if _, target, isBallot := strings.Cut(name, "/"); isBallot {
		return v.ballot(target, lease)
	}
	v.votesMu.Lock()
	self, isKnown := v.self, v.isSelfKnown
	v.votesMu.Unlock()
	if !isKnown {
		return nil
	}
	self.Lease = lease
	value, _ := json.Marshal(self) // it has no part that JSON lacks
	return value
}
