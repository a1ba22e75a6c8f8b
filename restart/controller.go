package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Controller.
type Config struct {
	Engine *engine.Engine // required; gets a Report for each instance, and has the probes' verdicts
	Budget Budget         `hcl:"restart_budget,object" doc:"limits how many targets startup and liveness probes restart, so that an overloaded network or machine, or a wrong configuration, does not restart everything at once; a target that is restarted again within per does not count again. { share = \"100%\", per = \"1m\" } limits nothing" default:"{ share = \"25%\", min = 3, per = \"5m\" }, or none with compatibility = \"kubelet\""`
	Logger *slog.Logger   // one Info line when an instance starts, fails, no longer fails or exits; default: none

	// Redact replaces what must not be shown in the outputs of instances. Default: nothing.
	Redact func(text string) string

	// Changed is called when the Memory of a target may have changed. It must not block. Default: none.
	Changed func(target string)

	// MayAct reports whether this engine may terminate the instance of a target because a probe fails: in a
	// fleet, only the owner of the target may. While it may not, the restart is delayed with the reason
	// restart.ownership, and asked for again every second. It must not block. Default: always.
	MayAct func(target string) bool

	// IsShared reports whether the unit of a target is one that TakeOver brings: Apply does not remove it. It must not
	// block. Default: none is.
	IsShared func(target string) bool

	// Disruptions withholds the restarts of instances because a probe fails, with the reason restart.floor, and is told of those
	// that operators ask for. Default: it withholds none.
	Disruptions DisruptionBudget

	// StoppedChanged is called when what Stopped returns may have changed. It must not block.
	// Default: none.
	StoppedChanged func()
}

// Controller runs the instances of units, and restarts them. Its methods are safe
// for concurrent use by multiple goroutines. A unit with a driver costs one
// goroutine, one more while an instance runs, and what its driver needs; a unit
// without a driver costs none.
type Controller struct {
	config  Config
	forced  context.Context // done: kill all instances
	force   context.CancelFunc
	changed wake.Signal // units or supervisors have changed, reconcile

	retrying atomic.Int64 // supervisors that try again what this machine lacked something for
	brake    *brake

	unitsMu     sync.Mutex      // guards the fields below
	running     bool            // Run was called
	stopping    bool            // Run is about to return: no unit is wanted
	killing     bool            // Kill was called: no instance is left running but External ones
	units       map[string]Unit // those with a driver, by target, with defaults
	static      staticUnits     // all others
	pending     []string        // targets whose units have changed since reconcile has looked at them
	supervisors map[string]*supervisor
	order       startOrder
	serves      startOrder         // the same of Unit.StopAfter, for all units
	stopped     map[string]Stopped // by target: by operators
	requested   map[string]bool    // targets whose restart was requested, and has not begun
	spent       account
	restored    map[string]restored // by target, until a supervisor takes it
	applies     int                 // number of calls of Apply and TakeOver
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
	if c.MayAct == nil {
		c.MayAct = func(string) bool { return true }
	}
	if c.IsShared == nil {
		c.IsShared = func(string) bool { return false }
	}
	if c.Disruptions == nil {
		c.Disruptions = unlimited{}
	}
	if c.StoppedChanged == nil {
		c.StoppedChanged = func() {}
	}
	r := &Controller{
		config:      c,
		changed:     wake.New(),
		brake:       newBrake(c.Engine, c.Logger),
		units:       map[string]Unit{},
		static:      newStaticUnits(),
		supervisors: map[string]*supervisor{},
		order:       newStartOrder(),
		serves:      newStartOrder(),
		stopped:     map[string]Stopped{},
		requested:   map[string]bool{},
		restored:    map[string]restored{},
	}
	r.forced, r.force = context.WithCancel(context.Background())
	return r, nil
}

// Apply replaces the units, by the names of their targets, but for those that Config.IsShared names: all of them, or
// none when one is invalid. It returns at once; Run does the work. Apply may be called
// before Run.
//
// The instance of a removed unit is reported as terminating, and is terminated
// within its grace period, but after those of removed units that were started after it.
// So is an instance whose driver has changed; the next one starts as soon as it has
// terminated. Any other change takes effect at once, and the instance keeps running.
//
// The errors are *probe.FieldErrors that name the target, joined. One of them is a target that would be
// started after itself, by way of others. Once Run has returned Apply has no effect.
func (c *Controller) Apply(units map[string]Unit) error {
	if err := CheckUnits(units); err != nil {
		return err
	}
	c.unitsMu.Lock()
	remove := missing(c.own(), units)
	err := c.checkOrder(units, remove)
	if err == nil {
		c.change(units, remove)
	}
	c.unitsMu.Unlock()
	if err == nil {
		c.changed.Set()
	}
	return err
}

