package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// world has the targets that engines probe and restart. Each target runs one instance at a time.
type world struct {
	worldMu   sync.Mutex // guards all below
	instances map[string]*instance
	ended     map[string]int         // by instance: how often it was terminated
	asked     map[string]int         // by instance: how often an engine requested its termination
	log       map[string][]time.Time // by target: when its instances were terminated
	acting    map[string]int         // by instance: lasting drivers that are terminating it
	overlaps  []string               // instances that two drivers terminated at the same time
}

type instance struct {
	id        string
	n         int
	sick      bool
	isChronic bool // later instances are sick, too
	healed    time.Time
	gone      chan struct{}
	lag       time.Duration // how long it takes to terminate
}

func newWorld() *world {
	return &world{
		instances: map[string]*instance{}, ended: map[string]int{}, asked: map[string]int{}, log: map[string][]time.Time{},
		acting: map[string]int{},
	}
}

func (w *world) running(target string) *instance {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.get(target)
}

func (w *world) get(target string) *instance {
	if w.instances[target] == nil {
		w.instances[target] = &instance{id: target + "#0", gone: make(chan struct{})}
	}
	return w.instances[target]
}

func (w *world) infect(target string, lag time.Duration) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.get(target).sick, w.get(target).lag = true, lag
}

// heal heals the instance of a target.
func (w *world) heal(target string) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.get(target).heal()
}

// healAll heals all running instances and their successors.
func (w *world) healAll() {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	for _, in := range w.instances {
		in.isChronic = false
		in.heal()
	}
}

func (in *instance) heal() {
	if in.sick {
		in.sick, in.healed = false, time.Now()
	}
}

// wellFor returns how long the running instance of a target has been well since it was healed; 0 if it is not the
// instance id, or was not healed.
func (w *world) wellFor(target, id string) time.Duration {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	in := w.get(target)
	if in.id != id || in.sick || in.healed.IsZero() {
		return 0
	}
	return time.Since(in.healed)
}

// cripple makes all instances of a target sick, and makes them take lag to terminate.
func (w *world) cripple(target string, lag time.Duration) {
	w.infect(target, lag)
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.get(target).isChronic = true
}

// restarts returns when the instances of a target were terminated.
func (w *world) restarts(target string) []time.Time {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return slices.Clone(w.log[target])
}

func (w *world) isSick(target string) bool {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.get(target).sick
}

func (w *world) counts(id string) (asked, ended int) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.asked[id], w.ended[id]
}

// end terminates an instance if it is running.
func (w *world) end(target, id string) {
	w.worldMu.Lock()
	w.asked[id]++
	lag := w.get(target).lag
	w.worldMu.Unlock()
	time.AfterFunc(lag, func() { w.replace(target, id) })
}

// replace starts the next instance in place of one, if that is running.
func (w *world) replace(target, id string) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	in := w.get(target)
	if in.id != id {
		return
	}
	w.ended[id]++
	w.log[target] = append(w.log[target], time.Now())
	close(in.gone)
	next := &instance{id: fmt.Sprintf("%s#%d", target, in.n+1), n: in.n + 1, gone: make(chan struct{})}
	if in.isChronic {
		next.sick, next.isChronic, next.lag = true, true, in.lag
	}
	w.instances[target] = next
}

// enter records that a driver begins to terminate an instance, and returns how long that takes.
func (w *world) enter(target, id string) (lag time.Duration) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.asked[id]++
	if w.acting[id]++; w.acting[id] > 1 {
		w.overlaps = append(w.overlaps, id)
	}
	return w.get(target).lag
}

func (w *world) exit(id string) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.acting[id]--
}

// isActing reports whether a lasting driver is terminating an instance.
func (w *world) isActing(id string) bool {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.acting[id] > 0
}

// overlapping returns the instances that two drivers have terminated at the same time.
func (w *world) overlapping() []string {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return slices.Clone(w.overlaps)
}

// driver is one engine's driver of a target.
type driver struct {
	world  *world
	target string
	asks   func(id string) // called before an instance is terminated, if it is set
}

func (driver) SetFailed(func(error)) {}

func (d driver) Resume(id string) bool { return d.world.running(d.target).id == id }

func (d driver) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	in := d.world.running(d.target)
	began(restart.Begun{ID: in.id})
	for {
		select {
		case <-end:
			if d.asks != nil {
				d.asks(in.id)
			}
			d.world.end(d.target, in.id)
		case <-in.gone:
			return restart.Exit{Code: 143}
		case <-ctx.Done():
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		}
	}
}

// lasting is a driver that terminates instances inside its engine, like one that runs a command: that takes time, and is
// interrupted when the driver is stopped.
type lasting struct {
	driver
	lacks func() bool // reports whether it cannot begin now, for a shortage
}

func (d lasting) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	in := d.world.running(d.target)
	began(restart.Begun{ID: in.id})
	stopped := func() restart.Exit { return restart.Exit{Code: -1, Err: context.Cause(ctx)} }
	select {
	case <-end:
	case <-in.gone:
		return restart.Exit{Code: 143}
	case <-ctx.Done():
		return stopped()
	}
	if d.lacks() {
		return restart.Exit{Code: -1, Err: restart.ErrShortage}
	}
	d.asks(in.id)
	took := time.NewTimer(d.world.enter(d.target, in.id))
	defer took.Stop()
	defer d.world.exit(in.id)
	select {
	case <-took.C:
		d.asks(in.id)
		d.world.replace(d.target, in.id)
		return restart.Exit{}
	case <-in.gone: // requested by an engine that was suspended afterwards
		return restart.Exit{Code: 143}
	case <-ctx.Done():
		return stopped()
	}
}

// targets returns n targets of a fleet: every other has a driver and a liveness probe, and all have a readiness probe
// that fails while the target is sick.
func (w *world) targets(n int) fleet.Targets {
	t := fleet.Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}}
	for i := range n {
		target := fmt.Sprintf("shop/web-%d", i)
		p := probe.Probe{
			Rule: probe.Rule{Period: time.Second, FailureThreshold: 2}, HandlerName: "test", Revision: "1",
			Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
				if w.isSick(target) {
					return probe.Fail("test.sick", "since %v", time.Now()) // each attempt has a different detail
				}
				return probe.Result{Outcome: probe.Success}
			}),
		}
		t.Probes[probe.ID{Target: target, Kind: probe.Readiness}] = p
		var u restart.Unit
		if i%2 == 0 {
			u = restart.Unit{Driver: driver{world: w, target: target}, Revision: "1"}
			t.Probes[probe.ID{Target: target, Kind: probe.Liveness}] = p
		}
		t.Units[target] = u
	}
	return t
}
