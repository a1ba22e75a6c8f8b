package coord

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Order names an instance of a target to be restarted.
type Order struct {
	Target   string
	Instance string

	// IsDone reports whether the restart was done, in case that an earlier owner of the shard began it and did not record
	// its end, since it may have been killed. Default: not done.
	IsDone func(context.Context) (bool, error)

	// Before is called before the start of the restart is recorded, with the condition that this engine still owns the
	// shard. If it returns an error, the restart does not begin. Default: nothing is called.
	Before func(_ context.Context, owned Condition) error
}

// Acts are actions that are done at most once per instance, even if the owner of its target changes meanwhile: see
// Coordinator.Acts. Its methods are safe for concurrent use by multiple goroutines.
type Acts struct {
	co *Coordinator

	actsMu   sync.Mutex         // guards all below
	acting   map[string]*acting // by target
	released map[shard.ID]int   // number of Release calls that are giving up a shard; no act may begin for it
	isEnding bool               // no act may begin for any shard
}

func newActs(c *Coordinator) *Acts {
	return &Acts{co: c, acting: map[string]*acting{}, released: map[shard.ID]int{}}
}

// acting is an act under way.
type acting struct {
	done     chan struct{} // closed when the act has finished
	cancel   context.CancelCauseFunc
	deadline *time.Timer // calls expire
}

func (a *acting) hasEnded() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// requestTimeout bounds a request of an act to the backend. The last request of an act may be sent after its lease has
// expired; if it is too late, the backend rejects it.
const requestTimeout = 5 * time.Second

// expireInterval is how often an act checks that the lease is valid, since timers stop while the machine is suspended.
const expireInterval = 250 * time.Millisecond

// Do calls do for an order if this engine owns the target's shard, has marked it as loaded, and its lease is valid. It
// records the order before and after the call. If the order is recorded as done, or Order.IsDone returns true, the error
// is ErrDone, and do is not called.
//
// The context of do is canceled before the lease expires; it lasts while the lease is renewed. Do must not return before
// everything that it has begun has finished, since the shard may belong to another engine then. After an error, or if
// the engine exits before the second record, this engine or the next owner calls do again with the same order: do must
// have no effect on an instance for which it was done.
//
// If the act may not begin, the error is ErrNotOwner, errNotLoaded, ErrNotAllowed or errBusy.
func (a *Acts) Do(ctx context.Context, o Order, do func(context.Context) error) error {
	if o.Instance == "" || o.Target == "" {
		return fmt.Errorf("invalid order %+v: want a target and an instance", o)
	}
	token, acting, end, err := a.begin(ctx, o)
	if err != nil {
		return err
	}
	defer end()
	r, err := a.recorded(acting, o)
	if err != nil {
		return withCause(acting, err)
	}
	if r.Instance == o.Instance && r.Done {
		return ErrDone
	}
	if r.Instance == o.Instance && r.Token != token && o.IsDone != nil {
		isDone, err := o.IsDone(acting)
		switch {
		case err != nil:
			return fmt.Errorf("restart of %s, begun by an earlier owner: %w", o.Target, err)
		case isDone:
			return cmp.Or(a.writeDone(acting, o, record{o.Instance, token, true}), ErrDone)
		}
	}
	if o.Before != nil {
		if err := o.Before(acting, Owns(shard.Of(o.Target), token)); err != nil {
			return withCause(acting, err)
		}
	}
	if err := a.write(acting, o, record{o.Instance, token, false}); err != nil {
		return withCause(acting, err)
	}
	if !a.co.Allowed() {
		return ErrNotAllowed
	}
	if err := do(acting); err != nil {
		return fmt.Errorf("restart of %s: %w", o.Target, err)
	}
	return a.writeDone(acting, o, record{o.Instance, token, true})
}

// withCause adds to the error of a request the reason why its act was canceled, if it was.
func withCause(acting context.Context, err error) error {
	if cause := context.Cause(acting); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// begin begins an act, if it may. It returns the token of the order's shard, a context that is canceled before the lease
// expires, and a function to be called after the act.
func (a *Acts) begin(ctx context.Context, o Order) (token Revision, _ context.Context, end func(), err error) {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	token, left, err := a.mayBegin(shard.Of(o.Target))
	if err == nil && a.acting[o.Target] != nil {
		err = errBusy
	}
	if err != nil {
		return 0, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	now := &acting{done: make(chan struct{}), cancel: cancel}
	a.acting[o.Target] = now
	now.deadline = time.AfterFunc(min(left, expireInterval), func() { a.expire(now) })
	return token, ctx, func() {
		a.actsMu.Lock()
		defer a.actsMu.Unlock()
		now.deadline.Stop()
		cancel(nil)
		delete(a.acting, o.Target)
		close(now.done)
	}, nil
}

// mayBegin returns the token of a shard and the remaining time of the lease, or an error if no act may begin for the
// shard. The caller must hold actsMu.
func (a *Acts) mayBegin(id shard.ID) (token Revision, left time.Duration, err error) {
	owned, _ := a.co.Owned()
	o, left := owned[id], a.co.left()
	switch {
	case o.Token == 0 || o.Leaving || a.released[id] > 0 || a.isEnding:
		return 0, 0, ErrNotOwner
	case !a.co.marks.has(id, o.Token):
		return 0, 0, errNotLoaded
	case left == 0:
		return 0, 0, ErrNotAllowed
	}
	return o.Token, left, nil
}

// expire cancels an act if the lease may have expired, and otherwise checks again later.
func (a *Acts) expire(one *acting) {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	if one.hasEnded() { // while this waited for the lock
		return
	}
	if left := a.co.left(); left > 0 {
		one.deadline.Reset(min(left, expireInterval))
		return
	}
	one.cancel(ErrNotAllowed)
}

// cancel cancels the contexts of all acts under way.
func (a *Acts) cancel(why error) {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	for _, one := range a.acting {
		one.cancel(why)
	}
}

// end prevents new acts, and returns the acts under way.
func (a *Acts) end() []*acting {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	a.isEnding = true
	return slices.Collect(maps.Values(a.acting))
}

// forbid prevents new acts for shards until allow is called, and returns the shards with acts under way.
func (a *Acts) forbid(ids []shard.ID) (busy map[shard.ID]bool) {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	for _, id := range ids {
		a.released[id]++
	}
	return a.shards()
}

// allow reverts forbid. A shard that was given up has a new token when it is claimed again.
func (a *Acts) allow(ids []shard.ID) {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	for _, id := range ids {
		if a.released[id]--; a.released[id] == 0 {
			delete(a.released, id)
		}
	}
}

// MayBegin reports whether an act for a target could begin now: this engine owns the target's shard, has marked it as
// loaded, and its lease is valid.
func (a *Acts) MayBegin(target string) bool {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	_, _, err := a.mayBegin(shard.Of(target))
	return err == nil
}

// IsActing reports whether an act for a target is under way.
func (a *Acts) IsActing(target string) bool { return a.actingFor(target) != nil }

// actingFor returns the act under way for a target, or nil.
func (a *Acts) actingFor(target string) *acting {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	return a.acting[target]
}

// Shards returns the shards with acts under way.
func (a *Acts) Shards() map[shard.ID]bool {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	return a.shards()
}

// shards implements Shards. The caller must hold actsMu.
func (a *Acts) shards() map[shard.ID]bool {
	all := map[shard.ID]bool{}
	for target := range a.acting {
		all[shard.Of(target)] = true
	}
	return all
}
