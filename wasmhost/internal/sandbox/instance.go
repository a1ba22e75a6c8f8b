package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/image"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// Instance is one running copy of a module, with a memory of its own. One call at a time
// uses it, and Reset is between two calls.
type Instance struct {
	sandbox   *Sandbox
	module    api.Module
	globals   []api.MutableGlobal
	image     *image.Image // what it was made from; nil if it has initialised itself
	run       *function
	configure *function // nil until it is called, which it is on few instances
	fuel      api.MutableGlobal
	stack     [1]uint64 // the result of a call
	footprint
}

// ErrStarved is in the error of a start that exceeded Limits.Start, and had hardly any
// processor time: this machine was busy, or the module slept.
var ErrStarved = errors.New("this machine gave it hardly any processor time")

// ErrSystem is in the error of a start that the system has refused memory to.
var ErrSystem = errors.New("system refuses memory")

// starvedBelow is the part of Limits.Start that a start must have had of processor time
// for the module to be at fault.
const starvedBelow = 20

// Start makes an instance, from the image of one that has initialised itself. As long as there
// is no image, one start at a time initialises an instance to take it, and the others wait and
// get its error. An initialisation ends soon after ctx is done or Limits.Start has passed. All
// starts must have the same ctx.
func (s *Sandbox) Start(ctx context.Context) (*Instance, error) {
	from, err := s.initialImage(ctx)
	if err != nil {
		return nil, err
	}
	i, err := s.instantiate(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	if err := from.Complete(i.module, i.globals); err != nil {
		i.Close()
		return nil, fmt.Errorf("start: %w", err)
	}
	return i, nil
}

// initialImage returns the image. All starts that come before the end of an initialisation share it, and its
// error.
func (s *Sandbox) initialImage(ctx context.Context) (*image.Image, error) {
	if i := s.image.Load(); i != nil {
		return i, nil
	}
	_, err, _ := s.initialising.Do("", func() (any, error) {
		if s.image.Load() != nil { // another one has ended meanwhile
			return nil, nil
		}
		return nil, s.takeImage(ctx)
	})
	return s.image.Load(), err
}

// takeImage takes the image of an instance that initialises itself.
func (s *Sandbox) takeImage(ctx context.Context) error {
	first, err := s.startFirst(ctx)
	if err != nil {
		return err
	}
	defer first.Close()
	taken, err := image.Take(first.module, first.globals)
	if err != nil {
		return fmt.Errorf("start: %w: %w", ErrSystem, err)
	}
	s.image.Store(taken)
	s.module.DropSegments()
	totalMemory.use(s.account, taken.Size(), taken.Size())
	return nil
}

// startFirst makes an instance without an image, which initialises itself.
func (s *Sandbox) startFirst(ctx context.Context) (*Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Limits.Start)
	defer cancel()
	i, err := s.instantiate(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	computed, err := i.initialize(ctx)
	if err == nil {
		return i, nil
	}
	i.Close()
	if errors.Is(err, errStopped) && computed < s.config.Limits.Start/starvedBelow {
		err = fmt.Errorf("%w; %w", err, ErrStarved)
	}
	return nil, err
}

// acquireSlot waits for a slot for the start of an instance.
func (s *Sandbox) acquireSlot(ctx context.Context) error {
	if !cpuSlots.acquire(&s.own.slotQueue, ctx.Done()) {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return fmt.Errorf("waited %v for a processor: %w", s.config.Limits.Start, ErrStarved)
	}
	return nil
}

// moduleConfig is that of all instances. Other random sources are slow to make.
var moduleConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(rand.Reader)

// instantiate makes an instance, which does not run code of the module yet. It needs a slot:
// the runtime evaluates the elements of tables, up to some milliseconds.
func (s *Sandbox) instantiate(ctx context.Context, from *image.Image) (_ *Instance, err error) {
	i := &Instance{sandbox: s, image: from, footprint: footprint{account: s.account, used: s.memoryFor(from)}}
	if !totalMemory.reserveInstance(i.account, i.used) {
		return nil, ErrNoMemory
	}
	defer func() {
		if err != nil {
			i.Close()
		}
	}()
	if err := s.acquireSlot(ctx); err != nil {
		return nil, err
	}
	defer cpuSlots.release()
	if i.memory, err = image.NewMemory(from, s.declaredMemory(), s.config.Limits.Memory, i.reserve); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSystem, err)
	}
	if i.module, err = s.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, i.memory), s.compiled, moduleConfig); err != nil {
		return nil, err
	}
	i.fuel = i.module.ExportedGlobal(module.FuelExport).(api.MutableGlobal)
	i.run = i.exported(abi.ExportRun)
	i.globals = s.module.Globals(i.module)
	return i, i.run.check()
}

// initialize lets an instance without an image initialise itself, and returns for how long that has computed.
func (i *Instance) initialize(ctx context.Context) (computed time.Duration, err error) {
	start, err := i.writeSegments(ctx)
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	for _, f := range []struct {
		name string
		*function
	}{{"start", start}, {abi.ExportInitialize, i.exported(abi.ExportInitialize)}} {
		if f.function == nil {
			continue
		}
		r := newCall(ctx, i.sandbox.own, i, Attempt{}).run(f.function)
		computed += r.Computed
		if lacking := i.memory.Err; r.Err != nil && lacking != nil && !errors.Is(r.Err, lacking) {
			r.Err = fmt.Errorf("%w; %w", r.Err, lacking)
		}
		if r.Ending == OutOfMemory && i.memory.Refused && i.memory.Err == nil {
			r.Err = &probe.FieldError{
				Field: "limits.memory", Problem: fmt.Sprintf("is %v, and the module needs more to initialize itself", bytesize.Size(i.sandbox.config.Limits.Memory)),
				Hint: "write a larger size, such as twice as much",
			}
		}
		if r.Err != nil {
			return computed, fmt.Errorf("%s: %w", f.name, r.Err)
		}
	}
	return computed, nil
}

