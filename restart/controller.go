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
	Engine *engine.Engine // required; receives a Report for each instance, and holds the probes' verdicts
	Budget Budget         `hcl:"restart_budget,object" doc:"limits how many targets startup and liveness probes restart, so that an overloaded network or machine, or a wrong configuration, does not restart everything at once; a target that is restarted again within per does not count again. { share = \"100%\", per = \"1m\" } limits nothing" default:"{ share = \"25%\", min = 3, per = \"5m\" }, or none with compatibility = \"kubelet\""`
	Logger *slog.Logger   // one Info record when an instance starts, fails, recovers or exits; default: none

	// Redact masks secrets in the outputs of instances. Default: no redaction.
	Redact func(text string) string

	// Changed is called when the Memory of a target may have changed. It must not block. Default: none.
	Changed func(target string)

	// MayAct reports whether this engine may terminate the instance of a target because a probe fails: in a fleet, only
	// the owner of the target may. As long as it returns false, the restart is delayed with the reason
	// restart.ownership, and MayAct is called again every second. It must not block. Default: always true.
	MayAct func(target string) bool

	// IsShared reports whether the unit of a target is managed by TakeOver: Apply does not remove such a unit. It must
	// not block. Default: always false.
	IsShared func(target string) bool

	// Disruptions may withhold a restart because of a failing probe, with the reason restart.floor, and is notified of
	// restarts that operators request. Default: it withholds none.
	Disruptions DisruptionBudget

	// StoppedChanged is called when the result of Stopped may have changed. It must not block. Default: none.
	StoppedChanged func()
}

// Controller runs the instances of units, and restarts them. Its methods are safe for concurrent use. A unit with a
// driver costs one goroutine, another one while an instance runs, and the resources of its driver; a unit without a
// driver costs no goroutine.
type Controller struct {
	config  Config
	forced  context.Context // when done, all instances are killed
	force   context.CancelFunc
	changed wake.Signal // units or supervisors have changed; reconcile runs

	retrying atomic.Int64 // number of supervisors that retry a start or restart that could not be made
	brake    *brake

	unitsMu     sync.Mutex      // guards the fields below
	running     bool            // Run was called
	stopping    bool            // Run is about to return: no unit is wanted
	killing     bool            // Kill was called: only External instances are left running
	units       map[string]Unit // units with a driver, by target, with defaults
	static      staticUnits     // units without a driver
	pending     []string        // targets whose units have changed since reconcile last processed them
	supervisors map[string]*supervisor
	order       startOrder
	serves      startOrder         // the order by Unit.StopAfter, of all units
	stopped     map[string]Stopped // by target: stopped by operators
	requested   map[string]bool    // targets whose requested restart has not begun yet
	spent       account
	restored    map[string]restored // by target, until its supervisor takes it
	applies     int                 // number of calls of Apply and TakeOver
}

// Check validates the budget. It returns probe.FieldErrors, or nil.
func (c Config) Check() error { return c.Budget.check() }

// New returns a Controller without units. If the budget is invalid, it returns probe.FieldErrors.
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

// Apply replaces all units except the shared ones (Config.IsShared), or none if one is invalid. Units are keyed by
// target name. Apply returns at once; Run does the work. Apply may be called before Run.
//
// The instance of a removed unit is reported as terminating, and is terminated within its grace period, but after the
// instances of removed units that were started after it. An instance whose driver has changed is terminated as well;
// the next one starts as soon as it has terminated. Any other change takes effect at once, and the instance keeps
// running.
//
// The errors are *probe.FieldErrors that name the target, joined. One of them reports a cycle: a target that would be
// started after itself, possibly by way of other targets. Once Run has returned, Apply has no effect.
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

// missing returns the targets of own that are not among the units, which Apply therefore removes.
func missing(own iter.Seq[string], units map[string]Unit) (missing []string) {
	for target := range own {
		if _, kept := units[target]; !kept {
			missing = append(missing, target)
		}
	}
	return missing
}

// own yields the targets of all units that are not shared (Config.IsShared). It needs unitsMu.
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

