// Package pause keeps which targets are paused, by whom and until when, and which are under
// maintenance, and tells the engine, which does nothing about them meanwhile: see engine.Admin.Pause.
//
//	pause.go        pauses by operators
//	shared.go       pauses of targets that engines share, in the store of a fleet
//	maintenance.go  maintenances by the calendar
package pause

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/internal/cron"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Pause says who has paused a target, when, why, and until when. It can be written as JSON.
type Pause struct {
	At    time.Time `json:"at"`
	By    string    `json:"by"`
	Why   string    `json:"why,omitempty"`
	Until time.Time `json:"until,omitzero"` // zero: until Unpause
}

// Shifted returns p with its times moved by d, after the wall clock was set.
func (p Pause) Shifted(d time.Duration) Pause {
	return p.at(func(t time.Time) time.Time { return t.Add(d) })
}

// at returns p with other times.
func (p Pause) at(other func(time.Time) time.Time) Pause {
	if p.At = other(p.At); !p.Until.IsZero() {
		p.Until = other(p.Until)
	}
	return p
}

// hasEnded reports whether the pause has ended by itself.
func (p Pause) hasEnded(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// detail says who has paused a target, and why.
func (p Pause) detail() string {
	if p.Why == "" {
		return "by " + p.By
	}
	return "by " + p.By + ": " + p.Why
}

// Config configures a Keeper.
type Config struct {
	Engine *engine.Engine // required
	Others *engine.Engine // shows targets that other engines probe, and is told what Engine is; default: none

	// Coordinator has the pauses of the targets for which IsShared returns true, for all engines of a fleet: see Keeper.Share.
	// Default: none are shared.
	Coordinator *coord.Coordinator
	IsShared    func(target string) bool // must be safe for concurrent use by multiple goroutines

	Logger *slog.Logger // an Info line when a target or a group is paused, and when that ends; default: none

	// Changed is called when what Pauses returns may have changed. It must not block. Default: none.
	Changed func()
}

// Keeper keeps which targets are paused, and which are under maintenance. A pause goes before the
// maintenance of the same target. Create it with New, and call Run once. Its methods are safe
// for concurrent use by multiple goroutines.
type Keeper struct {
	config    Config
	wallClock func() time.Time // what it shows may be set at any time
	wake      wake.Signal      // Run may have to wait for something else

	pausesMu   sync.Mutex // guards all below; the engine is told while it is held
	paused     map[string]Pause
	maintained []*maintained                // sorted by name
	upcoming   map[string]map[string]string // the labels of targets that the engine may get at any time
	under      map[string]*maintained       // the maintenance by which each target is under maintenance now
	shared     shared
}

// ErrNoTarget is the error of Keeper.Pause and Unpause if there is no such target.
var ErrNoTarget = errors.New("there is no such target")

// New returns a Keeper by which no target is paused.
func New(c Config) *Keeper {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.IsShared == nil || c.Coordinator == nil {
		c.IsShared = func(string) bool { return false }
	}
	k := &Keeper{config: c, wallClock: func() time.Time { return time.Now().Round(0) }, wake: wake.New(), paused: map[string]Pause{}}
	k.follow()
	return k
}

// Result is what has become of Keeper.Pause or Unpause.
type Result struct {
	Targets int // how many of the targets exist
	Changed int // how many of these were not like that already
	Local   int // how many shared ones are paused by this engine only, for localPause at most, since the store does not answer
}

// Pause pauses a target, or the targets of a group, or replaces the Pauses that they have. Targets that do not exist
// are left out. Shared targets are paused in all engines of the fleet, or in this one only if the store does not answer
// before ctx is done. The error is ErrNoTarget if none of the targets exists. If the store does not answer, Pauses that it
// has stay as they are, which is an error, too.
func (k *Keeper) Pause(ctx context.Context, group string, targets []string, p Pause) (r Result, err error) {
	p = p.bounded()
	differs := func(before Pause, is bool) bool { return !is || !before.Until.Equal(p.Until) || before.Why != p.Why }
	own, shared := k.divide(targets, true, differs, &r)
	if r.Targets == 0 {
		return r, ErrNoTarget
	}
	r.Changed = len(own) + len(shared)
	k.set(own, p)
	if err := k.store(ctx, &p, shared); err != nil && !errors.Is(err, errNotSeen) {
		local := k.notStored(shared)
		k.set(local, p.atMost(localPause))
		r.Local, r.Changed = len(local), len(own)+len(local)
		k.config.Logger.Warn("targets paused by this engine only: the pause cannot be stored for the other ones", "targets", len(local), "for", localPause, "error", err)
		if kept := len(shared) - len(local); kept > 0 {
			return r, fmt.Errorf("%d pauses stay as they are, since they cannot be stored for the other engines: %w", kept, err)
		}
	}
	logged := own // of shared targets apply logs each
	if group != "" {
		logged = slices.Concat(own, shared)
	}
	k.logOrder("paused", group, logged, "by", p.By, "why", p.Why, "until", untilText(p.Until))
	return r, nil
}

// atMost returns p with an end that is not later than d after its begin.
func (p Pause) atMost(d time.Duration) Pause {
	if end := p.At.Add(d); p.Until.IsZero() || p.Until.After(end) {
		p.Until = end
	}
	return p
}

// notStored returns those of the targets that the store has no pause of.
func (k *Keeper) notStored(targets []string) []string {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	return slices.DeleteFunc(slices.Clone(targets), func(target string) bool { return k.shared.stored[target] != 0 })
}

// set pauses targets in this engine.
func (k *Keeper) set(targets []string, p Pause) {
	if len(targets) == 0 {
		return
	}
	k.pausesMu.Lock()
	for _, target := range targets {
		k.paused[target] = p
		k.tell(target)
	}
	k.pausesMu.Unlock()
	k.notify()
}

// Unpause ends the Pauses of targets, as Pause begins them. It has no effect on shared targets if the store does not
// answer, which is an error, apart from those that only this engine has paused. The error is ErrNoTarget if none of the targets
// exists. A single target that is not paused, but under maintenance, is an error, too.
func (k *Keeper) Unpause(ctx context.Context, group string, targets []string, by string) (r Result, err error) {
	own, stored := k.divide(targets, false, func(_ Pause, is bool) bool { return is }, &r)
	if r.Targets == 0 {
		return r, ErrNoTarget
	}
	k.pausesMu.Lock()
	for _, target := range own {
		k.end(target)
	}
	var maintained error
	if under := k.under[targets[0]]; under != nil && group == "" {
		is := under.forEngine()
		maintained = fmt.Errorf("the target is under maintenance until %s, as the configuration says (%s): to end that, change the maintenance block and reload",
			is.Until.Format(time.RFC3339), is.Detail)
	}
	k.pausesMu.Unlock()
	if len(own) > 0 {
		k.notify()
	}
	switch err := k.store(ctx, nil, stored); {
	case errors.Is(err, errNotSeen):
		return r, err
	case err != nil:
		return r, fmt.Errorf("the pause stays, since its end cannot be stored for the other engines: %w", err)
	}
	if r.Changed = len(own) + len(stored); r.Changed > 0 {
		k.logOrder("no longer paused", group, append(own, stored...), "by", by)
	} else if maintained != nil {
		return r, maintained
	}
	return r, nil
}

// divide returns those of the targets that exist, and whose Pauses are to change, by where these are. It counts the targets
// that exist. A shared target is one of the store if its Pause begins, or the store has it.
func (k *Keeper) divide(targets []string, begins bool, mayChange func(before Pause, is bool) bool, r *Result) (own, shared []string) {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	for _, target := range targets {
		before, isPaused := k.paused[target]
		if _, exists := k.config.Engine.Target(target); !exists && !isPaused && !k.config.IsShared(target) {
			continue
		}
		r.Targets++
		_, isStored := k.shared.stored[target]
		switch {
		case !mayChange(before, isPaused):
		case isStored || begins && k.config.IsShared(target):
			shared = append(shared, target)
		default:
			own = append(own, target)
		}
	}
	return own, shared
}

// logOrder logs that an operator has paused targets, or has ended that.
func (k *Keeper) logOrder(what, group string, targets []string, attrs ...any) {
	switch {
	case len(targets) == 0:
	case group != "":
		k.config.Logger.Info("targets of a group "+what, append([]any{"group", group, "targets", len(targets)}, attrs...)...)
	default:
		k.config.Logger.Info("target "+what, append([]any{"target", targets[0]}, attrs...)...)
	}
}

// end ends the Pause of a target, if it has one. It needs pausesMu.
func (k *Keeper) end(target string) {
	if _, paused := k.paused[target]; paused {
		delete(k.paused, target)
		k.tell(target)
	}
}

// notify reports that the pauses have changed, and wakes Run.
func (k *Keeper) notify() {
	k.config.Changed()
	k.wake.Set()
}

// forEngine returns the pause as the engine has it.
func (p Pause) forEngine() engine.Pause {
	return engine.Pause{Reason: probe.ReasonPaused, Detail: p.detail(), Since: p.At, Until: p.Until}
}

func untilText(until time.Time) string {
	if until.IsZero() {
		return "unpaused"
	}
	return until.UTC().Format(time.RFC3339)
}

// Keep forgets the pauses of targets for which exists returns false: one that is removed and added
// again is not paused any more. Call it when targets may have been removed. A pause in the store stays until
// the owner of the target has deleted it: this engine may not have a target yet that others have.
func (k *Keeper) Keep(exists func(target string) bool) {
	k.pausesMu.Lock()
	n := len(k.paused)
	for target := range k.paused {
		if _, isStored := k.shared.stored[target]; !isStored && !exists(target) {
			k.end(target)
		}
	}
	changed := n != len(k.paused)
	k.pausesMu.Unlock()
	if changed {
		k.notify()
	}
}

// Pauses returns the pauses by target, but for those in the store. Their times are on the wall clock as it is now.
func (k *Keeper) Pauses() map[string]Pause {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	now, all := time.Now(), map[string]Pause{}
	for target, p := range k.paused {
		if _, isStored := k.shared.stored[target]; !isStored {
			all[target] = p.onWallClock(now)
		}
	}
	return all
}

// onWallClock returns p with the times that a wall clock shows which may have been set since: the
// time until then is what counts.
func (p Pause) onWallClock(now time.Time) Pause {
	return p.at(func(t time.Time) time.Time { return now.Round(0).Add(t.Sub(now)) })
}

// Restore pauses the targets that were paused when an earlier engine ended, unless that has ended by
// itself meanwhile. Call it with what Pauses has returned, before the targets exist, so that no reader sees them
// without it, and Keep afterwards.
func (k *Keeper) Restore(pauses map[string]Pause) {
	now := time.Now()
	due := map[string]Pause{}
	k.pausesMu.Lock()
	for target, p := range pauses {
		if p = p.onMonotonicClock(now); p.hasEnded(now) {
			due[target] = p
			continue
		}
		k.paused[target] = p
		k.tell(target)
	}
	k.pausesMu.Unlock()
	k.logEnded(due)
}

// onMonotonicClock returns p with times that go on by the monotonic clock, whatever the wall clock is set to.
func (p Pause) onMonotonicClock(now time.Time) Pause {
	return p.at(func(t time.Time) time.Time { return now.Add(t.Sub(now)) })
}

// clockInterval is how often Run looks whether the wall clock was set: a maintenance begins or ends
// that much later at most.
const clockInterval = 30 * time.Second

// Run ends the pauses whose time has come, and begins and ends maintenances, until ctx is done, and
// returns nil. How long a pause lasts does not depend on the wall clock, which may be set meanwhile:
// then Changed is called. Maintenances are by the wall clock as it is.
func (k *Keeper) Run(ctx context.Context) error {
	wait := time.NewTimer(0)
	defer wait.Stop()
	last := time.Now()
	for {
		now := time.Now()
		ended := k.endDue(now)
		if ended || wallShift(last, now).Abs() > time.Second {
			k.config.Changed()
		}
		last = now
		k.maintain()
		if next, any := k.next(now); any {
			wait.Reset(next)
		} else {
			wait.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-wait.C:
		}
	}
}

// wallShift returns by how much the wall clock was set between two times.
func wallShift(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// endDue ends the pauses whose time has come, and reports whether there were any.
func (k *Keeper) endDue(now time.Time) (ended bool) {
	due := map[string]Pause{}
	k.pausesMu.Lock()
	for target, p := range k.paused {
		if p.hasEnded(now) {
			k.end(target)
			due[target] = p
		}
	}
	k.pausesMu.Unlock()
	k.logEnded(due)
	return len(due) > 0
}

// maxLines is how many lines the log gets of pauses that begin or end at the same time, such as those of a
// group.
const maxLines = 10

// logBegun logs pauses that the store has, by target.
func (k *Keeper) logBegun(pauses map[string]Pause) { k.logEach("paused", "by", pauses) }

// logEnded logs pauses that have ended, by target.
func (k *Keeper) logEnded(pauses map[string]Pause) {
	k.logEach("no longer paused", "paused_by", pauses)
}

// logEach logs some pauses each, and how many there are if they are more.
func (k *Keeper) logEach(what, by string, pauses map[string]Pause) {
	targets := slices.Sorted(maps.Keys(pauses))
	if more := len(targets) - maxLines; more > 0 {
		k.config.Logger.Info("targets "+what, "targets", len(targets), "not_named", more)
		targets = targets[:maxLines]
	}
	for _, target := range targets {
		p := pauses[target]
		k.config.Logger.Info("target "+what, "target", target, by, p.By, "why", p.Why, "until", untilText(p.Until))
	}
}

// maintain begins and ends the maintenances whose time has come.
func (k *Keeper) maintain() {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	if k.lookAtMaintenances() {
		k.applyMaintenances()
	}
}

// next returns how long Run may wait, and whether it has to: something is paused, or maintained.
func (k *Keeper) next(now time.Time) (wait time.Duration, any bool) {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	wait = clockInterval
	for _, p := range k.paused {
		if !p.Until.IsZero() {
			wait = min(wait, p.Until.Sub(now))
		}
	}
	wall := k.wallClock()
	for _, m := range k.maintained {
		if m.window == (cron.Window{}) { // none in the next years
			continue
		}
		edge := m.window.From
		if m.active {
			edge = m.window.To
		}
		wait = min(wait, edge.Sub(wall))
	}
	return max(wait, 0), len(k.paused)+len(k.maintained) > 0
}