// missing returns the targets that Apply removes since they are not among the units.
func missing(own iter.Seq[string], units map[string]Unit) (missing []string) {
	for target := range own {
		if _, kept := units[target]; !kept {
			missing = append(missing, target)
		}
	}
	return missing
}

// own yields the targets of the units that Config.IsShared does not name. It needs unitsMu.
func (c *Controller) own() iter.Seq[string] {
	return func(yield func(string) bool) {
		for target := range c.units {
			if !c.config.IsShared(target) && !yield(target) {
				return
			}
		}
		for target := range c.static.since {
			if !c.config.IsShared(target) && !yield(target) {
				return
			}
		}
	}
}

// change replaces some valid units and removes others. A name that is not that of a unit is not removed. It needs unitsMu.
func (c *Controller) change(units map[string]Unit, remove []string) {
	c.applies++
	c.pending = slices.Grow(c.pending, len(units)+len(remove))
	for _, target := range remove {
		if _, driven := c.units[target]; driven && c.supervisors[target] == nil {
			c.config.Engine.Report(probe.Instance{Target: target}) // which may have been announced
		}
		if m, _ := c.memory(target); !m.Charged.IsZero() {
			c.spent = c.spent.remove(target)
		}
		delete(c.units, target)
		c.serves.remove(target)
		delete(c.stopped, target)
		delete(c.requested, target)
		delete(c.restored, target)
		c.static.remove(target)
		c.pending = append(c.pending, target)
	}
	for target, u := range units {
		if u.Driver == nil || u.external() {
			delete(c.stopped, target)
		}
		if u.Driver == nil {
			delete(c.units, target)
			c.serves.remove(target)
			c.static.add(target)
		} else {
			c.static.replace(target)
			c.units[target] = u.WithDefaults()
			c.order.change(target, u.StartAfter)
			c.serves.add(target, u.StopAfter)
		}
		c.pending = append(c.pending, target)
	}
}

// CheckApply returns the error that Apply would return now for units that CheckUnits accepts, and changes nothing.
func (c *Controller) CheckApply(units map[string]Unit) error {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.checkOrder(units, missing(c.own(), units))
}

// CheckUnits returns the errors for which Apply and TakeOver refuse units, sorted, or nil. It does not
// look for cycles of Unit.StartAfter, which may go through other units: CheckApply does.
func CheckUnits(units map[string]Unit) error {
	var wrong []string
	for target, u := range units {
		if checkUnit(target, u) != nil {
			wrong = append(wrong, target)
		}
	}
	slices.Sort(wrong)
	var errs []error
	for _, target := range wrong {
		errs = append(errs, checkUnit(target, units[target]))
	}
	return errors.Join(errs...)
}

func checkUnit(target string, u Unit) (errs error) {
	for _, err := range [...]error{probe.ID{Target: target, Kind: probe.Liveness}.Check(), u.Check()} {
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("target %q: %w", target, err))
		}
	}
	return errs
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
// on, and terminates all of them at the same time, each within its grace period, but those that
// others were started after (Unit.StartAfter) only once these have terminated;
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
		s.wake.Set()
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
			s.wake.Set()
		}
		c.unitsMu.Unlock()
	}
}

// reconcileChunk is how many targets reconcile looks at while it holds the lock.
const reconcileChunk = 1024

// reconcile wakes all supervisors and, for each target whose unit has changed, starts a
// supervisor if its unit has a driver, or reports its static instance.
func (c *Controller) reconcile(running *sync.WaitGroup) {
	for chunk := range slices.Chunk(c.wakeAll(), reconcileChunk) {
		for _, in := range c.supervise(chunk, running) {
			c.config.Engine.Report(in)
		}
	}
}

// wakeAll wakes all supervisors, and returns the targets whose units have changed.
func (c *Controller) wakeAll() (changed []string) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for _, s := range c.supervisors {
		s.wake.Set()
	}
	changed, c.pending = c.pending, nil
	return changed
}

