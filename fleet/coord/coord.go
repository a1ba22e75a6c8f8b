// Package coord divides the targets of a fleet among its engines, and lets only one of them act.
//
// Targets are divided into shards (package shard). Each engine is a member of the fleet while its lease
// lasts, computes which shards are its own without asking others, and claims each by a key. The
// revision of that key is a token: what an engine does for a shard is recorded in a transaction that
// requires the key with that token, so that an engine that has lost a shard without noticing changes
// nothing. An engine also stops to act by its own clock before its lease can have ended.
//
//	coord.go    Config, Coordinator and what it owns
//	state.go    state: a value that others follow
//	session.go  membership by one lease: claims shards, and gives them up
//	holdings.go SetHoldings: what the configurations of members have, and which shards a member leaves to those that have more
//	drain.go    Drain, PutDrain: a member that is to have no shards, for its own reason or an operator's
//	status.go   Status: what people are shown
//	view.go     what the Backend says: members and owners
//	release.go  Release: gives up shards for whose targets no acts are done
//	act.go      Acts: what is done at most once for an instance
//	record.go   the records of acts, and Forget, which deletes them
//	memories.go Load and Store: what the next owner of a shard has to remember
//	mark.go     MarkLoaded: an owner has loaded the memories of a shard
//	follow.go   Follow: reads the Backend, and what changes in it
//	watch.go    OwnerOf, Unconfirmed: what other engines own, and have not loaded
//	mirror.go   Mirror: a typed map of the entries of one kind, as the Backend shows them
//	backend.go  Backend: what the engines share
//	keys.go     the keys of a Backend
//	observe.go  Observe: notices that a Backend was restored from a snapshot
package coord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/internal/sparselog"
)

// Config configures a Coordinator.
type Config struct {
	Name    string        // of this engine, which no other member has; no slashes, at most maxName bytes
	Backend Backend       // required: what the engines share
	TTL     time.Duration // how long the lease of this engine lasts, at least MinTTL: others take over its shards that long after its last sign; default DefaultTTL
	MaxAge  time.Duration // how long memories are recent after the last owner that has loaded their shard was alive: see Memories.IsRecent; less than twice TTL counts as that; default: always
	Logger  *slog.Logger  // a line when this engine joins, and once a minute while the backend refuses something; default: none
}

// The bounds of a Config.
const (
	DefaultTTL = 5 * time.Second
	MinTTL     = 2 * time.Second
	maxName    = 253
)

// EndTimeout bounds how long Coordinator.Run waits for acts when it ends. Then their contexts end.
const EndTimeout = 90 * time.Second

// Coordinator is the membership of one engine in a fleet. Its methods are safe for concurrent use by
// multiple goroutines.
type Coordinator struct {
	config Config
	log    *slog.Logger
	sparse *sparselog.Logger // what is tried again and again
	clock  *clock.Clock      // also counts the time for which the machine is suspended

	acts     *Acts
	marks    marks
	owned    *state[Owned]                         // see Owned
	lease    *state[Lease]                         // of the membership; 0 while there is none
	standing *state[standing]                      // what this engine says of itself
	eligible *state[eligibility]                   // see Eligible
	missed   *state[struct{}]                      // see Interruptions
	restores atomic.Int64                          // see Restores
	names    atomic.Pointer[map[shard.ID][]uint32] // see SetHoldings

	stateMu  sync.Mutex  // guards all below, to current
	deadline int64       // by clock, from which on this engine may not act
	heard    time.Time   // see Heard
	refusal  layoutError // why this engine does not join; "" if the backend has a layout that it knows
	current  *session    // the latest; nil before the first

	wasDrained bool // it was logged that this engine is drained; Run's own
}

// Owned are the shards of an engine. It is not changed after it was returned.
type Owned map[shard.ID]Ownership

// Ownership is what an engine has to know of a shard of its own.
type Ownership struct {
	// Token proves the ownership. It is 0 after the lease was lost, until the shard is claimed again
	// or by another: its targets are probed as before, and nothing is done for them.
	Token Revision

	// Leaving says that another member is to have the shard. The engine then stops what it does for
	// it, stores its memories, and calls Release.
	Leaving bool
}

// The errors of a Coordinator that a caller has to recognize.
var (
	ErrNotOwner   = errors.New("this engine does not own the shard")
	ErrNotAllowed = errors.New("the lease of this engine may have ended")
	errNotLoaded  = errors.New("this engine has not loaded the memories of the shard yet")
	ErrDone       = errors.New("it was done for this instance before")
	errBusy       = errors.New("it is being done for this target")
)

