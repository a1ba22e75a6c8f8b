// Package pause keeps which targets are paused, by whom and until when, and which are under
// maintenance, and tells the engine, which does nothing about them meanwhile: see engine.Admin.Pause.
//
//	pause.go        pauses by operators
//	order.go        the orders of operators about a target that engines share, and which of them counts
//	shared.go       storing and following these
//	maintenance.go  maintenances by the calendar
package pause

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/cron"
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
	for _, t := range []*time.Time{&p.At, &p.Until} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
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

	// Coordinator shares the pauses of targets for which IsShared returns true with the other engines of a fleet: see
	// Keeper.Share. Default: none are shared.
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
	wake      chan struct{}    // capacity 1: Run may have to wait for something else

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
	name := ""
	if c.Coordinator != nil {
		name = c.Coordinator.Name()
	}
	return &Keeper{
		config: c, wallClock: func() time.Time { return time.Now().Round(0) }, wake: make(chan struct{}, 1),
		paused: map[string]Pause{}, shared: newShared(name),
	}
}

// Pause pauses a target of the engine, or replaces the Pause that it has. It returns false if that
// was the same until the same time. The error is ErrNoTarget.
func (k *Keeper) Pause(target string, p Pause) (changed bool, err error) {
	if changed, err = k.pause(target, p); changed {
		k.config.Logger.Info("target paused", "target", target, "by", p.By, "why", p.Why, "until", untilText(p.Until))
		k.notify()
	}
	return changed, err
}

// PauseAll is Pause for the targets of a group, with one line in the log. It returns how many of them
// the engine has, and for how many there was a change.
func (k *Keeper) PauseAll(group string, targets []string, p Pause) (known, changed int) {
	for _, target := range targets {
		isChanged, err := k.pause(target, p)
		if err == nil {
			known++
		}
		if isChanged {
			changed++
		}
	}
	if changed > 0 {
		k.config.Logger.Info("targets of a group paused", "group", group, "targets", changed, "by", p.By, "why", p.Why, "until", untilText(p.Until))
		k.notify()
	}
	return known, changed
}

// pause is Pause without what follows from it.
func (k *Keeper) pause(target string, p Pause) (changed bool, err error) {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	if !k.exists(target) {
		return false, ErrNoTarget
	}
	p = p.bounded()
	if before, was := k.paused[target]; was && before.Until.Equal(p.Until) && before.Why == p.Why {
		return false, nil
	}
	k.paused[target] = p
	k.tell(target)
	k.give(target, Order{Pause: p})
	return true, nil
}

// exists reports whether there is a target, in this engine or in another one of the fleet.
func (k *Keeper) exists(target string) bool {
	_, exists := k.config.Engine.Target(target)
	return exists || k.config.IsShared(target)
}

// Unpause ends the Pause of a target. It returns false if the target was not paused. The error is
// ErrNoTarget, or a *MaintenanceError if the target is not paused, but under maintenance.
func (k *Keeper) Unpause(target, by string) (changed bool, err error) {
	before, changed, err := k.unpause(target, by)
	if changed {
		k.config.Logger.Info("target no longer paused", "target", target, "by", by, "paused_by", before.By, "paused_at", before.At)
		k.notify()
	}
	return changed, err
}

// UnpauseAll is Unpause for the targets of a group, with one line in the log. It returns how many of
// them the engine has, and how many were paused.
func (k *Keeper) UnpauseAll(group string, targets []string, by string) (known, changed int) {
	for _, target := range targets {
		_, isChanged, err := k.unpause(target, by)
		if !errors.Is(err, ErrNoTarget) {
			known++
		}
		if isChanged {
			changed++
		}
	}
	if changed > 0 {
		k.config.Logger.Info("targets of a group no longer paused", "group", group, "targets", changed, "by", by)
		k.notify()
	}
	return known, changed
}

// unpause is Unpause without what follows from it. Before is the Pause that has ended.
func (k *Keeper) unpause(target, by string) (before Pause, changed bool, err error) {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	before, changed = k.paused[target]
	k.end(target)
	if changed {
		k.give(target, Order{Pause: Pause{At: time.Now(), By: by}.bounded(), IsEnd: true})
		return before, true, nil
	}
	if !k.exists(target) {
		return before, false, ErrNoTarget
	}
	if m := k.under[target]; m != nil {
		maintained := m.forEngine()
		return before, false, &MaintenanceError{maintained.Detail, maintained.Until}
	}
	return before, false, nil
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
	k.wakeUp()
}