// repeat makes a report again if Apply or TakeOver was called since the last call with the same
// counter. It holds the lock meanwhile: the target of a unit that is removed has lost its probes,
// so that a report after that would make a running instance started and ready.
func (c *Controller) repeat(in probe.Instance, counter *int) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	if _, driven := c.units[in.Target]; *counter != c.applies && (driven || in.Terminating) {
		c.config.Engine.Report(in)
	}
	*counter = c.applies
}

// supervise starts the missing supervisors of targets, and returns the reports of those
// whose units have no driver. While the supervisor of such a target has not ended yet, the
// target stays pending.
func (c *Controller) supervise(targets []string, running *sync.WaitGroup) (reports []probe.Instance) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	now := time.Now()
	for _, target := range targets {
		_, driven := c.units[target]
		switch s := c.supervisors[target]; {
		case driven && s == nil:
			s = c.newSupervisor(target)
			c.supervisors[target] = s
			running.Go(s.run)
		case driven:
		case s != nil:
			c.pending = append(c.pending, target)
		default:
			if in, ok := c.static.report(target, now); ok {
				reports = append(reports, in)
			}
		}
	}
	return reports
}

// Announce reports each target that has a driver and that the engine does not have yet, since it has no probes and no
// instance was reported: as waiting for its start, or as stopped by an operator. So whoever asks the engine after Apply is
// shown all targets, although their instances start one after another. Call it after Restore, and after any later Apply.
func (c *Controller) Announce() {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for target := range c.units {
		if c.supervisors[target] != nil { // which reports it
			continue
		}
		if _, known := c.config.Engine.WatchTarget(target); known {
			continue
		}
		in := probe.Instance{Target: target, ID: noID, Phase: probe.Waiting, Since: time.Now(), Restarts: max(c.restored[target].Started-1, 0)}
		if stopped, is := c.stopped[target]; is {
			in.Phase, in.Retained = probe.Gone, true
			in = stopped.reportedAs(in)
		}
		c.config.Engine.Report(in) // before a supervisor is started, which needs the lock
	}
}

// Driver returns the driver of a target's unit, or nil if it has none.
func (c *Controller) Driver(target string) Driver {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.units[target].Driver
}

// wish is what the controller wants of a target now.
type wish struct {
	unit      Unit
	wanted    bool    // there is such a unit, and the controller does not stop
	isStopped bool    // by an operator, or isDone
	isDone    bool    // those that it serves have exited: see Unit.StopAfter
	stopped   Stopped // who that was
	replaced  bool    // TakeOver has brought a memory of the target that its supervisor has not taken
	needed    bool    // targets that were started after this one have not ended: it has to wait with its own end
	stopping  bool    // Run is about to return
	releases  bool    // it leaves instances running that outlive the engine
}

// wish returns what is wanted of a target now.
func (c *Controller) wish(target string) wish {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	unit, driven := c.units[target]
	w := wish{unit: unit, wanted: driven && !c.stopping, stopping: c.stopping, releases: c.stopping && !c.killing}
	w.stopped, w.isStopped = c.stopped[target]
	_, w.replaced = c.restored[target]
	w.needed = !w.wanted && !c.killing && len(c.order.dependents[target]) > 0
	w.isDone = !w.isStopped && haveExited(c.config.Engine, unit.StopAfter)
	w.isStopped = w.isStopped || w.isDone
	return w
}

// IsStopping reports whether Run is about to return, and ends instances for that.
func (c *Controller) IsStopping() bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.stopping
}

// release removes a target's supervisor, and reports whether the supervisor may
// end: not when Apply has brought a unit for it meanwhile.
func (c *Controller) release(target string) bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	if _, driven := c.units[target]; driven && !c.stopping {
		return false
	}
	for _, earlier := range c.order.remove(target) {
		if s := c.supervisors[earlier]; s != nil {
			s.wake.Set()
		}
	}
	if !c.stopping { // what it remembers is for the next engine
		delete(c.supervisors, target)
	}
	c.changed.Set()
	return true
}

// refund takes back the last charge of a target.
func (c *Controller) refund(target string) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	c.spent = c.spent.remove(target)
}

// charge takes the restart of a target from the budget, or returns why it waits.
func (c *Controller) charge(target string, now time.Time) (d delay) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	var again time.Time
	var ok bool
	if c.spent, again, ok = c.spent.take(c.config.Budget, target, len(c.units), now); !ok {
		d = delay{reason: probe.ReasonBudget, until: again, detail: c.config.Budget.detail(len(c.units))}
	}
	return d
}
