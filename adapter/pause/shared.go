package pause

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/probe"
)

// shared is what a Keeper knows of the pauses that the engines of a fleet share. Keeper.pausesMu guards it, but for wake.
type shared struct {
	stored   map[string]bool // targets of which the store has a pause, also one that has ended by itself
	unsaved  map[string]bool // targets whose pause, or that they have none, is not stored yet
	saved    chan struct{}   // closed when unsaved has changed
	isKnown  bool            // the store is followed: all pauses are known
	known    chan struct{}   // closed when isKnown is set first
	wake     chan struct{}   // capacity 1: something is unsaved
	wasKnown bool
}

func newShared() shared {
	return shared{
		stored: map[string]bool{}, unsaved: map[string]bool{}, saved: make(chan struct{}), known: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// saveInterval is how long Share waits before it tries again to store pauses.
const saveInterval = time.Second

// saveTimeout bounds one attempt at that.
const saveTimeout = 5 * time.Second

// Share stores the pauses of shared targets for the other engines of the fleet, and follows what these have stored, until
// ctx is done. A pause that cannot be stored is in force in this engine, and stored later. Without Config.Coordinator it
// only waits for ctx.
func (k *Keeper) Share(ctx context.Context) {
	if k.config.Coordinator == nil {
		<-ctx.Done()
		return
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() {
		k.config.Coordinator.WatchPauses(ctx, coord.PauseWatch{Changed: k.follow, Ended: k.unfollow})
	})
	sparse := sparselog.New(k.config.Logger)
	for {
		var again <-chan time.Time
		if err := k.save(ctx); err != nil && ctx.Err() == nil {
			sparse.Warn("pauses of targets cannot be stored for the other engines, trying again", "error", err)
			again = time.After(saveInterval)
		}
		select {
		case <-k.shared.wake:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// Known returns a channel that is closed when Share has first read the pauses of shared targets.
func (k *Keeper) Known() <-chan struct{} { return k.shared.known }

// Knows reports whether the pause of a target is known: while those of shared targets cannot be followed, another
// engine may have paused it.
func (k *Keeper) Knows(target string) bool {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	return k.shared.isKnown || !k.config.IsShared(target)
}

// Unsaved returns how many of some targets have a pause, or an end of one, that is not stored for the other engines
// yet. It waits for that until ctx is done.
func (k *Keeper) Unsaved(ctx context.Context, targets []string) int {
	for {
		k.pausesMu.Lock()
		n, saved := 0, k.shared.saved
		for _, target := range targets {
			if k.shared.unsaved[target] {
				n++
			}
		}
		k.pausesMu.Unlock()
		if n == 0 {
			return 0
		}
		select {
		case <-saved:
		case <-ctx.Done():
			return n
		}
	}
}

// markShared says that the pause of a target, or that it has none, is to be stored if the target is shared. It needs
// pausesMu.
func (k *Keeper) markShared(target string) {
	if !k.config.IsShared(target) {
		return
	}
	k.shared.unsaved[target] = true
	select {
	case k.shared.wake <- struct{}{}:
	default:
	}
}

// save stores what is unsaved.
func (k *Keeper) save(ctx context.Context) error {
	var all []coord.Pause
	k.pausesMu.Lock()
	for target := range k.shared.unsaved {
		p := coord.Pause{Target: target}
		if now, isPaused := k.paused[target]; isPaused {
			p.Value, p.Until = marshal(now), now.Until
		}
		all = append(all, p)
	}
	k.pausesMu.Unlock()
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if err := k.config.Coordinator.StorePauses(ctx, all...); err != nil {
		return err
	}
	k.pausesMu.Lock()
	for _, p := range all {
		now, isPaused := k.paused[p.Target]
		if isPaused != (p.Value != nil) || isPaused && !bytes.Equal(marshal(now), p.Value) {
			continue // it has changed meanwhile, and wakes Share
		}
		if delete(k.shared.unsaved, p.Target); isPaused {
			k.shared.stored[p.Target] = true
		} else {
			delete(k.shared.stored, p.Target)
		}
	}
	close(k.shared.saved)
	k.shared.saved = make(chan struct{})
	k.pausesMu.Unlock()
	k.config.Changed()
	return nil
}

// follow notes what the store has: all pauses, or those that have changed.
func (k *Keeper) follow(all []coord.Pause, isAll bool) {
	now, begun, ended := time.Now(), map[string]Pause{}, map[string]Pause{}
	k.pausesMu.Lock()
	if isAll {
		gone := k.shared.stored
		k.shared.stored = map[string]bool{}
		for _, p := range all {
			delete(gone, p.Target)
		}
		for target := range gone {
			k.note(target, nil, now, begun, ended)
		}
	}
	for _, p := range all {
		k.note(p.Target, p.Value, now, begun, ended)
	}
	if isAll {
		for target := range k.paused { // such as one that was kept in the state file
			if !k.shared.stored[target] {
				k.markShared(target)
			}
		}
		if k.shared.isKnown = true; !k.shared.wasKnown {
			k.shared.wasKnown = true
			close(k.shared.known)
		}
	}
	k.pausesMu.Unlock()
	k.logBegun(begun)
	k.logEnded(ended)
	if len(begun)+len(ended) > 0 {
		k.notify()
	}
}

// note notes the value that the store has for a target, nil for none, and adds to begun or ended what has changed by
// that. What is unsaved goes before it. It needs pausesMu.
func (k *Keeper) note(target string, value []byte, now time.Time, begun, ended map[string]Pause) {
	p, isPaused := unmarshal(value)
	isPaused = isPaused && !p.hasEnded(now)
	if value != nil {
		k.shared.stored[target] = true
	} else {
		delete(k.shared.stored, target)
	}
	before, wasPaused := k.paused[target]
	switch {
	case k.shared.unsaved[target]:
	case isPaused && !(wasPaused && before.equal(p)):
		p = p.onMonotonicClock(now)
		k.paused[target], begun[target] = p, p
		k.tell(target)
	case wasPaused && !isPaused:
		ended[target] = before
		k.end(target)
	}
}

// unfollow says that changes of pauses may be missed from now on.
func (k *Keeper) unfollow() {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	k.shared.isKnown = false
}

// logBegun logs pauses that other engines have stored, by target.
func (k *Keeper) logBegun(pauses map[string]Pause) {
	for _, target := range k.named(pauses, "targets paused") {
		p := pauses[target]
		k.config.Logger.Info("target paused", "target", target, "by", p.By, "why", p.Why, "until", untilText(p.Until))
	}
}

// equal reports whether two are the same pause: times that were stored have lost the reading of the monotonic clock.
func (p Pause) equal(q Pause) bool {
	return p.At.Equal(q.At) && p.Until.Equal(q.Until) && p.By == q.By && p.Why == q.Why
}

// marshal returns a pause as it is stored.
func marshal(p Pause) []byte {
	b, _ := json.Marshal(p) // has no error
	return b
}

// The bounds of what is read from the store, in bytes.
const (
	maxBy  = 256
	maxWhy = 512
)

// unmarshal returns a pause that was stored, bounded and made safe again, and whether there is one.
func unmarshal(value []byte) (p Pause, ok bool) {
	if len(value) > coord.MaxPause || json.Unmarshal(value, &p) != nil {
		return Pause{}, false
	}
	p.By, p.Why = probe.OneLine(p.By, maxBy), probe.OneLine(p.Why, maxWhy)
	return p, true
}
