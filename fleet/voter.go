package fleet

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
)

// voter keeps what this engine says in the store as it is now, while the engine is a member of the fleet. It compares
// each entry with the one that votes shows, and replaces that one only: a request that comes late finds another one, and
// changes nothing.
type voter struct {
	coordinator *coord.Coordinator
	votes       *votes
	ballot      func(target string, lease coord.Lease) []byte // what this engine says about a target now; nil: nothing
	sparse      *sparselog.Logger
	wake        wake.Signal // something is marked

	markedMu sync.Mutex      // guards all below
	marked   map[string]bool // the entries that may not be as the store has them: see votes.mark
	self     Vantage
}

// voteTimeout bounds one request, and retryAfter is how long to wait after one that has failed.
const (
	voteTimeout = 10 * time.Second
	retryAfter  = time.Second
)

func newVoter(v *votes, zone string, ballot func(string, coord.Lease) []byte, log *slog.Logger) *voter {
	return &voter{
		coordinator: v.coordinator, votes: v, ballot: ballot, sparse: sparselog.New(log), wake: wake.New(),
		marked: map[string]bool{}, self: Vantage{Zone: zone},
	}
}

// mark says that entries are to be compared with what this engine says.
func (v *voter) mark(targets ...string) {
	v.remark(targets)
	v.wake.Set()
}

// remark is mark for the next time that something is put.
func (v *voter) remark(targets []string) {
	v.markedMu.Lock()
	defer v.markedMu.Unlock()
	for _, target := range targets {
		v.marked[target] = true
	}
}

// say changes what this engine says of itself.
func (v *voter) say(change func(*Vantage)) {
	v.markedMu.Lock()
	defer v.markedMu.Unlock()
	before := v.self
	if change(&v.self); v.self != before {
		v.marked[""] = true
		v.wake.Set()
	}
}

// setHealth says whether this engine doubts its verdicts, and how many of its targets fail. Others are told
// of another number only if it differs by a percent of the targets.
func (v *voter) setHealth(doubtful bool, own doubt.Sample) {
	v.say(func(self *Vantage) {
		if doubtful != self.Doubtful || differs(own.Targets, self.Targets, own.Targets) || differs(own.Failing, self.Failing, own.Targets) {
			self.Doubtful, self.Targets, self.Failing = doubtful, own.Targets, own.Failing
		}
	})
}

// differs reports whether two numbers of so many targets differ by more than one percent of these.
func differs(a, b, targets int) bool { return max(a-b, b-a)*100 > targets }

// run puts what is marked until ctx is done. Then it stays in the store until the Coordinator ends.
func (v *voter) run(ctx context.Context) {
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

// put puts what is marked, and returns false if some of that is to be tried again. It waits until votes shows the entries
// of this membership.
func (v *voter) put(ctx context.Context, lease coord.Lease) (isDone bool) {
	if !v.votes.isCurrent(lease) {
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
func (v *voter) take() (batch []string) {
	v.markedMu.Lock()
	defer v.markedMu.Unlock()
	for target := range v.marked {
		if len(batch) == coord.MaxTransactions {
			break
		}
		delete(v.marked, target)
		batch = append(batch, target)
	}
	return batch
}

// commit puts those of a batch of entries that differ from the store's. It returns false if it could not put some, since the
// store has other entries than votes shows yet, or because of an error: they are marked again.
func (v *voter) commit(ctx context.Context, lease coord.Lease, batch []string) (isDone bool) {
	var differing []string
	var all []coord.Transaction
	for _, target := range batch {
		key, value := v.entry(lease, target)
		stored := v.votes.ownEntry(target)
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
func (v *voter) entry(lease coord.Lease, target string) (key string, value []byte) {
	key = coord.KeyVote + v.coordinator.Name()
	if target != "" {
		return key + "/" + target, v.ballot(target, lease)
	}
	v.markedMu.Lock()
	self := v.self
	v.markedMu.Unlock()
	self.Lease = lease
	return key, encode(self)
}
