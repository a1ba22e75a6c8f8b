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

// Order names an instance of a target that is to be restarted.
type Order struct {
	Target   string
	Instance string

	// IsDone reports whether it has been done, if an earlier owner of the shard has begun it, and has not recorded
	// how that has ended: it may have been killed before it could. Default: it has not.
	IsDone func(context.Context) (bool, error)

	// Before is called before it is recorded that it begins, with the condition that this engine still owns the shard: after
	// an error it does not begin. Default: nothing is called.
	Before func(_ context.Context, owned Condition) error
}

// Acts are what an engine does at most once for an instance, whichever engines own its target meanwhile: see
// Coordinator.Acts. Its methods are safe for concurrent use by multiple goroutines.
type Acts struct {
	co *Coordinator

	actsMu   sync.Mutex         // guards all below
	acting   map[string]*acting // by target
	released map[shard.ID]int   // no act may begin: how many calls of Release give the shard up
	isEnding bool               // likewise, for all shards
}

func newActs(c *Coordinator) *Acts {
	return &Acts{co: c, acting: map[string]*acting{}, released: map[shard.ID]int{}}
}

// acting is an act that is being done.
type acting struct {
	done     chan struct{} // closed afterwards
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

// requestTimeout bounds a request of an act to the backend. The last one of an act may be made after its lease has
// ended: the backend refuses it then if it is too late.
const requestTimeout = 5 * time.Second

// expireInterval is how often it is looked whether the lease of an act has ended: the timers of a machine stand still
// while it is suspended.
const expireInterval = 250 * time.Millisecond

// Do calls do for an order, if this engine owns the target's shard, has marked it as loaded, and its lease lasts. The order is
// recorded before and after that. If it is recorded as done, or Order.IsDone says that it is, the error is ErrDone, and do is
// not called.
//
// The context of do ends before the lease does, and lasts while it is kept alive. Do must not return before all that
// it has begun has ended: the shard may be another's then. After an error, or if
// the engine ends before the second record, this engine or the next owner calls do again with the same
// order: do must do nothing for an instance for which it was done.
//
// ErrNotOwner, errNotLoaded, ErrNotAllowed and errBusy say that do was not called now.
func (a *Acts) Do(ctx context.Context, o Order, do func(context.Context) error) error {
	if o.Instance == "" || o.Target == "" {
		return fmt.Errorf("an order must have a target and an instance: %+v", o)
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
			return fmt.Errorf("restart of %s, which an earlier owner has begun: %w", o.Target, err)
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

// withCause returns an error of a request with the reason for which its act has ended, if it has.
func withCause(acting context.Context, err error) error {
	if cause := context.Cause(acting); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// begin returns the token of the order's shard, if an act may begin, a context that ends before the
// lease, and what to call after the act.
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

// mayBegin returns the token of a shard and for how long the lease lasts, or why no act may begin for it. It needs actsMu.
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

// expire cancels an act if the lease may have ended, or else looks again later.
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

// cancel ends the contexts of all acts that are being done.
func (a *Acts) cancel(why error) {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	for _, one := range a.acting {
		one.cancel(why)
	}
}

// end lets no act begin any more, and returns those that are being done.
func (a *Acts) end() []*acting {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	a.isEnding = true
	return slices.Collect(maps.Values(a.acting))
}

// forbid lets no act begin for shards until allow, and returns those for whose targets acts are being done.
func (a *Acts) forbid(ids []shard.ID) (busy map[shard.ID]bool) {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	for _, id := range ids {
		a.released[id]++
	}
	return a.shards()
}

// allow ends what forbid has begun. A shard that was given up has another token, if it is claimed again.
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
// loaded, and its lease lasts.
func (a *Acts) MayBegin(target string) bool {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	_, _, err := a.mayBegin(shard.Of(target))
	return err == nil
}

// IsActing reports whether this engine does an act about a target now.
func (a *Acts) IsActing(target string) bool { return a.actingFor(target) != nil }

// actingFor returns what is being done for a target, nil for nothing.
func (a *Acts) actingFor(target string) *acting {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	return a.acting[target]
}

// Shards returns the shards for whose targets acts are being done.
func (a *Acts) Shards() map[shard.ID]bool {
	a.actsMu.Lock()
	defer a.actsMu.Unlock()
	return a.shards()
}

// shards is Shards. It needs actsMu.
func (a *Acts) shards() map[shard.ID]bool {
	all := map[shard.ID]bool{}
	for target := range a.acting {
		all[shard.Of(target)] = true
	}
	return all
}