// New returns a Coordinator, which owns nothing until it runs.
func New(c Config) (*Coordinator, error) {
	if c.Name == "" || len(c.Name) > maxName || strings.Contains(c.Name, "/") {
		return nil, fmt.Errorf("name is %.100q; it must have 1 to %d bytes, and no slash", c.Name, maxName)
	}
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	if c.TTL < MinTTL {
		return nil, fmt.Errorf("ttl is %v; it must be at least %v", c.TTL, MinTTL)
	}
	if c.MaxAge > 0 {
		c.MaxAge = max(c.MaxAge, 2*c.TTL)
	}
	co := &Coordinator{
		config: c, log: cmp.Or(c.Logger, slog.New(slog.DiscardHandler)), sparse: sparselog.New(c.Logger), clock: clock.New(),
		owned: newStateBy(maps.Equal[Owned, Owned]), lease: newState[Lease](), standing: newState[standing](), eligible: newState[eligibility](), missed: newState[struct{}](),
	}
	co.acts = newActs(co)
	co.names.Store(&map[shard.ID][]uint32{})
	co.config.Backend = observe(c.Backend, co.restored)
	return co, nil
}

// Run is a member of the fleet until ctx is done. Then it waits for the acts that are being done, for EndTimeout at
// most, and leaves, so that others take over at once. It must be called once.
func (c *Coordinator) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.session(ctx)
		if ctx.Err() != nil {
			return
		}
		c.sparse.Warn("not a member of the fleet, joining again", "engine", c.config.Name, "error", err)
		select {
		case <-time.After(c.config.TTL / 4):
		case <-ctx.Done():
		}
	}
}

// Owned returns the shards of this engine, and a channel that is closed when they have changed.
func (c *Coordinator) Owned() (Owned, <-chan struct{}) { return c.owned.get() }

// Allowed reports whether this engine may act for its shards: its lease lasts, by the clock of this
// machine. On Linux that counts the time for which the machine was suspended. It does not count that for which a
// hypervisor has paused a virtual machine: Acts.Do then finds what has become of the shard before it does anything.
func (c *Coordinator) Allowed() bool { return c.left() > 0 }

// left returns for how long this engine may act, unless its lease is kept alive.
func (c *Coordinator) left() time.Duration {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return max(time.Duration(c.deadline-c.clock.Now()), 0)
}

// Name returns the name of this engine.
func (c *Coordinator) Name() string { return c.config.Name }

// TTL returns how long the lease of this engine lasts.
func (c *Coordinator) TTL() time.Duration { return c.config.TTL }

// Backend returns what the engines share, with the keys that keys.go lists.
func (c *Coordinator) Backend() Backend { return c.config.Backend }

// Lease returns the lease of this engine's membership, 0 while it is not a member, and a channel that is
// closed when that has changed. What is put with it is deleted once the engine is no longer a member. The channel is
// also closed when the backend may have lost what was put, since changes were missed: with the lease that is still the
// same, all is to be read and put again.
func (c *Coordinator) Lease() (Lease, <-chan struct{}) { return c.lease.get() }

// Interruptions returns a channel that is closed when this engine has read the members of the fleet again while it was one,
// since changes may have been missed: the backend may have been restored from a snapshot, and lack what this engine has
// stored.
func (c *Coordinator) Interruptions() <-chan struct{} {
	_, missed := c.missed.get()
	return missed
}

// Restores returns how often the backend was found to have a lower revision than before, since it was restored from a snapshot:
// what it has of a shard that this engine has had all along is older than what this engine knows.
func (c *Coordinator) Restores() int64 { return c.restores.Load() }

// restored ends the session after a restore. The lease of the marks may be gone as well, which would end the next session.
func (c *Coordinator) restored() {
	c.restores.Add(1)
	c.marks.lease.Store(0)
	c.endSession(errRestored)
}

// Acts returns what this engine does at most once for an instance.
func (c *Coordinator) Acts() *Acts { return c.acts }

// extend says that the lease was granted or kept alive by a request that was sent at a time of the clock.
func (c *Coordinator) extend(sent int64) {
	c.hear(time.Now().Add(time.Duration(sent - c.clock.Now())))
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.deadline = sent + int64(c.config.TTL-c.config.TTL/10) // before the lease ends
}

// lose takes all tokens away, since the lease has ended, and cancels the acts that are being done. The
// lease is the last: while a token is published, hasMet asks the session that has it.
func (c *Coordinator) lose() {
	c.stateMu.Lock()
	c.deadline = 0
	c.stateMu.Unlock()
	c.acts.cancel(ErrNotAllowed)
	owned, _ := c.Owned()
	without := Owned{}
	for id := range owned {
		without[id] = Ownership{}
	}
	c.owned.set(without)
	c.lease.set(0)
}
