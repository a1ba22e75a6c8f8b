package coord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Order names what is done about an instance of a target.
type Order struct {
	Name     string // such as "restart"; without a slash
	Target   string
	Instance string

	// IsDone reports whether it has been done, if an earlier owner of the shard has begun it, and has not recorded
	// how that has ended: it may have been killed before it could. Default: it has not.
	IsDone func(context.Context) (bool, error)
}

func (o Order) key() string {
	return keyAct + shard.Of(o.Target).String() + "/" + o.Name + "/" + o.Target
}

// acting is an act that is being done.
type acting struct {
	isUnreserve bool
	done        chan struct{} // closed afterwards
	cancel      context.CancelCauseFunc
	deadline    *time.Timer // calls expire
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

// record is what the backend has of the latest act of a name for a target.
type record struct {
	Instance string   `json:"instance"`
	Token    Revision `json:"token"`
	Done     bool     `json:"done,omitempty"`
}

// Act calls do for an order, if this engine owns the target's shard, has marked it as loaded, and its lease lasts. The order is
// recorded before and after that. If it is recorded as done, or Order.IsDone says that it is, the error is ErrDone, and do is
// not called.
//
// The context of do ends before the lease does, and lasts while it is kept alive. Do must not return before all that
// it has begun has ended: the shard may be another's then. After an error, or if
// the engine ends before the second record, this engine or the next owner calls do again with the same
// order: do must do nothing for an instance for which it was done.
//
// ErrNotOwner, ErrNotLoaded, ErrNotAllowed and ErrBusy say that do was not called now.
func (c *Coordinator) Act(ctx context.Context, o Order, do func(context.Context) error) error {
	return c.ActAbove(ctx, o, Floor{}, do)
}

// ActAbove is Act for an act that is reserved in the groups of a floor, by the transaction of its first record: of the acts
// of all engines, no two are allowed that only one of would leave enough members. The error is a WithheldError if a group
// withholds it: do was not called. The reservation lasts until Unreserve, also beyond the end of the act and of this engine.
func (c *Coordinator) ActAbove(ctx context.Context, o Order, f Floor, do func(context.Context) error) error {
	if o.Name == "" || strings.Contains(o.Name, "/") || o.Instance == "" || o.Target == "" {
		return fmt.Errorf("an order must have a name without a slash, a target and an instance: %+v", o)
	}
	token, acting, end, err := c.beginNext(ctx, o)
	if err != nil {
		return err
	}
	defer end()
	r, err := c.recorded(acting, o)
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
			return fmt.Errorf("%s of %s, which an earlier owner has begun: %w", o.Name, o.Target, err)
		case isDone:
			return cmp.Or(c.writeDone(acting, o, record{o.Instance, token, true}), ErrDone)
		}
	}
	if err := c.writeReserved(acting, o, record{o.Instance, token, false}, f); err != nil {
		return withCause(acting, err)
	}
	if !c.Allowed() {
		return ErrNotAllowed
	}
	if err := do(acting); err != nil {
		return fmt.Errorf("%s of %s: %w", o.Name, o.Target, err)
	}
	return c.writeDone(acting, o, record{o.Instance, token, true})
}

// writeDone records that an order was done. While the backend refuses that, as when it elects a leader, it is tried
// again during requestTimeout, unless the act ends.
func (c *Coordinator) writeDone(acting context.Context, o Order, r record) error {
	for began := time.Now(); ; {
		err := c.write(context.WithoutCancel(acting), o, r)
		if err == nil || errors.Is(err, ErrNotOwner) || acting.Err() != nil || time.Since(began) >= requestTimeout {
			return err
		}
		select {
		case <-time.After(expireInterval):
		case <-acting.Done():
			return err
		}
	}
}

