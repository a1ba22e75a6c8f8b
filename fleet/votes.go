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

// Bounds of the votes about one target. A request can hold as many ballots as it may have transactions.
const (
	maxBallot = coord.MaxRequest / coord.MaxTransactions // bytes; a longer ballot does not count
	maxPolls  = 64                                       // probes with a quorum
)

// maxSeen bounds Vantage.Targets of other engines: more than one engine can probe, and small enough that sums do not
// overflow.
const maxSeen = 1 << 24

// Vantage is the status that a voting engine publishes about itself.
type Vantage struct {
	Zone     string      `json:"zone,omitempty"`     // where the engine is, at most quorum.MaxZone bytes
	Doubtful bool        `json:"doubtful,omitempty"` // the engine doubts its verdicts, and its votes do not count: see package doubt
	Drained  bool        `json:"drained,omitempty"`  // it may own no shards, and is chosen for no quorum: its knowledge may be old
	Targets  int         `json:"targets,omitempty"`  // number of targets with a verdict that it probes
	Failing  int         `json:"failing,omitempty"`  // how many of these targets fail
	Lease    coord.Lease `json:"lease"`              // of its membership; its ballots under an earlier lease do not count
}

// ballot holds the votes of a vantage about a target.
type ballot struct {
	Instance string      `json:"instance"` // the target's instance that the votes are about
	Lease    coord.Lease `json:"lease"`    // of the vantage's membership
	Votes    []vote      `json:"votes"`
}

// vote is the vote of a vantage on one probe.
type vote struct {
	Poll    string        `json:"poll"` // the name of the probe's poll: see pollOf
	Verdict probe.Verdict `json:"verdict"`
	Of      uint32        `json:"of,omitempty"` // the engine.Definition that the verdict is about; 0 if it is not the current one
}

// said is an entry of the fleet's votes: the status of an engine, keyed by its name, or its ballot about a target, keyed
// by the engine's name, a slash, and the target.
type said struct {
	vantage Vantage
	ballot  ballot
}

// entryOf returns the name of an engine's ballot about a target, or of its status if target is "".
func entryOf(engine, target string) string {
	if target == "" {
		return engine
	}
	return engine + "/" + target
}

// electorate identifies the engines among which a rule chooses for the targets of a shard.
type electorate struct {
	shard shard.ID
	rule  quorum.Rule
}

// votes mirrors the statuses and ballots of all engines from the store, and keeps this engine's entries there up to
// date.
type votes struct {
	coordinator *coord.Coordinator
	said        *coord.Mirror[said]
	rechoose    wake.Signal                                   // set when other engines may be chosen
	voted       func(target string)                           // called when a ballot about a target has changed
	ballot      func(target string, lease coord.Lease) []byte // returns this engine's current ballot about a target; nil: none

	votesMu     sync.Mutex              // guards all below
	vantages    map[string]Vantage      // of said, by name
	chosen      map[electorate][]string // the vantages chosen from the current ones
	self        Vantage
	isSelfKnown bool // it is known whether this engine is drained; without it, the engine would first be published as drained
}

func newVotes(c *coord.Coordinator, zone string) *votes {
	v := &votes{coordinator: c, rechoose: wake.New(), vantages: map[string]Vantage{}, chosen: map[electorate][]string{}, self: Vantage{Zone: zone}}
	v.said = coord.NewMirror(c, coord.Kind[said]{
		Keys: coord.VoteKeys, MaxValue: maxBallot, Problem: "the votes of the fleet cannot be followed, trying again",
		Parse: parseSaid, Changed: v.changed, Own: v.own, OwnProblem: "votes cannot be put, trying again",
	})
	return v
}

// run follows the store, and publishes this engine's entries, until ctx is done.
func (v *votes) run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { v.followDrains(ctx) })
	v.said.Run(ctx)
}

// changed handles changed entries: it notes the statuses of engines, and calls voted for changed ballots.
func (v *votes) changed(all []coord.ItemChange[said], isAll bool) {
	if v.note(all) || isAll {
		v.rechoose.Set()
	}
	if isAll {
		return // owners check all votes once a second
	}
	for _, c := range all {
		if _, target, isBallot := strings.Cut(c.Name, "/"); isBallot {
			v.voted(target)
		}
	}
}

// note updates the statuses of engines, including those that have left, and reports whether other engines may be chosen.
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

// choose returns the engines that a rule chooses for the targets of a shard. It chooses no drained engine.
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

// about returns the votes on a probe by the vantages that its rule chooses, and which of these have voted on its current
// definition.
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

// isCurrent reports whether the entries were read during the membership with a lease, and no changes were missed since.
func (v *votes) isCurrent(lease coord.Lease) bool { return lease != 0 && v.said.State().Lease == lease }

// engines returns the latest statuses of the engines, by name.
func (v *votes) engines() map[string]Vantage {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	return maps.Clone(v.vantages)
}

// others returns the sum of the other engines' statuses, without engines that doubt their verdicts, and when the store
// was last heard. The time is zero while the store is unreachable, and for one TTL after the entries were read, since
// they may be from before an outage.
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

// parseSaid parses an entry. A value that this release cannot read counts as an engine without a zone, or as a ballot
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

// mark marks this engine's ballots about targets to be compared with the store; "" stands for its status.
func (v *votes) mark(targets ...string) {
	names := make([]string, 0, len(targets))
	for _, target := range targets {
		names = append(names, entryOf(v.coordinator.Name(), target))
	}
	v.said.Mark(names...)
}

// say changes the status of this engine.
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

// setHealth sets whether this engine doubts its verdicts, and how many of its targets fail. A new number is published
// only if it differs by more than one percent of the targets.
func (v *votes) setHealth(doubtful bool, own doubt.Sample) {
	v.say(func(self *Vantage) {
		if doubtful != self.Doubtful || differs(own.Targets, self.Targets, own.Targets) || differs(own.Failing, self.Failing, own.Targets) {
			self.Doubtful, self.Targets, self.Failing = doubtful, own.Targets, own.Failing
		}
	})
}

// differs reports whether two counts differ by more than one percent of a number of targets.
func differs(a, b, targets int) bool { return max(a-b, b-a)*100 > targets }

// followDrains publishes whether this engine is drained, once that is known, until ctx is done.
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

// own returns the value that the store should have for an entry of this engine; nil for none.
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
	value, _ := json.Marshal(self) // cannot fail: JSON can encode all of it
	return value
}