// wakeUp makes Run look again.
func (k *Keeper) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
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
// again is not paused any more. Call it when targets may have been removed. What is stored for all engines stays until
// the owner has deleted it: this engine may not have a target yet that others have.
func (k *Keeper) Keep(exists func(target string) bool) {
	k.pausesMu.Lock()
	n := len(k.paused)
	isStored := func(target string) bool { return k.shared.records[target].modified != 0 }
	for target := range k.paused {
		if !exists(target) && !isStored(target) {
			k.end(target)
		}
	}
	maps.DeleteFunc(k.shared.records, func(target string, _ record) bool { return !exists(target) && !isStored(target) })
	changed := n != len(k.paused)
	k.pausesMu.Unlock()
	if changed {
		k.notify()
	}
}

// Orders returns the pauses by target, but for those that are stored for all engines, and the ends of pauses that are not
// stored yet. Their times are on the wall clock as it is now.
func (k *Keeper) Orders() map[string]Order {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	now, all := time.Now(), map[string]Order{}
	for target, p := range k.paused {
		if k.shared.records[target].latest.Number == 0 {
			all[target] = Order{Pause: p.onWallClock(now)}
		}
	}
	for target, r := range k.shared.records {
		if r.unsaved {
			all[target] = r.latest.onWallClock(now)
		}
	}
	return all
}

// onWallClock returns p with the times that a wall clock shows which may have been set since: the
// time until then is what counts.
func (p Pause) onWallClock(now time.Time) Pause {
	wall := now.Round(0)
	p.At = wall.Add(p.At.Sub(now))
	if !p.Until.IsZero() {
		p.Until = wall.Add(p.Until.Sub(now))
	}
	return p
}

// Restore pauses the targets that were paused when an earlier engine ended, unless that has ended by
// itself meanwhile. Call it with what Orders has returned, before the targets exist, so that no reader sees them
// without it, and Keep afterwards.
func (k *Keeper) Restore(orders map[string]Order) {
	now := time.Now()
	due := map[string]pauseEnd{}
	defer func() { k.logEnded(due) }()
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	for target, o := range orders {
		o = o.onMonotonicClock(now)
		if o.Number > 0 {
			k.setRecord(target, record{latest: o, unsaved: true})
		}
		switch {
		case o.IsEnd:
		case o.hasEnded(now):
			due[target] = pauseEnd{Pause: o.Pause}
		default:
			k.paused[target] = o.Pause
			k.tell(target)
		}
	}
}

// onMonotonicClock returns p with times that go on by the monotonic clock, whatever the wall clock is set to.
func (p Pause) onMonotonicClock(now time.Time) Pause {
	p.At = now.Add(p.At.Sub(now))
	if !p.Until.IsZero() {
		p.Until = now.Add(p.Until.Sub(now))
	}
	return p
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
	due := map[string]pauseEnd{}
	k.pausesMu.Lock()
	for target, p := range k.paused {
		if p.hasEnded(now) {
			k.end(target)
			due[target] = pauseEnd{Pause: p}
		}
	}
	k.pausesMu.Unlock()
	k.logEnded(due)
	return len(due) > 0
}

// maxEndLines is how many lines the log gets of pauses that begin or end at the same time, such as those of a
// group.
const maxEndLines = 10

// pauseEnd is a pause that has ended by itself, or by an operator at another engine.
type pauseEnd struct {
	Pause
	by string // the operator; "" for none
}

// logEnded logs pauses that have ended, by target.
func (k *Keeper) logEnded(pauses map[string]pauseEnd) {
	for _, target := range named(k.config.Logger.Info, pauses, "targets no longer paused") {
		p := pauses[target]
		if p.by == "" {
			k.config.Logger.Info("target no longer paused", "target", target, "paused_by", p.By, "until", untilText(p.Until))
		} else {
			k.config.Logger.Info("target no longer paused", "target", target, "by", p.by, "paused_by", p.By, "paused_at", p.At)
		}
	}
}

// named returns the targets that the log names, and logs a message about all if they are not.
func named[T any](log func(message string, args ...any), pauses map[string]T, message string) []string {
	targets := slices.Sorted(maps.Keys(pauses))
	if more := len(targets) - maxEndLines; more > 0 {
		log(message, "targets", len(targets), "not_named", more)
		targets = targets[:maxEndLines]
	}
	return targets
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
