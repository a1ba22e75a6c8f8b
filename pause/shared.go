package pause

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// localPause is how long at most a shared target is paused by this engine only, while the store does not answer.
const localPause = 15 * time.Minute

// shared is what a Keeper knows of the pauses in the store. Keeper.pausesMu guards it.
type shared struct {
	stored   map[string]coord.Revision // by target: the entry that the store has
	changed  chan struct{}             // closed when stored has changed
	synced   chan struct{}             // closed when the store has been read first
	read     func()                    // closes synced, if it is not closed
	isSynced bool                      // the store is followed
}

// Share follows the pauses of shared targets in the store until ctx is done. Without Config.Coordinator it only waits for ctx.
func (k *Keeper) Share(ctx context.Context) {
	if k.config.Coordinator == nil {
		<-ctx.Done()
		return
	}
	k.config.Coordinator.WatchPauses(ctx, k.follow, k.unfollow)
}

// Synced returns a channel that is closed when Share has first read the pauses of shared targets.
func (k *Keeper) Synced() <-chan struct{} { return k.shared.synced }

// IsSynced reports whether this engine has the latest pause of a target: while those of shared targets cannot be followed, another
// engine may have paused it.
func (k *Keeper) IsSynced(target string) bool {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	return k.shared.isSynced || !k.config.IsShared(target)
}

// errNotSeen is the error of store if the store has all pauses, and has not shown them to this engine.
var errNotSeen = errors.New("etcd has it, and this engine has not received it yet")

// store stores the pauses of shared targets, nil for their ends, and waits until this engine has received them from the store.
func (k *Keeper) store(ctx context.Context, p *Pause, targets []string) error {
	if len(targets) == 0 {
		return nil
	}
	before := k.revisions(targets)
	all := make([]coord.Pause, len(targets))
	for i, target := range targets {
		if all[i].Target = target; p != nil {
			all[i].Value = p.onWallClock(time.Now()).marshal()
		}
	}
	for batch := range slices.Chunk(all, coord.MaxTransactions) {
		if err := k.config.Coordinator.StorePauses(ctx, batch...); err != nil {
			return err
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

// follow applies what the store has: all pauses, or those that have changed.
func (k *Keeper) follow(all []coord.Pause, isAll bool) {
	now, begun, ended := time.Now(), map[string]Pause{}, map[string]Pause{}
	k.pausesMu.Lock()
	if isAll {
		all = append(all, k.missing(all)...)
	}
	for _, stored := range all {
		before, was := k.paused[stored.Target]
		p, is := unmarshal(stored.Value, now)
		if k.shared.stored[stored.Target] = stored.Modified; stored.Value == nil {
			delete(k.shared.stored, stored.Target)
		}
		switch {
		case is && !(was && before.equal(p)):
			k.paused[stored.Target], begun[stored.Target] = p, p
			k.tell(stored.Target)
		case !is && was:
			ended[stored.Target] = before
			k.end(stored.Target)
		}
	}
	if isAll {
		k.shared.isSynced = true
		k.shared.read()
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

// missing returns the ends of pauses that were stored, and are not among all. It needs pausesMu.
func (k *Keeper) missing(all []coord.Pause) (ends []coord.Pause) {
	gone := maps.Clone(k.shared.stored)
	for _, p := range all {
		delete(gone, p.Target)
	}
	for target := range gone {
		ends = append(ends, coord.Pause{Target: target})
	}
	return ends
}

// unfollow notes that changes of pauses may be missed from now on.
func (k *Keeper) unfollow() {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	k.shared.isSynced = false
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

// unmarshal returns a pause that was stored, bounded and made safe again, and whether it pauses its target now.
func unmarshal(value []byte, now time.Time) (p Pause, ok bool) {
	if len(value) == 0 || len(value) > coord.MaxPause || json.Unmarshal(value, &p) != nil {
		return Pause{}, false
	}
	p = p.bounded().onMonotonicClock(now)
	return p, !p.hasEnded(now)
}

// equal reports whether two are the same pause. It compares times of the wall clock: onMonotonicClock gives the same
// stored time another monotonic reading each time.
func (p Pause) equal(q Pause) bool {
	return p.At.Round(0).Equal(q.At.Round(0)) && p.Until.Round(0).Equal(q.Until.Round(0)) && p.By == q.By && p.Why == q.Why
}
