package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Controller.
type Config struct {
	Engine *engine.Engine // required; gets a Report for each instance, and has the probes' verdicts
	Budget Budget         `hcl:"restart_budget,object" doc:"limits the restarts by startup and liveness probes, so that an overloaded network or machine does not restart everything at once"`
	Logger *slog.Logger   // one Info line when an instance starts, fails, no longer fails or exits; default: none

	// Redact replaces what must not be shown in the outputs of instances. Default: nothing.
	Redact func(text string) string

	// Changed is called when the Memory of a target may have changed, and BudgetChanged
	// when what Spent returns has. They must not block. Default: none.
	Changed       func(target string)
	BudgetChanged func()
}

// Controller runs the instances of units, and restarts them. Its methods are safe
// for concurrent use by multiple goroutines. A unit with a driver costs one
// goroutine, one more while an instance runs, and what its driver needs; a unit
// without a driver costs none.
type Controller struct {
	config  Config
	forced  context.Context // done: kill all instances
	force   context.CancelFunc
	changed chan struct{} // capacity 1: units or supervisors have changed, reconcile

	retrying atomic.Int64 // supervisors that try again what this machine lacked something for

	unitsMu     sync.Mutex      // guards the fields below
	running     bool            // Run was called
	stopping    bool            // Run is about to return: no unit is wanted
	killing     bool            // Kill was called: no instance is left running but External ones
	units       map[string]Unit // by target, with defaults
	driven      int             // number of units with a driver
	supervisors map[string]*supervisor
	spent       account
	restored    map[string]restored // by target, until a supervisor takes it
	applies     int                 // number of calls of Apply and Change
	static      staticUnits
}

// Check returns what is wrong with the budget: probe.FieldErrors, or nil.
func (c Config) Check() error { return c.Budget.check() }

// New returns a Controller without units, or a *probe.FieldError about the
// budget.
func New(c Config) (*Controller, error) {
	if c.Engine == nil {
		return nil, errors.New("restart: Config.Engine is nil")
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Redact == nil {
		c.Redact = func(text string) string { return text }
	}
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	if c.BudgetChanged == nil {
		c.BudgetChanged = func() {}
	}
	r := &Controller{
		config:      c,
		changed:     make(chan struct{}, 1),
		supervisors: map[string]*supervisor{},
		static:      staticUnits{since: map[string]time.Time{}},
		restored:    map[string]restored{},
	}
	r.forced, r.force = context.WithCancel(context.Background())
	return r, nil
}

// Apply replaces the units, by the names of their targets: all of them, or none
// when one is invalid. It returns at once; Run does the work. Apply may be called
// before Run.
//
// The instance of a removed unit is reported as terminating, and is terminated
// within its grace period. So is an instance whose driver has changed; the next one
// starts as soon as it has terminated. Any other change takes effect at once, and
// the instance keeps running.
//
// The errors are *probe.FieldErrors that name the target, joined. Once Run has
// returned Apply has no effect.
func (c *Controller) Apply(units map[string]Unit) error {
	complete, err := withDefaults(units)
	if err != nil {
		return err
	}
	c.unitsMu.Lock()
	c.units, c.driven, c.static.repeatAll = complete, 0, true
	c.applies++
	for _, u := range complete {
		if u.Driver != nil {
			c.driven++
		}
	}
	c.unitsMu.Unlock()
	notify(c.changed)
	return nil
}

// Change replaces some units and removes others, as an Apply that has all other units
// as they are would. A name that is not that of a unit is not removed.
func (c *Controller) Change(units map[string]Unit, remove []string) error {
	complete, err := withDefaults(units)
	if err != nil {
		return err
	}
	c.unitsMu.Lock()
	c.applies++
	if c.units == nil {
		c.units = map[string]Unit{}
	}
	for _, target := range remove {
		c.driven -= one(c.units[target].Driver != nil)
		delete(c.units, target)
	}
	for target, u := range complete {
		c.driven += one(u.Driver != nil) - one(c.units[target].Driver != nil)
		c.units[target] = u
		c.static.repeat = append(c.static.repeat, target)
	}
	c.unitsMu.Unlock()
	notify(c.changed)
	return nil
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// withDefaults returns valid units with their defaults.
func withDefaults(units map[string]Unit) (map[string]Unit, error) {
	if err := CheckUnits(units); err != nil {
		return nil, err
	}
	complete := make(map[string]Unit, len(units))
	for target, u := range units {
		complete[target] = u.WithDefaults()
	}
	return complete, nil
}

// CheckUnits returns the errors for which Apply and Change refuse units, or nil.
func CheckUnits(units map[string]Unit) error {
	var errs []error
	for _, target := range slices.Sorted(maps.Keys(units)) {
		if err := (probe.ID{Target: target, Kind: probe.Liveness}).Check(); err != nil {
			errs = append(errs, fmt.Errorf("target %q: %w", target, err))
		}
		if err := units[target].Check(); err != nil {
			errs = append(errs, fmt.Errorf("target %q: %w", target, err))
		}
	}
	return errors.Join(errs...)
}

// Kill kills all instances that were not released, and starts no others. A Run that is waiting for
// instances to terminate within their grace periods returns as soon as they have; a
// Run whose ctx is not done returns too.
func (c *Controller) Kill() {
	c.unitsMu.Lock()
	c.killing = true
	c.unitsMu.Unlock()
	c.stop()
	c.force()
}

// Run runs the units' instances until ctx is done. Then it reports all instances as
// terminating, which stops their startup and liveness probes while readiness goes
// on, and terminates all of them at the same time, each within its grace period;
// Kill cuts that short. Run returns nil when all instances have terminated and all
// goroutines that it started have returned. The engine should run until then.
// Instances of an External driver, those of an Outliving one, and units without a driver
// are left running.
//
// A second call returns an error at once.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.start(); err != nil {
		return err
	}
	var supervisors, watcher sync.WaitGroup
	watching, stopWatching := context.WithCancel(ctx)
	watcher.Go(func() { c.watchVerdicts(watching) })
	for ctx.Err() == nil && c.forced.Err() == nil {
		c.reconcile(&supervisors)
		select {
		case <-c.changed:
		case <-ctx.Done():
		case <-c.forced.Done():
		}
	}
	c.stop()
	stopWatching()
	watcher.Wait()
	supervisors.Wait()
	return nil
}

