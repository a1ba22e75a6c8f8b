package vote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// CounterConfig configures a Counter.
type CounterConfig struct {
	Coordinator *coord.Coordinator // required; runs as long as Counter.Run
	Voter       *Voter             // required; of the same Coordinator

	// Decided is called with each joint verdict of a probe whose shard this engine owns. When the shard is taken
	// over it is the one that the owner before has put: not Decided, with the Token of that owner. It is followed by
	// what the votes decide that there are now, with the Token of this engine. Decided is called by one goroutine
	// at a time for the probes of one shard, and must return soon. Default: nothing.
	Decided func(probe.ID, Joint)

	Logger *slog.Logger // a line a minute while the store cannot be read or written; default: none
}

// Ballot is what votes about a probe are counted by.
type Ballot struct {
	Rule     quorum.Rule // zero fields have their defaults
	Instance string      // of the target, that now runs: votes about others do not count; empty while it is not known: the last joint verdict stands

	// Token is the one with which this engine owned the target's shard when it learned Instance, which is not
	// known with any other: another owner may have replaced the instance. 0: the target never has another instance.
	Token coord.Revision
}

// hasInstance reports whether the owner with a token knows the instance.
func (b Ballot) hasInstance(token coord.Revision) bool {
	return b.Instance != "" && (b.Token == 0 || b.Token == token)
}

// Counter puts the joint verdicts of the shards that this engine owns. Its methods are safe for concurrent use
// by multiple goroutines.
type Counter struct {
	config CounterConfig
	wake   wake.Signal   // ballots were changed
	reads  chan struct{} // capacity maxReads: has an element for each shard that is being read

	ballotsMu sync.Mutex // guards all below
	ballots   map[shard.ID]*ballots

	sparse *sparselog.Logger // of the store

	counting map[shard.ID]*counting // Run's own
}

// maxReads is how many shards are read at the same time: after a takeover, and when a store is back, there are
// many.
const maxReads = 16

// ballots are those of a shard. They are not changed, but replaced.
type ballots map[probe.ID]Ballot

// counting is a tally that runs.
type counting struct {
	tally   *tally
	ballots *ballots // that it knows, or was notified of
	end     context.CancelFunc
	done    chan struct{} // closed when it has ended
}

// NewCounter returns a Counter without ballots.
func NewCounter(c CounterConfig) (*Counter, error) {
	if c.Coordinator == nil || c.Voter == nil {
		return nil, errors.New("vote: CounterConfig.Coordinator and CounterConfig.Voter are required")
	}
	if c.Decided == nil {
		c.Decided = func(probe.ID, Joint) {}
	}
	return &Counter{
		config: c, sparse: sparselog.New(c.Logger), wake: wake.New(), reads: make(chan struct{}, maxReads),
		ballots: map[shard.ID]*ballots{}, counting: map[shard.ID]*counting{},
	}, nil
}

// Apply replaces all ballots, or none if it returns an error: the probes of the fleet that have a quorum,
// whichever engine owns them. Joint verdicts of other probes are deleted. It returns at once.
func (c *Counter) Apply(all map[probe.ID]Ballot) error {
	now := map[shard.ID]*ballots{}
	for id, b := range all {
		b.Rule = b.Rule.WithDefaults()
		if err := errors.Join(id.Check(), b.Rule.Check()); err != nil {
			return fmt.Errorf("quorum of probe %q: %w", id, err)
		}
		in := shard.Of(id.Target)
		if now[in] == nil {
			now[in] = &ballots{}
		}
		(*now[in])[id] = b
	}
	c.ballotsMu.Lock()
	defer c.ballotsMu.Unlock()
	for in, before := range c.ballots {
		switch {
		case now[in] == nil:
			now[in] = &ballots{} // their joint verdicts are to be deleted
		case maps.Equal(*now[in], *before):
			now[in] = before
		}
	}
	c.ballots = now
	c.wake.Set()
	return nil
}

