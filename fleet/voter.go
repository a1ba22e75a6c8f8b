package fleet

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
)

// voteTimeout bounds one request, and retryAfter is how long to wait after one that has failed.
const (
	voteTimeout = 10 * time.Second
	retryAfter  = time.Second
)

// mark says that entries are to be compared with what this engine says.
func (v *votes) mark(targets ...string) {
	v.remark(targets)
	v.wake.Set()
}

// remark is mark for the next time that something is put.
func (v *votes) remark(targets []string) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for _, target := range targets {
		v.marked[target] = true
	}
}

// say changes what this engine says of itself.
func (v *votes) say(change func(*Vantage)) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	before := v.self
	if change(&v.self); v.self != before {
		v.marked[""] = true
		v.wake.Set()
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

// putMarked puts what is marked until ctx is done. Then it stays in the store until the Coordinator ends.
func (v *votes) putMarked(ctx context.Context) {
	for ctx.Err() == nil {
		lease, changed := v.coordinator.Lease()
		isEligible, isKnown, reassigned := v.coordinator.Eligible()
		var again <-chan time.Time
		if lease != 0 && isKnown { // or else this engine would be put as drained at first
			v.say(func(self *Vantage) { self.Drained = !isEligible })
			if !v.put(ctx, lease) {
				again = time.After(retryAfter)
			}
		}
		select {
		case <-v.wake:
		case <-changed:
		case <-reassigned:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// put puts what is marked, and returns false if some of that is to be tried again. It waits until the entries of this membership
// were read.
func (v *votes) put(ctx context.Context, lease coord.Lease) (isDone bool) {
	if !v.isCurrent(lease) {
		return true
	}
	for batch := v.take(); len(batch) > 0; batch = v.take() {
		if !v.commit(ctx, lease, batch) {
			return false
		}
	}
	return true
}

// take returns the next targets that are marked, at most coord.MaxTransactions, which no longer are.
func (v *votes) take() (batch []string) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for target := range v.marked {
		if len(batch) == coord.MaxTransactions {
			break
		}
		delete(v.marked, target)
		batch = append(batch, target)
	}
	return batch
}

// commit puts those of a batch of entries that differ from the store's, in place of the ones that it has shown: a request that
// comes late finds another one, and changes nothing. It returns false if it could not put some, since the store has others by now,
// or because of an error: they are marked again.
func (v *votes) commit(ctx context.Context, lease coord.Lease, batch []string) (isDone bool) {
	var differing []string
	var all []coord.Transaction
	for _, target := range batch {
		key, value := v.entry(lease, target)
		stored := v.ownEntry(target)
		if bytes.Equal(value, stored.Value) {
			continue
		}
		differing = append(differing, target)
		all = append(all, coord.Transaction{
			If:   []coord.Condition{{Key: key, Modified: stored.Modified}}, // 0: there must be none
			Then: []coord.Change{{Key: key, Value: value, Lease: lease, Delete: value == nil}},
		})
	}
	if len(all) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, voteTimeout)
	defer cancel()
	made, err := v.coordinator.Backend().Commit(ctx, all...)
	if err != nil {
		v.sparse.Warn("votes cannot be put, trying again", "engine", v.coordinator.Name(), "error", err)
		v.remark(differing)
		return false
	}
	for i, isMade := range made {
		if !isMade {
			v.remark(differing[i : i+1])
		}
	}
	return !slices.Contains(made, false)
}

// entry returns what the store is to have under a key of this engine; nil for nothing.
func (v *votes) entry(lease coord.Lease, target string) (key string, value []byte) {
	key = coord.KeyVote + v.coordinator.Name()
	if target != "" {
		return key + "/" + target, v.ballot(target, lease)
	}
	v.votesMu.Lock()
	self := v.self
	v.votesMu.Unlock()
	self.Lease = lease
	return key, encode(self)
}
