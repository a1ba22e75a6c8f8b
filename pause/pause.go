// Package pause keeps which targets are paused, by whom and until when, and which are under maintenance. It reports them to
// the engine, which takes no action on these targets meanwhile: see engine.Admin.Pause.
//
//	pause.go        pauses by operators
//	shared.go       pauses of shared targets, in the store of a fleet
//	maintenance.go  scheduled maintenances
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

// Pause is a pause of a target: who paused it, when, why, and until when. It can be marshaled as JSON.
type Pause struct {
	At    time.Time `json:"at"`
	By    string    `json:"by"`
	Why   string    `json:"why,omitempty"`
	Until time.Time `json:"until,omitzero"` // zero: until Unpause
}

// Shifted returns p with its times moved by d, for use after the wall clock was set.
func (p Pause) Shifted(d time.Duration) Pause {
	return p.at(func(t time.Time) time.Time { return t.Add(d) })
}

// at returns p with its times mapped by other.
func (p Pause) at(other func(time.Time) time.Time) Pause {
	if p.At = other(p.At); !p.Until.IsZero() {
		p.Until = other(p.Until)
	}
	return p
}

// hasEnded reports whether the pause has expired.
func (p Pause) hasEnded(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// detail describes who paused the target, and why.
func (p Pause) detail() string {
	if p.Why == "" {
		return "by " + p.By
	}
	return "by " + p.By + ": " + p.Why
}

// Config configures a Keeper.
type Config struct {
	Engine *engine.Engine // required
	Others *engine.Engine // lists targets that other engines probe, and gets the same pauses as Engine; default: none

	// Coordinator stores the pauses of the targets for which IsShared returns true, for all engines of a fleet: see
	// Keeper.Share. Default: no shared pauses.
	Coordinator *coord.Coordinator
	IsShared    func(target string) bool // must be safe for concurrent use by multiple goroutines

	Logger *slog.Logger // gets an Info line when a pause of a target or group begins or ends; default: no log

	// Changed is called when the result of Pauses may have changed. It must not block. Default: none.
	Changed func()
}

// Keeper keeps which targets are paused, and which are under maintenance. A pause takes precedence over the
// maintenance of the same target. Create a Keeper with New, and call Run once. Its methods are safe for
// concurrent use by multiple goroutines.
type Keeper struct {
	config    Config
	wallClock func() time.Time // the wall clock, which may be set at any time
	wake      wake.Signal      // makes Run recompute its wait

	pausesMu   sync.Mutex // guards all below; the engine is updated while it is held
	paused     map[string]Pause
	maintained []*maintained                // sorted by name
	upcoming   map[string]map[string]string // labels of targets that the engine may get at any time
	under      map[string]*maintained       // by target: the maintenance that applies to it now
	shared     shared
}

// ErrNoTarget is the error of Keeper.Pause and Unpause if none of the targets exists.
var ErrNoTarget = errors.New("there is no such target")

// New returns a Keeper without pauses.
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

// Result is the result of Keeper.Pause or Unpause.
type Result struct {
	Targets int // number of the targets that exist
	Changed int // number of these that were not in the requested state already
	Local   int // number of shared targets that only this engine pauses, for at most localPause, since the store is unavailable
}

// Pause pauses a target, or the targets of a group, replacing any Pauses that they have. It ignores targets that do not
// exist, and returns ErrNoTarget if none exists. It pauses shared targets in all engines of the fleet. If the store does
// not respond before ctx is done, it pauses them in this engine only, and returns an error if there are Pauses in the store
// that it had to leave as they are.
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
		k.config.Logger.Warn("targets paused on this engine only: the pause cannot be stored for the others", "targets", len(local), "for", localPause, "error", err)
		if kept := len(shared) - len(local); kept > 0 {
			return r, fmt.Errorf("%d pauses are unchanged: the new ones cannot be stored for the other engines: %w", kept, err)
		}
	}
	logged := own // apply logs each shared target
	if group != "" {
		logged = slices.Concat(own, shared)
	}
	k.logOrder("paused", group, logged, "by", p.By, "why", p.Why, "until", untilText(p.Until))
	return r, nil
}

// atMost returns p limited to a duration of d.
func (p Pause) atMost(d time.Duration) Pause {
	if end := p.At.Add(d); p.Until.IsZero() || p.Until.After(end) {
		p.Until = end
	}
	return p
}

// notStored returns the targets that have no pause in the store.
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

