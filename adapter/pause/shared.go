package pause

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/probe"
)

// shared is what a Keeper knows of the pauses that the engines of a fleet share. Keeper.pausesMu guards it, but for author
// and wake.
type shared struct {
	author   string            // of orders that this Keeper is given
	records  map[string]record // by target
	saved    chan struct{}     // closed when something has been stored
	isKnown  bool              // the store is followed: all pauses are known
	known    chan struct{}     // closed when isKnown is set first
	wasKnown bool              // isKnown was set before
	wake     chan struct{}     // capacity 1: something is unsaved
}

func newShared(engine string) shared {
	start := "/" + rand.Text()
	return shared{
		author:  probe.OneLine(engine, maxAuthor-len(start)) + start, // as unmarshal returns it
		records: map[string]record{},
		saved:   make(chan struct{}), known: make(chan struct{}), wake: make(chan struct{}, 1),
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
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end() // also after a panic
	parts.Go(func() {
		k.config.Coordinator.WatchPauses(ctx, coord.PauseWatch{Changed: k.follow, Ended: k.unfollow})
	})
	sparse := sparselog.New(k.config.Logger)
	for {
		var again <-chan time.Time
		isSaved, err := k.save(ctx)
		if err != nil && ctx.Err() == nil {
			sparse.Warn("pauses of targets cannot be stored for the other engines, trying again", "error", err)
		}
		if !isSaved {
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
			if k.shared.records[target].unsaved {
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

// give notes an order about a target, which is to be stored if the target is shared. If it no longer is, what was to be
// stored is replaced all the same. It needs pausesMu.
func (k *Keeper) give(target string, o Order) {
	r := k.shared.records[target]
	if k.config.IsShared(target) {
		r = r.give(o, k.shared.author)
	} else {
		r = record{modified: r.modified}
	}
	k.setRecord(target, r)
}

// setRecord replaces what is known of a target, and wakes Share if that is to be stored. It needs pausesMu.
func (k *Keeper) setRecord(target string, r record) {
	if r == (record{}) {
		delete(k.shared.records, target)
		return
	}
	k.shared.records[target] = r
	if r.unsaved {
		k.wakeShare()
	}
}

func (k *Keeper) wakeShare() {
	select {
	case k.shared.wake <- struct{}{}:
	default:
	}
}

// save stores what is unsaved, once it is known what the store has, and reports whether nothing is left. What another
// engine has stored meanwhile comes by the watch.
func (k *Keeper) save(ctx context.Context) (isSaved bool, err error) {
	isSaved = true
	for batch := range slices.Chunk(k.unsaved(), coord.MaxTransactions) {
		pauses := make([]coord.Pause, 0, len(batch))
		for _, u := range batch {
			pauses = append(pauses, u.Pause)
		}
		storing, cancel := context.WithTimeout(ctx, saveTimeout)
		stored, err := k.config.Coordinator.StorePauses(storing, pauses...)
		cancel()
		if err != nil {
			return false, err
		}
		k.markSaved(batch, stored)
		isSaved = isSaved && !slices.Contains(stored, false)
	}
	return isSaved, nil
}

// unsavedOrder is an order as it is to be stored.
type unsavedOrder struct {
	coord.Pause
	order Order
}

// unsaved returns what is to be stored, nothing while it is not known what the store has.
func (k *Keeper) unsaved() (all []unsavedOrder) {
	now := time.Now()
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	if !k.shared.isKnown {
		return nil
	}
	for target, r := range k.shared.records {
		if r.unsaved {
			o := r.latest.onWallClock(now)
			all = append(all, unsavedOrder{coord.Pause{Target: target, Value: o.marshal(), Until: o.until(now), Modified: r.modified}, o})
		}
	}
	return all
}

// markSaved notes what was stored, unless there is another order by now.
func (k *Keeper) markSaved(all []unsavedOrder, stored []bool) {
	k.pausesMu.Lock()
	for i, u := range all {
		if r := k.shared.records[u.Target]; stored[i] && r.latest.is(u.order) {
			r.unsaved = false
			k.setRecord(u.Target, r)
		}
	}
	k.announceSaved()
	k.pausesMu.Unlock()
	k.config.Changed()
}

// announceSaved lets Unsaved look again. It needs pausesMu.
func (k *Keeper) announceSaved() {
	close(k.shared.saved)
	k.shared.saved = make(chan struct{})
}

// follow notes what the store has: all orders, or those that have changed.
func (k *Keeper) follow(all []coord.Pause, isAll bool) {
	n := notes{now: time.Now(), begun: map[string]Pause{}, ended: map[string]pauseEnd{}, givenUp: map[string]givenUp{}}
	k.pausesMu.Lock()
	if isAll {
		k.adopt()
		k.noteMissing(all, &n)
	}
	for _, p := range all {
		r := k.shared.records[p.Target]
		if p.Value == nil {
			r = r.drop()
		} else {
			ordered, isGivenUp := r.latest, false
			if r, isGivenUp = r.see(unmarshal(p.Value).onMonotonicClock(n.now), p.Modified, k.shared.author, n.now); isGivenUp {
				n.givenUp[p.Target] = givenUp{ordered, r.latest}
			}
		}
		k.note(p.Target, r, &n)
	}
	if isAll {
		k.wakeShare()
		if k.shared.isKnown = true; !k.shared.wasKnown {
			k.shared.wasKnown = true
			close(k.shared.known)
		}
	}
	if n.isChanged {
		k.announceSaved()
	}
	k.pausesMu.Unlock()
	k.logGivenUp(n.givenUp)
	k.logBegun(n.begun)
	k.logEnded(n.ended)
	if n.isChanged {
		k.notify()
	}
}

// adopt makes orders of the pauses of shared targets that have none: those of the state file of an engine that was in no
// fleet. It needs pausesMu.
func (k *Keeper) adopt() {
	for target, p := range k.paused {
		if k.shared.records[target].latest.Number == 0 {
			k.give(target, Order{Pause: p})
		}
	}
}

// noteMissing notes of which targets the store has no order. It needs pausesMu.
func (k *Keeper) noteMissing(all []coord.Pause, n *notes) {
	missing := maps.Clone(k.shared.records)
	for _, p := range all {
		delete(missing, p.Target)
	}
	for target, r := range missing {
		if k.config.IsShared(target) {
			r = r.miss()
		} else {
			r = r.drop()
		}
		k.note(target, r, n)
	}
}

// notes collects what follow has changed.
type notes struct {
	now       time.Time
	begun     map[string]Pause
	ended     map[string]pauseEnd
	givenUp   map[string]givenUp
	isChanged bool // also what is to be stored
}

// givenUp is an order that was not stored, for one of another engine.
type givenUp struct{ ordered, other Order }

// note replaces what is known of a target, and does what the latest order says. It needs pausesMu.
func (k *Keeper) note(target string, r record, n *notes) {
	o, was := r.latest, k.shared.records[target]
	if was.unsaved != r.unsaved {
		n.isChanged = true
	}
	k.setRecord(target, r)
	if o.Number == 0 && was.latest.Number == 0 { // a pause is of this engine only
		return
	}
	before, wasPaused := k.paused[target]
	switch isPaused := o.isInForce(n.now); {
	case isPaused && !(wasPaused && before.equal(o.Pause)):
		k.paused[target], n.begun[target], n.isChanged = o.Pause, o.Pause, true
		k.tell(target)
	case wasPaused && !isPaused:
		n.ended[target], n.isChanged = pauseEnd{Pause: before}, true
		if o.IsEnd {
			n.ended[target] = pauseEnd{before, o.By}
		}
		k.end(target)
	}
}

// unfollow says that changes of pauses may be missed from now on.
func (k *Keeper) unfollow() {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	k.shared.isKnown = false
}

// logGivenUp logs orders that were not stored, by target.
func (k *Keeper) logGivenUp(all map[string]givenUp) {
	for _, target := range named(k.config.Logger.Warn, all, "orders about targets given up, other engines have stored longer pauses meanwhile") {
		g := all[target]
		k.config.Logger.Warn("order about a target given up, another engine has stored a longer pause meanwhile",
			"target", target, "by", g.ordered.By, "other_by", g.other.By, "until", untilText(g.other.Until))
	}
}

// logBegun logs pauses that other engines have stored, by target.
func (k *Keeper) logBegun(pauses map[string]Pause) {
	for _, target := range named(k.config.Logger.Info, pauses, "targets paused") {
		p := pauses[target]
		k.config.Logger.Info("target paused", "target", target, "by", p.By, "why", p.Why, "until", untilText(p.Until))
	}
}

// equal reports whether two are the same pause: times that were stored have lost the reading of the monotonic clock.
func (p Pause) equal(q Pause) bool {
	return p.At.Equal(q.At) && p.Until.Equal(q.Until) && p.By == q.By && p.Why == q.Why
}
