package vote

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// tally counts the votes of one shard, by one goroutine.
type tally struct {
	counter *Counter
	shard   shard.ID
	token   coord.Revision
	ballots *ballots
	wake    wake.Signal // the Counter has other ballots

	votes   map[probe.ID]map[string]Vote // by vantage
	joints  map[probe.ID]Joint           // as decided last
	passed  map[probe.ID]Joint           // to Decided last
	stored  map[probe.ID]Joint           // as the store has them
	awaited map[probe.ID][]byte          // what was put, and not watched yet: older values may be watched before
	touched map[probe.ID]bool            // what is to be decided again
}

func newTally(c *Counter, id shard.ID, token coord.Revision, b *ballots) *tally {
	return &tally{counter: c, shard: id, token: token, ballots: b, wake: wake.New(), passed: map[probe.ID]Joint{}}
}

// run counts until ctx is done. While the store returns errors, or another engine owns the shard, it tries
// again.
func (t *tally) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		t.counter.sparse.Warn("votes cannot be counted, trying again", "engine", t.counter.config.Coordinator.Name(), "shard", t.shard.String(), "error", err)
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// batch is what a watch returns.
type batch struct {
	events []coord.Event
	err    error
}

// follow reads all votes and joint verdicts of the shard, and follows them until ctx is done or the store
// returns an error.
func (t *tally) follow(ctx context.Context) error {
	prefix := prefixOf(t.shard) + "/"
	entries, at, err := t.counter.read(ctx, prefix)
	if err != nil {
		return err
	}
	t.reset(entries)
	ctx, end := context.WithCancel(ctx)
	batches := make(chan batch)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end()
	watching.Go(func() {
		for events, err := range t.counter.config.Coordinator.Backend().Watch(ctx, prefix, at) {
			select {
			case batches <- batch{events, err}:
			case <-ctx.Done():
			}
			if err != nil || ctx.Err() != nil {
				return
			}
		}
	})
	voters, changed := t.counter.config.Voter.directory.getVoters()
	electorate := newElectorate(t.shard, voters)
	for {
		if voters != nil {
			if err := t.put(ctx, electorate); err != nil {
				return err
			}
		}
		select {
		case b := <-batches:
			if b.err != nil {
				return b.err
			}
			for _, e := range b.events {
				t.apply(e)
			}
		case <-changed:
			voters, changed = t.counter.config.Voter.directory.getVoters()
			electorate = newElectorate(t.shard, voters)
			t.touchAll()
		case <-t.wake:
			t.replace(t.counter.ballotsOf(t.shard))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reset replaces what is known by entries. A joint verdict that the store has was decided by votes that may be gone:
// Decided is called with it as one that stands, until the votes have decided it again.
func (t *tally) reset(entries []coord.Entry) {
	t.votes, t.stored, t.awaited, t.touched = map[probe.ID]map[string]Vote{}, map[probe.ID]Joint{}, map[probe.ID][]byte{}, map[probe.ID]bool{}
	for _, e := range entries {
		t.apply(coord.Event{Entry: e})
	}
	t.joints = map[probe.ID]Joint{}
	for id := range *t.ballots {
		t.resume(id)
	}
	t.touchAll()
}

// replace replaces the ballots, and has the probes decided again whose ballots have changed.
func (t *tally) replace(now *ballots) {
	before := t.ballots
	t.ballots = now
	for id, b := range *now {
		was, hadBallot := (*before)[id]
		if !hadBallot {
			t.resume(id)
		}
		if !hadBallot || was != b {
			t.touched[id] = true
		}
	}
	for id := range *before {
		if _, hasBallot := (*now)[id]; !hasBallot {
			delete(t.joints, id)
			delete(t.passed, id)
			t.touched[id] = true
		}
	}
}

// resume goes on with the joint verdict that the store has, if there is one.
func (t *tally) resume(id probe.ID) {
	j, isStored := t.stored[id]
	if !isStored {
		return
	}
	t.joints[id] = j
	if !t.passed[id].equal(j) {
		j.Decided = false
		t.pass(id, j)
	}
}

// pass calls Decided, unless it was called with the same joint verdict last.
func (t *tally) pass(id probe.ID, j Joint) {
	if last, isPassed := t.passed[id]; isPassed && last.equal(j) && last.Token == j.Token {
		return
	}
	t.passed[id] = j
	t.counter.config.Decided(id, j)
}

// touchAll has all probes decided again.
func (t *tally) touchAll() {
	for id := range *t.ballots {
		t.touched[id] = true
	}
}

// apply applies an event. Values that cannot be read are as none.
func (t *tally) apply(e coord.Event) {
	if id, j, ok := ParseJoint(e); ok {
		t.applyJoint(id, j, e)
		return
	}
	vantage, id, ok := parseVoteKey(t.shard, e.Key)
	if !ok {
		return
	}
	t.touched[id] = true
	var v Vote
	if e.Deleted || !decode(e.Value, &v) {
		if delete(t.votes[id], vantage); len(t.votes[id]) == 0 {
			delete(t.votes, id)
		}
		return
	}
	if t.votes[id] == nil {
		t.votes[id] = map[string]Vote{}
	}
	t.votes[id][vantage] = v
}

// applyJoint applies a joint verdict as the store has it: only this engine can have put it since it owns the
// shard. If it is not the one that was decided last, a request came late, and it is put again.
func (t *tally) applyJoint(id probe.ID, j Joint, e coord.Event) {
	if awaited, ok := t.awaited[id]; ok {
		if bytes.Equal(awaited, e.Value) {
			delete(t.awaited, id)
		}
		return
	}
	t.touched[id] = true
	if e.Deleted {
		delete(t.stored, id)
	} else {
		t.stored[id] = j
	}
}

// put decides the probes that are touched, calls Decided, and puts the joint verdicts that the store has not. It
// deletes those of probes without a ballot. Without a known instance the last joint verdict stands.
func (t *tally) put(ctx context.Context, e *electorate) error {
	now := time.Now()
	next := map[probe.ID]Joint{}
	var changes []coord.Change
	for id := range t.touched {
		b, hasBallot := (*t.ballots)[id]
		stored, isStored := t.stored[id]
		if !hasBallot {
			if isStored {
				changes = append(changes, coord.Change{Key: jointKey(id), Delete: true})
			}
			continue
		}
		isKnown := isStored || len(t.votes[id]) > 0
		if !isKnown || !b.hasInstance(t.token) {
			continue
		}
		j := t.decide(id, b, e, now)
		if isStored && j.equal(stored) {
			t.pass(id, j)
			continue
		}
		next[id] = j
		changes = append(changes, coord.Change{Key: jointKey(id), Value: encode(j)})
	}
	clear(t.touched)
	if len(changes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := t.counter.config.Coordinator.Write(ctx, t.shard, t.token, changes...); err != nil {
		return err
	}
	for id, j := range next {
		t.awaited[id] = encode(j)
		t.pass(id, j)
	}
	maps.Copy(t.joints, next)
	maps.Copy(t.stored, next)
	return nil
}

// decide returns the joint verdict of a probe. Of another instance there was none before. Votes of engines that
// are not chosen, or do not exist, are as none.
func (t *tally) decide(id probe.ID, b Ballot, e *electorate, now time.Time) Joint {
	votes := make([]quorum.Vote, 0, len(t.votes[id]))
	for vantage, v := range t.votes[id] {
		if !e.has(vantage, b.Rule) {
			continue
		}
		isDoubtful := v.Doubtful || e.voters[vantage].doubtful
		votes = append(votes, quorum.Vote{Vantage: vantage, Instance: v.Instance, Verdict: v.Verdict, Doubtful: isDoubtful})
	}
	last, isKnown := t.joints[id]
	isOther := !isKnown || last.Instance != b.Instance
	if isOther {
		last = Joint{}
	}
	d := quorum.Decide(b.Rule, votes, b.Instance, last.Verdict, now)
	j := Joint{
		Instance: b.Instance, Verdict: d.Verdict, Since: last.Since, Decided: d.Decided, Agreement: d.Agreement, Token: t.token,
		Passing: d.Passing, Failing: d.Failing, Ignored: d.Ignored,
	}
	if isOther || d.Verdict != last.Verdict {
		j.Since = now.UTC()
	}
	return j
}
