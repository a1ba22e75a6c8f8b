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

// localPause is how long at most a shared target is paused by this engine only, while the store does not answer.
const localPause = 15 * time.Minute

// maxStored bounds a pause in the store, in bytes.
const maxStored = 2 << 10

// shared is what a Keeper knows of the pauses in the store.
type shared struct {
	mirror *coord.Mirror[*Pause] // by target; nil for a value that is no pause; nil without a store

	// Keeper.pausesMu guards all below.
	stored  map[string]coord.Revision // by target: the entry that the store has, once it is applied here
	changed chan struct{}             // closed when stored has changed
}

// follow has the Keeper follow the pauses of shared targets in the store, if there is one.
func (k *Keeper) follow() {
	k.shared = shared{stored: map[string]coord.Revision{}, changed: make(chan struct{})}
	if k.config.Coordinator != nil {
		k.shared.mirror = coord.NewMirror(k.config.Coordinator, coord.Kind[*Pause]{
			Keys: coord.PauseKeys, MaxValue: maxStored, Problem: "pauses of targets that are shared cannot be followed, trying again",
			Changed: k.apply,
		})
	}
}

// Share follows the pauses of shared targets in the store until ctx is done. Without Config.Coordinator it only waits for ctx.
func (k *Keeper) Share(ctx context.Context) {
	if k.shared.mirror == nil {
		<-ctx.Done()
		return
	}
	k.shared.mirror.Run(ctx)
}

// Synced returns a channel that is closed when Share has first read the pauses of shared targets. It needs Config.Coordinator.
func (k *Keeper) Synced() <-chan struct{} { return k.shared.mirror.Synced() }

// IsSynced reports whether this engine has the latest pause of a target: while those of shared targets cannot be followed, another
// engine may have paused it.
func (k *Keeper) IsSynced(target string) bool {
	return !k.config.IsShared(target) || !k.shared.mirror.State().ReadAt.IsZero()
}

// errNotSeen is the error of store if the store has all pauses, and has not shown them to this engine.
var errNotSeen = errors.New("etcd has it, and this engine has not received it yet")

// store stores the pauses of shared targets, nil for their ends, and waits until this engine has received them from the store.
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
			_, change := k.shared.mirror.Put(target, 0, value, 0) // in place of any before
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

// revisions returns the entries that the store has about some targets.
func (k *Keeper) revisions(targets []string) map[string]coord.Revision {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	all := make(map[string]coord.Revision, len(targets))
	for _, target := range targets {
		all[target] = k.shared.stored[target]
	}
	return all
}

// apply applies what has changed in the store.
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

// The bounds of the texts of a pause, in bytes.
const (
	maxBy  = 256
	maxWhy = 256
)

// bounded returns p with texts that are one line and not too long.
func (p Pause) bounded() Pause {
	p.By, p.Why = probe.OneLine(p.By, maxBy), probe.OneLine(p.Why, maxWhy)
	return p
}

// marshal returns a pause as it is stored.
func (p Pause) marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it triples texts, which are bounded
	_ = e.Encode(p)        // has no error: times are those of clocks, or were read from JSON
	return bytes.TrimSpace(b.Bytes())
}

// received returns a pause that was stored, nil for none, bounded and made safe again, and whether it pauses its target now.
func (p *Pause) received(now time.Time) (_ Pause, ok bool) {
	if p == nil {
		return Pause{}, false
	}
	q := p.bounded().onMonotonicClock(now)
	return q, !q.hasEnded(now)
}

// equal reports whether two are the same pause. It compares times of the wall clock: onMonotonicClock gives the same
// stored time another monotonic reading each time.
func (p Pause) equal(q Pause) bool {
	return p.At.Round(0).Equal(q.At.Round(0)) && p.Until.Round(0).Equal(q.Until.Round(0)) && p.By == q.By && p.Why == q.Why
}
