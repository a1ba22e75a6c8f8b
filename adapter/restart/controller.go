package restart

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Config is how to make a Controller.
type Config struct {
	Engine *engine.Engine // required; it is told of each life, and says which probes fail
	Budget Budget         // default: unlimited
	Logger *slog.Logger   // one Info line for each event in a life; default: none
}

// Controller keeps the lives of units. Its methods may be called from several
// goroutines at once. A unit with a driver costs one goroutine, one more while it
// lives, and what its driver needs; a unit without costs none.
type Controller struct {
	config  Config
	killed  context.Context // done: end everything by force
	kill    context.CancelFunc
	changed chan struct{} // capacity 1: reconcile

	mu      sync.Mutex
	run     bool            // Run was called
	closing bool            // nothing is wanted any more
	wanted  map[string]Unit // with their defaults
	driven  int             // how many of wanted have a driver
	keepers map[string]*keeper
	spent   account

	static map[string]bool // targets reported as static; Run's own
}

// New returns a Controller without units, or a *probe.FieldError about the
// budget.
func New(c Config) (*Controller, error) {
	if c.Engine == nil {
		return nil, errors.New("restart: Config.Engine is nil")
	}
	if err := c.Budget.check(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Controller{
		config:  c,
		changed: make(chan struct{}, 1),
		keepers: map[string]*keeper{},
		static:  map[string]bool{},
	}
	r.killed, r.kill = context.WithCancel(context.Background())
	return r, nil
}

// Apply says which units there should be, by the names of their targets: all of
// them, or none when one is wrong. It returns at once; Run does the work, also
// when it is called later.
//
// A unit that is no longer wanted is reported as leaving and ends within its
// grace period. So does one whose driver has changed; its next life begins as soon
// as the old one has ended. Anything else that has changed counts from now on, and
// the life goes on.
//
// The errors are *probe.FieldErrors that name the target, joined. Once Run has
// ended Apply has no effect.
func (c *Controller) Apply(units map[string]Unit) error {
	wanted, err := complete(units)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.wanted, c.driven = wanted, 0
	for _, u := range wanted {
		if u.Driver != nil {
			c.driven++
		}
	}
	c.mu.Unlock()
	poke(c.changed)
	return nil
}

func complete(units map[string]Unit) (map[string]Unit, error) {
	wanted := make(map[string]Unit, len(units))
	var errs []error
	for _, target := range slices.Sorted(maps.Keys(units)) {
		if err := (probe.ID{Target: target, Kind: probe.Liveness}).Check(); err != nil {
			errs = append(errs, fmt.Errorf("target %q: %w", target, err))
		}
		if err := units[target].check(); err != nil {
			errs = append(errs, fmt.Errorf("target %q: %w", target, err))
		}
		wanted[target] = units[target].withDefaults()
	}
	return wanted, errors.Join(errs...)
}

// Kill ends every life by force, and begins no other. A Run that waits for lives
// to end within their grace periods then returns as soon as they have; one that
// has not seen its ctx done returns, too.
func (c *Controller) Kill() {
	c.close()
	c.kill()
}

// Run keeps the units alive until ctx is done. Then every life is reported as
// leaving, which stops its startup and liveness probes while readiness goes on, and
// all end within their grace periods, side by side; Kill makes that short. Run
// returns nil when every life has ended and every goroutine it started, too. The
// engine should run until then. Lives of an External driver, and units without
// driver, are left as they are.
//
// A second call returns an error at once.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	var keepers, watcher sync.WaitGroup
	watching, blind := context.WithCancel(ctx)
	watcher.Go(func() { c.watch(watching) })
	for ctx.Err() == nil && c.killed.Err() == nil {
		c.reconcile(&keepers)
		select {
		case <-c.changed:
		case <-ctx.Done():
		case <-c.killed.Done():
		}
	}
	c.close()
	blind()
	watcher.Wait()
	keepers.Wait()
	return nil
}

func (c *Controller) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run {
		return errors.New("restart: Run was called before")
	}
	c.run = true
	return nil
}

// close has every keeper end its life.
func (c *Controller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for _, k := range c.keepers {
		poke(k.wake)
	}
}

// watch wakes the keeper of each target that has news.
func (c *Controller) watch(ctx context.Context) {
	news := c.config.Engine.Subscribe()
	defer news.Close()
	for {
		status, err := news.Next(ctx)
		if err != nil {
			return
		}
		if status.ID.Kind == probe.Readiness {
			continue
		}
		c.mu.Lock()
		if k := c.keepers[status.ID.Target]; k != nil {
			poke(k.wake)
		}
		c.mu.Unlock()
	}
}

// reconcile gives every wanted unit with a driver a keeper, wakes the keepers
// there are, and reports the units without a driver.
func (c *Controller) reconcile(running *sync.WaitGroup) {
	appeared, vanished := c.assign(running)
	for _, target := range vanished {
		delete(c.static, target)
		c.config.Engine.Report(probe.Instance{Target: target, ID: staticID, Phase: probe.Gone, Since: time.Now()})
	}
	for _, target := range appeared {
		c.static[target] = true
		c.config.Engine.Report(probe.Instance{Target: target, ID: staticID, Phase: probe.Running, Since: time.Now()})
	}
}

// staticID is the one instance of a unit without a driver.
const staticID = "static"

// assign starts and wakes keepers, and returns which units without a driver are
// new and which ones are not wanted any more. One that has a keeper still is left
// until that is done.
func (c *Controller) assign(running *sync.WaitGroup) (appeared, vanished []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.keepers {
		poke(k.wake)
	}
	for target, u := range c.wanted {
		switch {
		case c.keepers[target] != nil:
		case u.Driver == nil && !c.static[target]:
			appeared = append(appeared, target)
		case u.Driver != nil:
			delete(c.static, target) // its lives replace the static one
			k := c.newKeeper(target)
			c.keepers[target] = k
			running.Go(k.keep)
		}
	}
	for target := range c.static {
		if _, wanted := c.wanted[target]; !wanted {
			vanished = append(vanished, target)
		}
	}
	return appeared, vanished
}

// unit returns the unit that a target's keeper should care for, and whether there
// is one.
func (c *Controller) unit(target string) (Unit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.wanted[target]
	return u, u.Driver != nil && !c.closing
}

// isClosing reports whether Run is about to end.
func (c *Controller) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// dismiss forgets a keeper that has nothing to do, and reports whether it may go.
func (c *Controller) dismiss(target string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted[target].Driver != nil && !c.closing {
		return false
	}
	delete(c.keepers, target)
	poke(c.changed)
	return true
}

// spend takes one end from the budget, or says when to ask again.
func (c *Controller) spend(now time.Time) (again time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent, again, ok = c.spent.take(c.config.Budget, c.driven, now)
	return again, ok
}

// poke leaves word in a channel of capacity 1.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
