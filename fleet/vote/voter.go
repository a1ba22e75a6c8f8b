package vote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// VoterConfig configures a Voter.
type VoterConfig struct {
	Coordinator *coord.Coordinator // required; runs as long as Voter.Run
	Zone        string             // where this engine is, at most MaxZone bytes; default: none
	Logger      *slog.Logger       // a line a minute while the store cannot be read or written; default: none
}

// Voter puts what this engine says about targets, while it is a member of its fleet. Its methods are safe for
// concurrent use by multiple goroutines.
type Voter struct {
	config    VoterConfig
	backend   coord.Backend
	directory *directory
	sparse    *sparselog.Logger // of the store
	wake      wake.Signal       // something is to be put

	votesMu sync.Mutex // guards all below
	votes   map[probe.ID]Vote
	changed map[probe.ID]bool // whose votes are to be put or deleted
	self    Vantage
	isNew   bool // self is to be put
}

// NewVoter returns a Voter without votes.
func NewVoter(c VoterConfig) (*Voter, error) {
	self := Vantage{Zone: c.Zone}
	if c.Coordinator == nil {
		return nil, errors.New("vote: VoterConfig.Coordinator is required")
	}
	if err := self.check(); err != nil {
		return nil, err
	}
	return &Voter{
		config: c, sparse: sparselog.New(c.Logger), backend: c.Coordinator.Backend(), directory: newDirectory(), wake: wake.New(),
		votes: map[probe.ID]Vote{}, changed: map[probe.ID]bool{}, self: self,
	}, nil
}

// Set replaces the vote about a probe. It returns at once.
func (v *Voter) Set(id probe.ID, vote Vote) error {
	if err := id.Check(); err != nil {
		return err
	}
	if len(vote.Instance) > MaxInstance {
		return fmt.Errorf("instance of %q has %d bytes, at most %d are allowed", id.Target, len(vote.Instance), MaxInstance)
	}
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	if before, ok := v.votes[id]; !ok || before != vote {
		v.votes[id], v.changed[id] = vote, true
		v.wake.Set()
	}
	return nil
}

// Remove takes the votes about probes back. It returns at once.
func (v *Voter) Remove(ids ...probe.ID) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for _, id := range ids {
		if _, ok := v.votes[id]; ok {
			delete(v.votes, id)
			v.changed[id] = true
			v.wake.Set()
		}
	}
}

// SetHealth says whether this engine doubts its verdicts, and how many of its targets fail. Others are told
// of another number only if it differs by a percent of the targets.
func (v *Voter) SetHealth(doubtful bool, own doubt.Sample) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	now := v.self
	now.Doubtful, now.Targets, now.Failing = doubtful, own.Targets, own.Failing
	if now.Doubtful != v.self.Doubtful || differs(now.Targets, v.self.Targets, now.Targets) || differs(now.Failing, v.self.Failing, now.Targets) {
		v.self, v.isNew = now, true
		v.wake.Set()
	}
}

// setDrained says whether this engine may have no shards.
func (v *Voter) setDrained(isDrained bool) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	if isDrained != v.self.Drained {
		v.self.Drained, v.isNew = isDrained, true
	}
}

// differs reports whether two numbers of so many targets differ by more than one percent of these.
func differs(a, b, targets int) bool { return max(a-b, b-a)*100 > targets }

// Vantages returns the engines that may vote, those that are not drained, and a channel that is closed when there are others, or when they are in
// other zones.
func (v *Voter) Vantages() ([]quorum.Vantage, <-chan struct{}) {
	voters, changed := v.directory.getVoters()
	return candidates(voters), changed
}

// Engines returns what the engines that vote have said last of themselves, by name. It must not be changed.
func (v *Voter) Engines() map[string]Vantage { return v.directory.get() }

// Others returns what the other engines that vote see, without those that doubt their verdicts.
func (v *Voter) Others() (s doubt.Sample) {
	for name, a := range v.directory.get() {
		if name != v.config.Coordinator.Name() && !a.Doubtful {
			s.Targets += a.Targets
			s.Failing += a.Failing
		}
	}
	return s
}

