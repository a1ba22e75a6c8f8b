// Package coord divides the targets of a fleet among its engines, and lets only one of them act.
//
// Targets are divided into shards (package shard). Each engine is a member of the fleet while its lease is valid,
// computes its own shards without asking other engines, and claims each of them by a key. The revision of that key is a
// token: an action for a shard is recorded in a transaction that requires the key with that token, so that an engine
// that has lost a shard without noticing changes nothing. An engine also stops acting by its own clock before its lease
// can expire.
//
//	coord.go    Config, Coordinator and the shards that it owns
//	state.go    state: a value with a channel that announces changes
//	session.go  membership under one lease: claims shards, and gives them up
//	holdings.go SetHoldings: digests of the members' configurations, and the shards that a member leaves to members with more targets
//	drain.go    Drain, PutDrain: a member that should own no shards, for its own reason or an operator's
//	status.go   Status: the state of the fleet for display
//	view.go     view: members and owners, as the Backend shows them
//	release.go  Release: gives up shards without acts under way
//	act.go      Acts: actions that are done at most once per instance
//	record.go   the records of acts, and Forget, which deletes them
//	memories.go Load and Store: the memories that the next owner of a shard needs
//	mark.go     MarkLoaded: an owner has loaded the memories of a shard
//	follow.go   Follow: reads the Backend and watches its changes
//	watch.go    OwnerOf, Unconfirmed: shards that other engines own, and shards that they have not loaded
//	mirror.go   Mirror: a typed map of the entries of one kind, as the Backend shows them
//	backend.go  Backend: the store that the engines share
//	keys.go     the keys of a Backend
//	observe.go  observe: detects that a Backend was restored from a snapshot
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
	Name    string        // of this engine, unique among the members; no slashes, at most maxName bytes
	Backend Backend       // required; the store that the engines share
	TTL     time.Duration // lifetime of this engine's lease, at least MinTTL: others take over its shards that long after its last renewal; default DefaultTTL
	MaxAge  time.Duration // how long memories stay recent after the owner that last loaded their shard was alive: see Memories.IsRecent; raised to twice TTL if less; default: forever
	Logger  *slog.Logger  // logs when this engine joins, and at most once a minute while the backend refuses a request; default: none
}

// The bounds of a Config.
const (
	DefaultTTL = 5 * time.Second
	MinTTL     = 2 * time.Second
	maxName    = 253
)

// EndTimeout bounds how long Coordinator.Run waits for acts before it returns. After it their contexts are canceled.
const EndTimeout = 90 * time.Second

// Coordinator is the membership of one engine in a fleet. Its methods are safe for concurrent use by
// multiple goroutines.
type Coordinator struct {
	config Config
	log    *slog.Logger
	sparse *sparselog.Logger // for warnings that may repeat
	clock  *clock.Clock      // also counts the time for which the machine is suspended

	acts     *Acts
	marks    marks
	owned    *state[Owned]                         // see Owned
	lease    *state[Lease]                         // of the membership; 0 while there is none
	standing *state[standing]                      // this engine's published status
	eligible *state[eligibility]                   // see Eligible
	missed   *state[struct{}]                      // see Interruptions
	restores atomic.Int64                          // see Restores
	names    atomic.Pointer[map[shard.ID][]uint32] // see SetHoldings

	stateMu  sync.Mutex  // guards all below, to current
	deadline int64       // by clock; this engine must not act from then on
	heard    time.Time   // see Heard
	refusal  layoutError // why this engine does not join; "" unless the backend has an unknown layout
	current  *session    // the latest session; nil before the first

	wasDrained bool // it was logged that this engine is drained; used by Run only
}

// Owned are the shards of an engine. It is not changed after it was returned.
type Owned map[shard.ID]Ownership

// Ownership is the state of a shard that this engine owns.
type Ownership struct {
	// Token proves the ownership. It is 0 after the lease was lost, until this or another engine claims the shard: its
	// targets are still probed, but no acts are done for them.
	Token Revision

	// Leaving means that another member should get the shard. The engine must then finish its acts for the shard, store its
	// memories, and call Release.
	Leaving bool
}

// The errors of a Coordinator that a caller must recognize.
var (
	ErrNotOwner   = errors.New("this engine does not own the shard")
	ErrNotAllowed = errors.New("the lease of this engine may have expired")
	errNotLoaded  = errors.New("this engine has not loaded the memories of the shard yet")
	ErrDone       = errors.New("the instance was already restarted")
	errBusy       = errors.New("a restart of this target is under way")
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

// Run is a member of the fleet until ctx is done. Then it waits for acts under way, for at most EndTimeout, and leaves,
// so that other engines take over immediately. It must be called once.
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

// Allowed reports whether this engine may act for its shards: its lease is valid by this machine's clock. On Linux the
// clock includes the time for which the machine was suspended. It does not include the time for which a hypervisor has
// paused a virtual machine; in that case Acts.Do detects a lost shard before it acts.
func (c *Coordinator) Allowed() bool { return c.left() > 0 }

// left returns how long this engine may act if its lease is not renewed.
func (c *Coordinator) left() time.Duration {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return max(time.Duration(c.deadline-c.clock.Now()), 0)
}

// Name returns the name of this engine.
func (c *Coordinator) Name() string { return c.config.Name }

// TTL returns the lifetime of this engine's lease.
func (c *Coordinator) TTL() time.Duration { return c.config.TTL }

// Backend returns the store that the engines share; keys.go lists its keys.
func (c *Coordinator) Backend() Backend { return c.config.Backend }

// Lease returns the lease of this engine's membership, or 0 while it is not a member, and a channel that is closed when
// the lease changes. Entries put with the lease are deleted once the engine is no longer a member. The channel is also
// closed with an unchanged lease when changes were missed and the backend may have lost entries: then everything must be
// read and put again.
func (c *Coordinator) Lease() (Lease, <-chan struct{}) { return c.lease.get() }

// Interruptions returns a channel that is closed when this engine, while a member, has read the members of the fleet
// again because changes may have been missed: the backend may have been restored from a snapshot, and lack what this
// engine has stored.
func (c *Coordinator) Interruptions() <-chan struct{} {
	_, missed := c.missed.get()
	return missed
}

// Restores returns how often the backend was found with a lower revision than before, since it was restored from a
// snapshot. For a shard that this engine has owned throughout, the backend's data are then older than the engine's.
func (c *Coordinator) Restores() int64 { return c.restores.Load() }

// restored ends the session after a restore. The lease of the marks may be lost as well, which would end the next
// session.
func (c *Coordinator) restored() {
	c.restores.Add(1)
	c.marks.lease.Store(0)
	c.endSession(errRestored)
}

// Acts returns the actions that are done at most once per instance.
func (c *Coordinator) Acts() *Acts { return c.acts }

// extend records that the lease was granted or renewed by a request that was sent at a time of the clock.
func (c *Coordinator) extend(sent int64) {
	c.hear(time.Now().Add(time.Duration(sent - c.clock.Now())))
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.deadline = sent + int64(c.config.TTL-c.config.TTL/10) // before the lease expires
}

// lose clears all tokens, since the lease is lost, and cancels the acts under way. It clears the lease last: while a
// token is published, hasMet uses the session with that lease.
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
