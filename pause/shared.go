package pause

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// localPause is the maximum duration of a pause of a shared target by this engine only, while the store is unavailable.
const localPause = 15 * time.Minute

// maxStored is the maximum size of a pause in the store, in bytes.
const maxStored = 2 << 10

// shared is the part of a Keeper that follows the pauses in the store.
type shared struct {
	mirror *coord.Mirror[*Pause] // by target; nil values are invalid pauses; nil without a store

	// Keeper.pausesMu guards all below.
	stored  map[string]coord.Revision // by target: revision of the entry in the store that has been applied here
	changed chan struct{}             // closed when stored has changed
}

// follow creates the mirror of the pauses of shared targets in the store, if there is a store.
func (k *Keeper) follow() {
	k.shared = shared{stored: map[string]coord.Revision{}, changed: make(chan struct{})}
	if k.config.Coordinator != nil {
		k.shared.mirror = coord.NewMirror(k.config.Coordinator, coord.Kind[*Pause]{
			Keys: coord.PauseKeys, MaxValue: maxStored, Problem: "cannot follow the pauses of shared targets, retrying",
			Changed: k.apply,
		})
	}
}

// Share follows the pauses of shared targets in the store until ctx is done. Without
// Config.Coordinator it only waits for ctx.
func (k *Keeper) Share(ctx context.Context) {
	if k.shared.mirror == nil {
		<-ctx.Done()
		return
	}
	k.shared.mirror.Run(ctx)
}

// Synced returns a channel that is closed when Share has first read the pauses of shared targets. It needs Config.Coordinator.
func (k *Keeper) Synced() <-chan struct{} { return k.shared.mirror.Synced() }

// IsSynced reports whether this engine has the latest pause of a target. While it cannot follow the pauses of shared
// targets, another engine may have paused the target.
func (k *Keeper) IsSynced(target string) bool {
	return !k.config.IsShared(target) || !k.shared.mirror.State().ReadAt.IsZero()
}

// errNotSeen is the error of store if the store has accepted all pauses but this engine has not received them.
var errNotSeen = errors.New("the change is stored in etcd, but this engine has not received it yet")

// store writes the pauses of shared targets to the store, or deletes them if p is nil, and waits until this
// engine has received the change.
func (k *Keeper) store(ctx context.Context, p *Pause, targets []string) error {
	if len(targets) == 0 {
		return nil
	}
	before := k.revisions(targets)
	var value []byte
	if p != nil {
		value = p.onWallClock(time.Now()).marshal()
	}
	for batch := range slices.Chunk(targets, coord.MaxTransactions) {
		all := make([]coord.Transaction, 0, len(batch))
		for _, target := range batch {
			_, change := k.shared.mirror.Put(target, 0, value, 0) // replaces any previous pause
			all = append(all, coord.Transaction{Then: []coord.Change{change}})
		}
		if _, err := k.config.Coordinator.Backend().Commit(ctx, all...); err != nil {
			return fmt.Errorf("store the pauses of %d targets: %w", len(batch), err)
		}
	}
	for {
		k.pausesMu.Lock()
		changed, seen := k.shared.changed, true
		for _, target := range targets {
			now := k.shared.stored[target]
			seen = seen && (now != before[target] || p == nil && now == 0)
		}
		k.pausesMu.Unlock()
		if seen {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errNotSeen
		}
	}
}

// revisions returns the revisions of the entries that the store has for targets.
func (k *Keeper) revisions(targets []string) map[string]coord.Revision {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	all := make(map[string]coord.Revision, len(targets))
	for _, target := range targets {
		all[target] = k.shared.stored[target]
	}
	return all
}

// apply applies changes in the store.
func (k *Keeper) apply(all []coord.ItemChange[*Pause], _ bool) {
	now, begun, ended := time.Now(), map[string]Pause{}, map[string]Pause{}
	k.pausesMu.Lock()
	for _, c := range all {
		before, was := k.paused[c.Name]
		p, is := c.Now.Value.received(now)
		if k.shared.stored[c.Name] = c.Now.Modified; c.Now.Modified == 0 {
			delete(k.shared.stored, c.Name)
		}
		switch {
		case is && !(was && before.equal(p)):
			k.paused[c.Name], begun[c.Name] = p, p
			k.tell(c.Name)
		case !is && was:
			ended[c.Name] = before
			k.end(c.Name)
		}
	}
	close(k.shared.changed)
	k.shared.changed = make(chan struct{})
	k.pausesMu.Unlock()
	k.logBegun(begun)
	k.logEnded(ended)
	if len(begun)+len(ended) > 0 {
		k.notify()
	}
}

// Limits on the texts of a pause, in bytes.
const (
	maxBy  = 256
	maxWhy = 256
)

// bounded returns p with its texts cut to one line of limited length.
func (p Pause) bounded() Pause {
	p.By, p.Why = probe.OneLine(p.By, maxBy), probe.OneLine(p.Why, maxWhy)
	return p
}

// marshal returns the pause in its stored form.
func (p Pause) marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // escaping would triple the size of texts, which is limited
	_ = e.Encode(p)        // cannot fail: the times come from clocks or JSON
	return bytes.TrimSpace(b.Bytes())
}

// received returns a stored pause with its texts bounded again and its times on the monotonic clock, and whether it is in
// effect now. A nil p is no pause.
func (p *Pause) received(now time.Time) (_ Pause, ok bool) {
	if p == nil {
		return Pause{}, false
	}
	q := p.bounded().onMonotonicClock(now)
	return q, !q.hasEnded(now)
}

// equal reports whether two pauses are the same. It compares wall-clock times, since onMonotonicClock adds a
// different monotonic reading each time.
func (p Pause) equal(q Pause) bool {
	return p.At.Round(0).Equal(q.At.Round(0)) && p.Until.Round(0).Equal(q.Until.Round(0)) && p.By == q.By && p.Why == q.Why
}