// SetInstances says which instances of targets of a shard now run, by target, as this engine has learned it since it
// owns the shard with a token. It returns at once.
func (c *Counter) SetInstances(in shard.ID, token coord.Revision, instances map[string]string) {
	c.ballotsMu.Lock()
	defer c.ballotsMu.Unlock()
	before := c.ballots[in]
	if before == nil {
		return
	}
	changed := ballots{}
	for id, b := range *before {
		instance, isSet := instances[id.Target]
		if isSet && (b.Instance != instance || b.Token != token) {
			b.Instance, b.Token = instance, token
			changed[id] = b
		}
	}
	if len(changed) > 0 {
		now := maps.Clone(*before)
		maps.Copy(now, changed)
		c.ballots[in] = &now
		c.wake.Set()
	}
}

// ballotsOf returns the ballots of a shard, which must not be changed.
func (c *Counter) ballotsOf(in shard.ID) *ballots {
	c.ballotsMu.Lock()
	defer c.ballotsMu.Unlock()
	return c.ballots[in]
}

// Sweep deletes what is left of joint verdicts in at most coord.MaxTransactions of this engine's shards that have no
// ballots, and have had none since the Counter was made. Those of other shards are deleted as their votes are counted.
// Call it after Apply.
func (c *Counter) Sweep(ctx context.Context, ids []shard.ID) error {
	owned, _ := c.config.Coordinator.Owned()
	var without []shard.ID
	var prefixes []string
	for _, id := range ids {
		if c.ballotsOf(id) == nil {
			without, prefixes = append(without, id), append(prefixes, prefixOf(id)+keyJoint)
		}
	}
	if len(without) == 0 {
		return nil
	}
	found, err := c.config.Coordinator.Backend().RangeAll(ctx, prefixes...)
	if err != nil {
		return fmt.Errorf("read the joint verdicts of %d shards: %w", len(without), err)
	}
	for i, id := range without {
		var changes []coord.Change
		for _, e := range found[i] {
			changes = append(changes, coord.Change{Key: e.Key, Delete: true})
		}
		if len(changes) == 0 {
			continue
		}
		if err := c.config.Coordinator.Write(ctx, id, owned[id].Token, changes...); err != nil {
			return fmt.Errorf("delete the joint verdicts of shard %s: %w", id, err)
		}
	}
	return nil
}

// Run counts votes until ctx is done. It must be called once.
func (c *Counter) Run(ctx context.Context) {
	defer c.reconcile(ctx, nil)
	for {
		owned, changed := c.config.Coordinator.Owned()
		c.reconcile(ctx, owned)
		select {
		case <-changed:
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}

// reconcile counts the votes of the shards that are owned, and of no others.
func (c *Counter) reconcile(ctx context.Context, owned coord.Owned) {
	c.ballotsMu.Lock()
	all := maps.Clone(c.ballots)
	c.ballotsMu.Unlock()
	var ending []*counting
	for in, n := range c.counting {
		switch {
		case n.tally.token != owned[in].Token || all[in] == nil:
			n.end()
			ending = append(ending, n)
			delete(c.counting, in)
		case n.ballots != all[in]:
			n.ballots = all[in]
			n.tally.wake.Set()
		}
	}
	for _, n := range ending {
		<-n.done
	}
	for in, o := range owned {
		if c.counting[in] != nil || o.Token == 0 || all[in] == nil {
			continue
		}
		running, end := context.WithCancel(ctx)
		n := &counting{newTally(c, in, o.Token, all[in]), all[in], end, make(chan struct{})}
		c.counting[in] = n
		go func() {
			defer close(n.done)
			n.tally.run(running)
		}()
	}
}

// read returns the entries of a prefix, once fewer than maxReads others are being read.
func (c *Counter) read(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	select {
	case c.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	defer func() { <-c.reads }()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.config.Coordinator.Backend().Range(ctx, prefix)
}