// Unpause ends the Pauses of a target, or of the targets of a group. If the store does not respond, it returns an error,
// and of the shared targets only those resume that this engine alone has paused. It returns ErrNoTarget if none of the
// targets exists, and an error for a single target that is not paused but under maintenance.
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
		maintained = fmt.Errorf("the target is under maintenance until %s (%s): to end it, change the maintenance block and reload",
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
		return r, fmt.Errorf("the pause is unchanged: its removal cannot be stored for the other engines: %w", err)
	}
	if r.Changed = len(own) + len(stored); r.Changed > 0 {
		k.logOrder("no longer paused", group, append(own, stored...), "by", by)
	} else if maintained != nil {
		return r, maintained
	}
	return r, nil
}

// divide counts the existing targets in r, and returns those whose Pauses are to change, by where the Pauses are kept: own
// by this engine, shared in the store. A shared target is returned in shared if its Pause begins, or is in the store.
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

// logOrder logs that an operator has paused or unpaused targets.
func (k *Keeper) logOrder(what, group string, targets []string, attrs ...any) {
	switch {
	case len(targets) == 0:
	case group != "":
		k.config.Logger.Info("targets of a group "+what, append([]any{"group", group, "targets", len(targets)}, attrs...)...)
	default:
		k.config.Logger.Info("target "+what, append([]any{"target", targets[0]}, attrs...)...)
	}
}

// end ends the Pause of a target, if any. It needs pausesMu.
func (k *Keeper) end(target string) {
	if _, paused := k.paused[target]; paused {
		delete(k.paused, target)
		k.tell(target)
	}
}

// notify calls Config.Changed and wakes Run.
func (k *Keeper) notify() {
	k.config.Changed()
	k.wake.Set()
}

// forEngine returns the pause in the form that the engine takes.
func (p Pause) forEngine() engine.Pause {
	return engine.Pause{Reason: probe.ReasonPaused, Detail: p.detail(), Since: p.At, Until: p.Until}
}

func untilText(until time.Time) string {
	if until.IsZero() {
		return "unpaused"
	}
	return until.UTC().Format(time.RFC3339)
}

// Keep discards the pauses of targets for which exists returns false: a target that is removed and added again is no longer
// paused. Call it when targets may have been removed. A pause in the store is kept until the owner of the target deletes
// it, since other engines may already have targets that this engine does not have yet.
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

// Pauses returns the pauses by target, except those in the store. Their times are relative to the current wall clock.
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

// onWallClock returns p with its times converted to the current wall clock, which may have been set since.
// The remaining time is preserved.
func (p Pause) onWallClock(now time.Time) Pause {
	return p.at(func(t time.Time) time.Time { return now.Round(0).Add(t.Sub(now)) })
}

// Restore restores the pauses of an earlier engine, except those that have expired meanwhile. Call it with the result of
// Pauses before the targets exist, so that no reader sees a target without its pause, and call Keep afterwards.
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

// onMonotonicClock returns p with times on the monotonic clock, which does not change when the wall clock is set.
func (p Pause) onMonotonicClock(now time.Time) Pause {
	return p.at(func(t time.Time) time.Time { return now.Add(t.Sub(now)) })
}

// clockInterval is how often Run checks whether the wall clock was set. A maintenance begins
// or ends at most that much late.
const clockInterval = 30 * time.Second

// Run ends expired pauses, and begins and ends maintenances, until ctx is done, and returns nil. The duration of a pause
// does not depend on the wall clock; if that is set, Run calls Changed. Maintenances follow the wall clock.
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

// endDue ends expired pauses, and reports whether there were any.
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

// maxLines is the maximum number of log lines about pauses that begin or end at the same time, such as those of a group.
const maxLines = 10

// logBegun logs pauses received from the store, by target.
func (k *Keeper) logBegun(pauses map[string]Pause) { k.logEach("paused", "by", pauses) }

// logEnded logs pauses that have ended, by target.
func (k *Keeper) logEnded(pauses map[string]Pause) {
	k.logEach("no longer paused", "paused_by", pauses)
}

// logEach logs each pause, or the first maxLines and the total number if there are more.
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

// maintain begins and ends maintenances that are due.
func (k *Keeper) maintain() {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	if k.lookAtMaintenances() {
		k.applyMaintenances()
	}
}

// next returns how long Run may wait, and whether it has anything to wait for: a pause or a maintenance.
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