// writeSegments writes the data segments to the memory, and returns the start function; nil if
// there is none.
func (i *Instance) writeSegments(ctx context.Context) (start *function, err error) {
	if err := i.sandbox.acquireSlot(ctx); err != nil {
		return nil, err
	}
	defer cpuSlots.release()
	f, err := i.sandbox.module.Initialize(i.module)
	if f != nil {
		start = newFunction(f)
	}
	return start, err
}

// Attempt is the input of one attempt.
type Attempt struct {
	Target   probe.Target
	Settings *settings.Settings
	State    *State
	Prepared string // what Configure has reported for Settings, or ""
	Wake     func() // asks for the probe's next attempt; nil if that is not possible
}

// Run makes an attempt. It returns soon after abi.Grace has passed since ctx was done. A call
// that does not return closes the connections that State holds.
func (i *Instance) Run(ctx context.Context, a Attempt) Report {
	a.State.bind(a.Target)
	c := newCall(ctx, a.State.tenant, i, a)
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

// Configure asks the module whether it accepts settings of a tenant: it does if Report.Value is 0.
// The module must export sonde_configure.
func (i *Instance) Configure(ctx context.Context, t *Tenant, s *settings.Settings) Report {
	if i.configure == nil {
		i.configure = i.exported(abi.ExportConfigure)
	}
	return newCall(ctx, t, i, Attempt{Settings: s}).run(i.configure)
}

// Reset makes the instance what it was before its first call, whatever a call has done and
// however it has ended. It returns false if that cannot be done: its memory has grown, or
// the memory that it may use is no longer left.
func (i *Instance) Reset() bool { return i.tryUseAll() && i.image.Reset(i.memory, i.globals) }

// Spent reports whether the instance should not be used again.
func (i *Instance) Spent() bool {
	large := i.run.stack > keepStack || i.configure != nil && i.configure.stack > keepStack
	return i.uncounted || large || totalMemory.owes(i.account)
}

// Close frees the instance. It must not be running.
func (i *Instance) Close() {
	if i.module != nil {
		_ = i.module.Close(context.Background()) // frees memory only, which cannot fail
	}
	if i.memory != nil {
		i.memory.Free()
	}
	i.release()
}

// ending is how a call ended.
type ending int

// The endings.
const (
	Returned      ending = iota
	Stopped              // by the host, abi.Grace after the deadline
	LimitReached         // and the plugin went on
	OutOfMemory          // the plugin trapped after it was refused more memory
	StackOverflow        // the plugin's calls nested too deep
	Exited               // the plugin ended its instance
	Trapped              // any other trap
)

// Report is what is known of a call that has ended.
type Report struct {
	Ending ending
	Value  int32 // what the function returned
	Err    error // why the call did not return; nil when it did

	Detail string // what the plugin reported
	Reason string // likewise
	Field  string // likewise

	Prepared string // for attempts with the settings that Configure has checked
	TooLong  int    // the length of what was prepared and exceeds abi.MaxPrepared, or 0

	NoMemory error         // why it was refused memory below its limit; nil if it was not
	Stalled  bool          // this process was stalled when the deadline passed
	Starved  bool          // others had the processors for a notable part of its time
	Computes bool          // it computed, or lacked a processor, for most of its time until the deadline
	Waited   time.Duration // for a processor that others had
	Computed time.Duration // with a processor
	RanAway  bool          // it computed for long, whatever else it had to wait for
	Fuel     int64         // the units that it used, as package module counts them
	Late     bool          // the deadline had passed, or nearly
	Apart    bool          // it has asked the host for no connection and no addresses
	Refused  string        // a destination that is not granted; empty if there was none
	Limit    string        // the name of the limit that was reached, if one was
	Last     HostError     // of the host call that failed last
	Timings  probe.Timings // of the attempt

	CertificateExpiry int64 // as in probe.Result
}

// almostLate is how long before the deadline a plugin may report that it has passed: it
// has clocks of its own.
const almostLate = 10 * time.Millisecond

// readable returns the error of a call as it is shown. wazero's own text for a plugin that
// exits with certain codes is that of a cancelled context, and it says of the host's errors that
// it has recovered them.
func readable(err error) error {
	if exit := (*sys.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("exited with code %d", exit.ExitCode())
	}
	for _, own := range []error{errStopped, errLimit, errStackOverflow, ErrNoMemory} {
		if errors.Is(err, own) {
			return own
		}
	}
	return err
}

func (c *call) ending(err error) ending {
	if err == nil {
		return Returned
	}
	var exit *sys.ExitError
	switch {
	case isClosed(c.life.stopped):
		return Stopped
	case errors.Is(err, errLimit):
		return LimitReached
	case c.instance.memory.Refused, errors.Is(err, ErrNoMemory):
		return OutOfMemory
	case errors.Is(err, errStackOverflow):
		return StackOverflow
	case strings.Contains(err.Error(), "stack overflow"): // wazero does not export this error
		c.instance.uncounted = true
		return StackOverflow
	case errors.As(err, &exit):
		return Exited
	}
	return Trapped
}