// Run puts votes until ctx is done. Then they stay until the Coordinator ends. It must be called once.
func (v *Voter) Run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end() // also after a panic
	parts.Go(func() {
		v.config.Coordinator.Follow(ctx, "the vantages of the fleet cannot be followed, trying again", func(ctx context.Context) error {
			return v.directory.follow(ctx, v.backend)
		})
	})
	for ctx.Err() == nil {
		lease, changed := v.config.Coordinator.Lease()
		if lease == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		v.rest(ctx, "votes cannot be put, trying again", v.put(ctx, lease, changed))
	}
}

// rest waits after an error of the store.
func (v *Voter) rest(ctx context.Context, message string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	v.sparse.Warn(message, "engine", v.config.Coordinator.Name(), "error", err)
	select {
	case <-time.After(retryAfter):
	case <-ctx.Done():
	}
}

// put puts all votes with a lease, and then those that change, until the lease is another or the store
// returns an error. After that it is not known what was put, or will be by requests that are still on their way:
// so each call has a fence of its own, without which they change nothing.
func (v *Voter) put(ctx context.Context, lease coord.Lease, changed <-chan struct{}) error {
	fence, err := v.fence(ctx, lease)
	if err != nil {
		return err
	}
	v.markAll()
	for {
		isEligible, isKnown, reassigned := v.config.Coordinator.Eligible()
		if !isKnown { // the vantage would be put as one that is drained, and then as another one
			select {
			case <-reassigned:
				continue
			case <-changed:
			case <-ctx.Done():
			}
			return nil
		}
		v.setDrained(!isEligible)
		for all, ids := v.take(fence, lease); len(all) > 0; all, ids = v.take(fence, lease) {
			if err := v.commit(ctx, all); err != nil {
				v.mark(ids)
				return err
			}
		}
		select {
		case <-v.wake:
		case <-reassigned:
		case <-changed:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// fence returns a condition that is fulfilled until the next call.
func (v *Voter) fence(ctx context.Context, lease coord.Lease) (coord.Condition, error) {
	key := keyFence + v.config.Coordinator.Name()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, t := range []coord.Transaction{
		{Then: []coord.Change{{Key: key, Delete: true}}},
		{If: []coord.Condition{{Key: key}}, Then: []coord.Change{{Key: key, Lease: lease}}},
	} {
		if _, err := v.backend.Commit(ctx, t); err != nil {
			return coord.Condition{}, err
		}
	}
	e, err := v.backend.Get(ctx, key)
	if err == nil && e.Created == 0 {
		err = errFence
	}
	return coord.Condition{Key: key, Created: e.Created}, err
}

var errFence = errors.New("an earlier request of this engine came late")

// commit makes transactions that have a fence.
func (v *Voter) commit(ctx context.Context, all []coord.Transaction) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made, err := v.backend.Commit(ctx, all...)
	if err != nil {
		return err
	}
	for _, isMade := range made {
		if !isMade {
			return errFence
		}
	}
	return nil
}

// markAll has all votes put.
func (v *Voter) markAll() {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	v.isNew = true
	for id := range v.votes {
		v.changed[id] = true
	}
}

// mark has the votes about probes put or deleted again.
func (v *Voter) mark(ids []probe.ID) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	for _, id := range ids {
		v.changed[id] = true
	}
}

// take returns the next transactions to be made, at most coord.MaxTransactions, and the probes that they are
// about, which are no longer marked.
func (v *Voter) take(fence coord.Condition, lease coord.Lease) (all []coord.Transaction, ids []probe.ID) {
	v.votesMu.Lock()
	defer v.votesMu.Unlock()
	name := v.config.Coordinator.Name()
	add := func(c coord.Change) {
		all = append(all, coord.Transaction{If: []coord.Condition{fence}, Then: []coord.Change{c}})
	}
	if v.isNew {
		add(coord.Change{Key: keyVantage + name, Value: encode(v.self), Lease: lease})
		v.isNew = false
	}
	for id := range v.changed {
		if len(all) == coord.MaxTransactions {
			break
		}
		delete(v.changed, id)
		ids = append(ids, id)
		if vote, ok := v.votes[id]; ok {
			add(coord.Change{Key: voteKey(name, id), Value: encode(vote), Lease: lease})
		} else {
			add(coord.Change{Key: voteKey(name, id), Delete: true})
		}
	}
	return all, ids
}