// withCause returns an error of a request with the reason for which its act has ended, if it has.
func withCause(acting context.Context, err error) error {
	if cause := context.Cause(acting); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// MayAct reports whether an act for a target could begin now: this engine owns the target's shard, has marked it as
// loaded, and its lease lasts.
func (c *Coordinator) MayAct(target string) bool {
	id, isAllowed := shard.Of(target), c.Allowed()
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return isAllowed && c.owns(id) && c.isLoaded(id)
}

// isLoaded reports whether a shard is marked as loaded under its present token. It needs stateMu.
func (c *Coordinator) isLoaded(id shard.ID) bool { return c.loaded[id] == c.owned[id].Token }

// owns reports whether acts may begin for a shard while the lease lasts. It needs stateMu.
func (c *Coordinator) owns(id shard.ID) bool {
	o := c.owned[id]
	return o.Token != 0 && !o.Leaving && c.released[id] == 0 && !c.isEnding
}

// beginNext is begin, after an Unreserve of the target that is being done: that takes some requests to the backend.
func (c *Coordinator) beginNext(ctx context.Context, o Order) (token Revision, acting context.Context, end func(), err error) {
	for {
		token, acting, end, err = c.begin(ctx, o)
		if !errors.Is(err, ErrBusy) {
			return token, acting, end, err
		}
		other := c.actingFor(o.Target)
		switch {
		case other == nil: // it has just ended
			continue
		case !other.isUnreserve:
			return 0, nil, nil, err
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return 0, nil, nil, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
		}
	}
}

// actingFor returns what is being done for a target, nil for nothing.
func (c *Coordinator) actingFor(target string) *acting {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.acting[target]
}

// begin returns the token of the order's shard, if an act may begin, a context that ends before the
// lease, and what to call after the act.
func (c *Coordinator) begin(ctx context.Context, o Order) (token Revision, _ context.Context, end func(), err error) {
	id := shard.Of(o.Target)
	isAllowed := c.Allowed()
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	switch {
	case !c.owns(id):
		return 0, nil, nil, ErrNotOwner
	case !c.isLoaded(id):
		return 0, nil, nil, ErrNotLoaded
	case !isAllowed:
		return 0, nil, nil, ErrNotAllowed
	case c.acting[o.Target] != nil:
		return 0, nil, nil, ErrBusy
	}
	ctx, cancel := context.WithCancelCause(ctx)
	a := &acting{isUnreserve: o.Name == "", done: make(chan struct{}), cancel: cancel}
	c.acting[o.Target] = a
	a.deadline = time.AfterFunc(min(c.left(), expireInterval), func() { c.expire(a) })
	return c.owned[id].Token, ctx, func() {
		c.stateMu.Lock()
		defer c.stateMu.Unlock()
		a.deadline.Stop()
		cancel(nil)
		delete(c.acting, o.Target)
		close(a.done)
	}, nil
}

// expire cancels an act if the lease may have ended, or else looks again later.
func (c *Coordinator) expire(a *acting) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if a.hasEnded() { // while this waited for the lock
		return
	}
	if left := c.left(); left > 0 {
		a.deadline.Reset(min(left, expireInterval))
		return
	}
	a.cancel(ErrNotAllowed)
}

// recorded returns the record of an order's name and target, the zero one if there is none.
func (c *Coordinator) recorded(ctx context.Context, o Order) (r record, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	entry, err := c.config.Backend.Get(ctx, o.key())
	switch {
	case err != nil:
		return r, fmt.Errorf("read the record of %s of %s: %w", o.Name, o.Target, err)
	case entry.Created == 0:
		return r, nil
	}
	if err := json.Unmarshal(entry.Value, &r); err != nil {
		return r, fmt.Errorf("record of %s of %s: %w", o.Name, o.Target, err)
	}
	return r, nil
}

// write records an order, if this engine still owns its shard.
func (c *Coordinator) write(ctx context.Context, o Order, r record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.Write(ctx, shard.Of(o.Target), r.Token, Change{Key: o.key(), Value: value})
}

// Forget deletes the records of acts for targets, and the pauses of these, of at most MaxTransactions of this engine's shards, except
// those that are kept. Acts that are being done keep theirs. The error is ErrNotOwner if this engine does not
// own one of the shards.
func (c *Coordinator) Forget(ctx context.Context, ids []shard.ID, isKept func(target string) bool) error {
	owned, _ := c.Owned()
	var all []Transaction
	for _, kind := range []string{keyAct, keyPause} {
		prefixes := make([]string, 0, len(ids))
		for _, id := range ids {
			if owned[id].Token == 0 {
				return ErrNotOwner
			}
			prefixes = append(prefixes, kind+id.String()+"/")
		}
		found, err := c.config.Backend.RangeAll(ctx, prefixes...)
		if err != nil {
			return fmt.Errorf("read the records of %d shards: %w", len(ids), err)
		}
		for i, id := range ids {
			for _, e := range found[i] {
				target := strings.TrimPrefix(e.Key, prefixes[i])
				if kind == keyAct {
					_, target, _ = strings.Cut(target, "/") // after the name of the act
				}
				if target == "" || isKept(target) || c.IsActing(target) {
					continue
				}
				all = append(all, Transaction{
					If:   []Condition{{Key: shardKey(id), Created: owned[id].Token}, {Key: e.Key, Created: e.Created}},
					Then: []Change{{Key: e.Key, Delete: true}},
				})
			}
		}
	}
	for batch := range slices.Chunk(all, MaxTransactions) {
		made, err := c.config.Backend.Commit(ctx, batch...)
		switch {
		case err != nil:
			return fmt.Errorf("delete records of %d shards: %w", len(ids), err)
		case slices.Contains(made, false):
			return ErrNotOwner
		}
	}
	return nil
}

// Acting returns the shards for whose targets acts are being done.
func (c *Coordinator) Acting() map[shard.ID]bool {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	all := map[shard.ID]bool{}
	for target := range c.acting {
		all[shard.Of(target)] = true
	}
	return all
}
