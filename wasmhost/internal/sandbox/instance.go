package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/meter"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// Instance is one running copy of a module, with a memory of its own. One call at a time
// uses it.
type Instance struct {
	sandbox   *Sandbox
	module    api.Module
	memory    *memory
	run       api.Function
	configure api.Function // nil: the module does not export it
	fuel      api.MutableGlobal
	nextFD    int32
	stack     [1]uint64 // the result of a call
	used      int64     // counted in the budget: with stackSize, the memory and instanceOverhead
	stackSize int       // of the largest stack of a call until now
}

// ErrStarved is in the error of a start that exceeded Limits.Start, and had hardly any
// processor time: this machine was busy, or the module slept.
var ErrStarved = errors.New("this machine gave it hardly any processor time")

// starvedBelow is the part of Limits.Start that a start must have had of processor time
// for the module to be at fault.
const starvedBelow = 20

// Start makes an instance. It returns when the module has initialised itself, or soon
// after ctx is done or Limits.Start has passed.
func (s *Sandbox) Start(ctx context.Context) (*Instance, error) {
	runtime.LockOSThread() // whose processor time is measured
	defer runtime.UnlockOSThread()
	before, measured := threadTime()
	i, err := s.start(ctx)
	if errors.Is(err, errStopped) && measured {
		if now, _ := threadTime(); now-before < s.config.Limits.Start/starvedBelow {
			err = fmt.Errorf("%w; %w", err, ErrStarved)
		}
	}
	return i, err
}

func (s *Sandbox) start(ctx context.Context) (*Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Limits.Start)
	defer cancel()
	i := &Instance{sandbox: s, nextFD: abi.FirstFD, used: s.initialMemory()}
	i.memory = &memory{limit: uint64(s.config.Limits.Memory), take: i.take}
	if !totalMemory.takeInstance(s.account, i.used) {
		return nil, fmt.Errorf("start: %w", ErrNoMemory)
	}
	if err := i.initialize(ctx); err != nil {
		if i.memory.noRoom && !errors.Is(err, ErrNoMemory) {
			err = fmt.Errorf("%w; %w", err, ErrNoMemory)
		}
		i.Close()
		return nil, err
	}
	return i, nil
}

// initialize makes the instance, and lets the module initialise itself.
func (i *Instance) initialize(ctx context.Context) error {
	if err := i.instantiate(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if f := i.module.ExportedFunction(abi.ExportInitialize); f != nil {
		c := &call{ctx: ctx, sandbox: i.sandbox, instance: i, memory: i.module.Memory()}
		if err := c.run(f).Err; err != nil {
			return fmt.Errorf("%s: %w", abi.ExportInitialize, err)
		}
	}
	return nil
}

// instantiate makes the instance's memory and runs the module's start function.
func (i *Instance) instantiate(ctx context.Context) error {
	c := &call{ctx: ctx, sandbox: i.sandbox, instance: i}
	defer c.finish()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(rand.Reader) // its own is slow to make
	return c.guard(func(ctx context.Context) error {
		ctx = experimental.WithMemoryAllocator(ctx, i.memory)
		module, err := i.sandbox.runtime.InstantiateModule(ctx, i.sandbox.compiled, config)
		if err != nil {
			return readable(err)
		}
		i.module = module
		i.fuel = module.ExportedGlobal(meter.FuelExport).(api.MutableGlobal)
		i.run, i.configure = module.ExportedFunction(abi.ExportRun), module.ExportedFunction(abi.ExportConfigure)
		return nil
	})
}

// take counts memory that the instance uses, and returns false if there is none left.
func (i *Instance) take(bytes int64) bool {
	if !totalMemory.take(i.sandbox.account, bytes) {
		return false
	}
	i.used += bytes
	return true
}

// Attempt is the input of one attempt.
type Attempt struct {
	Target   probe.Target
	Settings *settings.Settings
	State    *State
	Wake     func() // asks for the probe's next attempt; nil if that is not possible
}

// Run makes an attempt. It returns soon after abi.Grace has passed since ctx was done. A call that does not return closes the connections that State holds.
func (i *Instance) Run(ctx context.Context, a Attempt) Report {
	a.State.bind(a.Target)
	c := &call{
		ctx: ctx, sandbox: i.sandbox, instance: i, memory: i.module.Memory(),
		settings: a.Settings, target: a.Target, state: a.State, wakeProbe: a.Wake,
	}
	r := c.run(i.run)
	if r.Ending != Returned {
		a.State.closeConns()
	} else if c.stateSet {
		a.State.mu.Lock()
		a.State.text = c.newState
		a.State.mu.Unlock()
	}
	return r
}

// Configure asks the module whether it accepts settings: it does if Report.Value is 0.
// The module must export sonde_configure.
func (i *Instance) Configure(ctx context.Context, s *settings.Settings) Report {
	c := &call{ctx: ctx, sandbox: i.sandbox, instance: i, memory: i.module.Memory(), settings: s}
	return c.run(i.configure)
}

// Close frees the instance. It must not be running.
func (i *Instance) Close() {
	if i.module != nil {
		_ = i.module.Close(context.Background()) // frees memory only, which cannot fail
	}
	totalMemory.release(i.sandbox.account, i.used)
}

// maxFD is where an instance is retired, because it never uses a descriptor twice.
const maxFD = 1 << 30

// Spent reports whether the instance should not be used again.
func (i *Instance) Spent() bool {
	return i.nextFD > maxFD || i.stackSize > keepStack || totalMemory.owes(i.sandbox.account)
}

// Ending is how a call ended.
type Ending int

// The endings.
const (
	Returned      Ending = iota
	Stopped              // by the host, abi.Grace after the deadline
	LimitReached         // and the plugin went on
	OutOfMemory          // the plugin trapped after it was refused more memory
	StackOverflow        // the plugin's calls nested too deep
	Exited               // the plugin ended its instance
	Trapped              // any other trap
)

// Report is what is known of a call that has ended.
type Report struct {
	Ending Ending
	Value  int32 // what the function returned
	Err    error // why the call did not return; nil when it did

	Detail string // what the plugin reported
	Reason string // likewise
	Field  string // likewise

	NoMemory bool          // it was refused memory that others use
	Stalled  bool          // this process was stalled when the deadline passed
	Starved  bool          // others had the processors for a notable part of its time
	Waited   time.Duration // for a processor that others had
	Fuel     int64         // the units that it used, as package meter counts them
	Late     bool          // the deadline had passed, or nearly
	Refused  string        // a destination that is not granted; empty if there was none
	Limit    string        // the name of the limit that was reached, if one was
	Last     HostError     // of the host call that failed last
	Timings  probe.Timings // of the attempt
}

// almostLate is how long before the deadline a plugin may report that it has passed: it
// has clocks of its own.
const almostLate = 10 * time.Millisecond

// readable returns the error of a call as it is shown. wazero's own text for a plugin that
// exits with certain codes is that of a cancelled context.
func readable(err error) error {
	if exit := (*sys.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("exited with code %d", exit.ExitCode())
	}
	return err
}

func (c *call) ending(err error) Ending {
	if err == nil {
		return Returned
	}
	var exit *sys.ExitError
	switch {
	case isClosed(c.hard):
		return Stopped
	case errors.Is(err, errLimit):
		return LimitReached
	case c.instance.memory.refused, errors.Is(err, ErrNoMemory):
		return OutOfMemory
	case errors.Is(err, errStackOverflow), strings.Contains(err.Error(), "stack overflow"): // wazero does not export this error
		return StackOverflow
	case errors.As(err, &exit):
		return Exited
	}
	return Trapped
}