func (c *Controller) start() error {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	if c.running {
		return errors.New("restart: Run was called before")
	}
	c.running = true
	return nil
}

// stop makes every supervisor end its instance.
func (c *Controller) stop() {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	c.stopping = true
	for _, s := range c.supervisors {
		notify(s.wake)
	}
}

// watchVerdicts wakes the supervisor of each target with a changed startup or
// liveness verdict.
func (c *Controller) watchVerdicts(ctx context.Context) {
	changes := c.config.Engine.Subscribe()
	defer changes.Close()
	for {
		status, err := changes.Next(ctx)
		if err != nil {
			return
		}
		if status.ID.Kind == probe.Readiness {
			continue
		}
		c.unitsMu.Lock()
		if s := c.supervisors[status.ID.Target]; s != nil {
			notify(s.wake)
		}
		c.unitsMu.Unlock()
	}
}

// reconcile starts a supervisor for each unit with a driver that has none, wakes
// the others, and reports the units without a driver.
func (c *Controller) reconcile(running *sync.WaitGroup) {
	for _, in := range c.superviseAll(running) {
		c.config.Engine.Report(in)
	}
}

// appliedSince reports whether Apply or Change was called since the last call with the
// same counter.
func (c *Controller) appliedSince(counter *int) bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	before := *counter
	*counter = c.applies
	return before != c.applies
}

// superviseAll starts and wakes supervisors, and returns the reports of units without a
// driver.
func (c *Controller) superviseAll(running *sync.WaitGroup) []probe.Instance {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for _, s := range c.supervisors {
		notify(s.wake)
	}
	for target, u := range c.units {
		if u.Driver != nil && c.supervisors[target] == nil {
			s := c.newSupervisor(target)
			c.supervisors[target] = s
			running.Go(s.run)
		}
	}
	return c.static.reports(c.units, c.supervisors, time.Now())
}

// Driver returns the driver of a target's unit, or nil if it has none.
func (c *Controller) Driver(target string) Driver {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.units[target].Driver
}

// unit returns the unit of a target, and whether there is one to supervise.
func (c *Controller) unit(target string) (Unit, bool) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	u := c.units[target]
	return u, u.Driver != nil && !c.stopping
}

// isStopping reports whether Run is about to return.
func (c *Controller) isStopping() bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.stopping
}

// releases reports whether instances that outlive the engine are left running now.
func (c *Controller) releases() bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.stopping && !c.killing
}

// release removes a target's supervisor, and reports whether the supervisor may
// end: not when Apply has brought a unit for it meanwhile.
func (c *Controller) release(target string) bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	if c.units[target].Driver != nil && !c.stopping {
		return false
	}
	if !c.stopping { // what it remembers is for the next engine
		delete(c.supervisors, target)
	}
	notify(c.changed)
	return true
}

// spend takes one restart from the budget, or returns when to ask again.
func (c *Controller) spend(now time.Time) (again time.Time, ok bool) {
	c.unitsMu.Lock()
	c.spent, again, ok = c.spent.take(c.config.Budget, c.driven, now)
	c.unitsMu.Unlock()
	if ok {
		c.config.BudgetChanged()
	}
	return again, ok
}

// notify sends to a channel of capacity 1, unless it is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