// change adds or replaces the given units, which must be valid, and removes those in remove. It ignores a name in
// remove that has no unit. It needs unitsMu.
func (c *Controller) change(units map[string]Unit, remove []string) {
	c.applies++
	c.pending = slices.Grow(c.pending, len(units)+len(remove))
	for _, target := range remove {
		if _, driven := c.units[target]; driven && c.supervisors[target] == nil {
			c.config.Engine.Report(probe.Instance{Target: target}) // Announce may have reported it
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

// CheckApply returns the error that Apply would return now, without changing anything. The units must be valid by
// CheckUnits.
func (c *Controller) CheckApply(units map[string]Unit) error {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.checkOrder(units, missing(c.own(), units))
}

// CheckUnits returns the errors for which Apply and TakeOver reject units, sorted by target, or nil. It does not check
// for cycles of Unit.StartAfter, which may include other units; CheckApply does.
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

// Kill kills all instances that were not released, and starts no others. A Run that is waiting for instances to
// terminate within their grace periods returns as soon as they have terminated. A Run whose ctx is not done returns
// too.
func (c *Controller) Kill() {
	c.unitsMu.Lock()
	c.killing = true
	c.unitsMu.Unlock()
	c.stop()
	c.force()
}

// Run runs the units' instances until ctx is done. Then it reports all instances as terminating, which stops their
// startup and liveness probes but not their readiness probes, and terminates them in parallel, each within its grace
// period. An instance that others were started after (Unit.StartAfter) is terminated only once those have terminated.
// Kill cuts all this short. Run returns nil when all instances have terminated and all goroutines that it started have
// returned. The engine should run until then. Instances of an External driver, those of an Outliving driver that
// outlive the engine, and units without a driver are left running.
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

// watchVerdicts wakes the supervisor of a target whenever a startup or liveness probe of the target changes its
// verdict.
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

// reconcileChunk is the number of targets that reconcile processes per acquisition of the lock.
const reconcileChunk = 1024

// reconcile wakes all supervisors. For each target whose unit has changed, it starts a supervisor if the unit has a
// driver, or else reports the static instance.
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

// repeat reports an instance again if Apply or TakeOver was called since the previous call with the same counter. It
// holds the lock while it reports: the target of a removed unit has lost its probes, so a later report of a running
// instance would make it count as started and ready.
func (c *Controller) repeat(in probe.Instance, counter *int) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	if _, driven := c.units[in.Target]; *counter != c.applies && (driven || in.Terminating) {
		c.config.Engine.Report(in)
	}
	*counter = c.applies
}

// supervise starts the missing supervisors of targets, and returns the reports of targets whose units have no driver. A
// target without a driver stays pending while its old supervisor is still running.
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

// Announce reports each target with a driver that the engine does not know yet, because it has no probes and no
// instance was reported: as waiting for its start, or as stopped by an operator. Thus a query of the engine after Apply
// shows all targets, although their instances start one after another. Call Announce after Restore, and after any later
// Apply.
func (c *Controller) Announce() {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for target := range c.units {
		if c.supervisors[target] != nil { // the supervisor reports it
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

// wish is the desired state of a target.
type wish struct {
	unit      Unit
	wanted    bool    // the target has a unit with a driver, and the controller is not stopping
	isStopped bool    // by an operator, or because isDone
	isDone    bool    // the targets that it serves have exited: see Unit.StopAfter
	stopped   Stopped // when and by whom
	replaced  bool    // TakeOver has provided a memory of the target that its supervisor has not taken yet
	needed    bool    // targets that were started after this one have not ended yet: its instance must not end before them
	stopping  bool    // Run is about to return
	releases  bool    // the controller is stopping and leaves instances running that outlive the engine
}

// isForgotten reports whether an instance is released because its unit was removed. Its report is not changed then: the
// target has lost its probes, and a running instance of a target without probes counts as started and ready.
func (w wish) isForgotten() bool { return !w.wanted && !w.stopping }

// wish returns the current desired state of a target.
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

// IsStopping reports whether Run is about to return and is ending instances.
func (c *Controller) IsStopping() bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return c.stopping
}

// release removes a target's supervisor, and reports whether the supervisor may exit: it may not if Apply has added a
// unit for the target in the meantime.
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
	if !c.stopping { // a stopping controller keeps the memory for the next engine
		delete(c.supervisors, target)
	}
	c.changed.Set()
	return true
}

// refund reverts the last charge of a target to the budget.
func (c *Controller) refund(target string) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	c.spent = c.spent.remove(target)
}

// charge charges the restart of a target to the budget. If the budget is exhausted, it returns the delay instead.
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
