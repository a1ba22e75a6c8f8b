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

// Instance is a running copy of a module, with its own memory. It runs one call at a time; Reset
// must be called between two calls.
type Instance struct {
	sandbox   *Sandbox
	module    api.Module
	globals   []api.MutableGlobal
	image     *image.Image // the image that it started from; nil if it initialised itself
	run       *function
	configure *function // nil until first used; few instances need it
	fuel      api.MutableGlobal
	stack     [1]uint64 // the result of a call
	footprint
}

// ErrStarved is wrapped by the error of a start that exceeded Limits.Start with hardly any
// processor time: this machine was busy, or the module slept.
var ErrStarved = errors.New("it got hardly any processor time on this machine")

// ErrSystem is wrapped by the error of a start for which the system refused memory.
var ErrSystem = errors.New("system refused to allocate memory")

// starvedBelow is a divisor: a module is at fault for a slow start only if it had at least
// Limits.Start/starvedBelow of processor time.
const starvedBelow = 20

// Start returns a new instance, created from the image. If there is no image yet, one start at a
// time initialises an instance to take the image; concurrent starts wait for it and share its
// error. An initialisation ends soon after ctx is done or Limits.Start has elapsed. All starts must
// use the same ctx.
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

// initialImage returns the image. All starts during an initialisation share its image or error.
func (s *Sandbox) initialImage(ctx context.Context) (*image.Image, error) {
	if i := s.image.Load(); i != nil {
		return i, nil
	}
	_, err, _ := s.initialising.Do("", func() (any, error) {
		if s.image.Load() != nil { // another initialisation has finished meanwhile
			return nil, nil
		}
		return nil, s.takeImage(ctx)
	})
	return s.image.Load(), err
}

// takeImage initialises an instance, and stores its image.
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

// startFirst returns an instance that was initialised without an image.
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

// moduleConfig is the configuration of all instances. Other random sources are slow to create.
var moduleConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(rand.Reader)

// instantiate creates an instance without running code of the module. It needs a slot, because the
// runtime evaluates the elements of tables, which may take several milliseconds.
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

// initialize runs the start function and _initialize of an instance without an image. It returns the time
// that they computed.
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
				Field: "limits.memory", Problem: fmt.Sprintf("is %v, but initializing the module takes more", bytesize.Size(i.sandbox.config.Limits.Memory)),
				Hint: "write a larger size, such as twice as much",
			}
		}
		if r.Err != nil {
			return computed, fmt.Errorf("%s: %w", f.name, r.Err)
		}
	}
	return computed, nil
}

// writeSegments writes the data segments to the memory, and returns the start function, or nil if
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
	Prepared string // Report.Prepared of Configure for Settings, or ""
	Wake     func() // requests the probe's next attempt; nil if that is not possible
}

// Run makes an attempt. It returns at the latest soon after abi.Grace has elapsed since ctx was
// done. If the call does not return, the connections that State holds are closed.
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

// Configure makes the module check settings of a tenant: the settings are accepted if Report.Value
// is 0. The module must export sonde_configure.
func (i *Instance) Configure(ctx context.Context, t *Tenant, s *settings.Settings) Report {
	if i.configure == nil {
		i.configure = i.exported(abi.ExportConfigure)
	}
	return newCall(ctx, t, i, Attempt{Settings: s}).run(i.configure)
}

// Reset restores the state of the instance before its first call, regardless of how a call ended.
// It returns false if that is not possible: its memory has grown, or the budget no longer has the
// memory for the instance.
func (i *Instance) Reset() bool { return i.tryUseAll() && i.image.Reset(i.memory, i.globals) }

// Spent reports whether the instance should be closed instead of reused.
func (i *Instance) Spent() bool {
	large := i.run.stack > keepStack || i.configure != nil && i.configure.stack > keepStack
	return i.uncounted || large || totalMemory.owes(i.account)
}

// Close frees the instance. It must not be running.
func (i *Instance) Close() {
	if i.module != nil {
		_ = i.module.Close(context.Background()) // frees memory only and cannot fail
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
	LimitReached         // and the plugin continued
	OutOfMemory          // the plugin trapped after it was refused more memory
	StackOverflow        // the plugin's calls were nested too deeply
	Exited               // the plugin called proc_exit
	Trapped              // any other trap
)

// Report is the result of a call.
type Report struct {
	Ending ending
	Value  int32 // the function's result
	Err    error // the error if the call did not return; nil if it did

	Detail string // from OutputDetail
	Reason string // from OutputReason
	Field  string // from OutputField

	Prepared string // data for attempts with the settings that Configure checked
	TooLong  int    // the length of prepared data that exceeded abi.MaxPrepared, or 0

	NoMemory error         // the error if it was refused memory below its limit, or nil
	Stalled  bool          // this process was stalled when the deadline passed
	Starved  bool          // other calls had the processors for a notable part of its time
	Computes bool          // it computed or waited for a processor for most of the time until the deadline
	Waited   time.Duration // time that it waited for a processor
	Computed time.Duration // time that it computed
	RanAway  bool          // it computed for longer than muchComputed
	Fuel     int64         // units of fuel used; see package module
	Late     bool          // the deadline had passed, or was less than almostLate away
	Apart    bool          // it requested no connection and no lookup from the host
	Refused  string        // a destination that was denied; empty if there was none
	Limit    string        // the name of the limit that was reached; empty if there was none
	Last     HostError     // of the last failed host call
	Timings  probe.Timings // of the attempt

	CertificateExpiry int64 // as in probe.Result
}

// almostLate is the time before the deadline at which a plugin may already report that the deadline
// has passed: it has its own timers.
const almostLate = 10 * time.Millisecond

// readable returns the error of a call in the form in which it is shown. For some exit codes of a
// plugin wazero's own text is that of a cancelled context, and it describes the host's errors as
// recovered panics.
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
