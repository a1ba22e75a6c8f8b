package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// call is one call of a guest: its input, its usage, and its output. Its methods run on
// the goroutine that calls the guest, except interrupt.
type call struct {
	ctx       context.Context
	sandbox   *Sandbox
	instance  *Instance
	function  *function
	memory    api.Memory
	settings  *settings.Settings // nil while an instance starts
	state     *State             // nil except in an attempt
	target    probe.Target       // empty except in an attempt
	wakeProbe func()             // asks for the probe's next attempt; may be nil
	prepared  string             // what the check of the settings has prepared for attempts
	tooLong   int                // the length of what it has prepared and exceeds the limit, or 0

	usage
	reported
	fuel     fuel
	last     HostError // of the host call that failed last
	failures int       // host calls that failed
	timings  probe.Timings
	line     []byte // written to standard output or standard error, and not yet logged
	expiry   int64  // of the certificates in the latest TLS handshake: see probe.Result

	included     *socket       // whose connSize is counted with the instance; nil: none
	sent         time.Time     // of the last write, until it is answered
	pastDeadline chan struct{} // closed when the deadline has passed or the attempt was cancelled
	stopped      chan struct{} // closed when the call is stopped
	wake         chan struct{} // signalled by sockets' readers; made when there is one

	mu       sync.Mutex // guards what follows, and the deadlines of sockets
	sockets  map[int32]*socket
	stopping *time.Timer // closes stopped

	stalled atomic.Bool // interrupt was called too late
}

// reported is what a call leaves for Report and State.
type reported struct {
	detail, reason, field string
	newState              string
	stateSet              bool
	refused               string // a destination that is not granted
	limit                 string // the limit that was reached
}

// maxInterruptDelay is how late after the deadline a call may be interrupted. More is a
// stall of this process, and says nothing about the guest.
const maxInterruptDelay = abi.Grace / 2

// callKey is the context key under which host functions find their call.
type callKey struct{}

// callContext is the context of a guest's call. It is done when the guest is stopped, and
// finds the call without walking a chain of contexts.
type callContext struct{ call *call }

// Deadline returns none: the attempt's deadline is not when the guest is stopped.
func (c callContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the guest is stopped.
func (c callContext) Done() <-chan struct{} { return c.call.stopped }

// Err returns context.Canceled once the guest is stopped.
func (c callContext) Err() error {
	if isClosed(c.call.stopped) {
		return context.Canceled
	}
	return nil
}

// Value returns the call for callKey.
func (c callContext) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return c.call
	}
	return c.call.ctx.Value(key)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// run calls a function of the guest, ends what it leaves open, and reports how the call ended.
func (c *call) run(f *function) Report {
	began, stack := time.Now(), c.instance.stack[:]
	c.function = f
	c.instance.call = c
	defer func() { c.instance.call = nil }()
	c.instance.memory.Refused, c.instance.memory.Err = false, nil
	c.fuel.grantFirst(c.instance.fuel, c.fuelLeft())
	err := c.guard(func(ctx context.Context) error { return f.CallWithStack(ctx, stack) })
	c.finish()
	return Report{
		Ending: c.ending(err), Stalled: c.stalled.Load(), Value: api.DecodeI32(stack[0]), Err: readable(err),
		Detail: c.detail, Reason: c.reason, Field: c.field, Prepared: c.prepared, TooLong: c.tooLong, Fuel: c.fuel.total(),
		Waited: c.fuel.waited + c.fuel.delayed, Starved: c.fuel.isStarved(time.Since(began)),
		Computed: c.fuel.computed, RanAway: c.fuel.computed > muchComputed,
		NoMemory: c.noMemory(err),
		Late:     c.isOver() || c.remaining() < almostLate, Refused: c.refused, Limit: c.limit, Last: c.last, Timings: c.timings, CertificateExpiry: c.expiry,
	}
}

// noMemory returns why a call that ended with err was refused memory below its limit.
func (c *call) noMemory(err error) error {
	if errors.Is(err, ErrNoMemory) { // for its stack
		return ErrNoMemory
	}
	return c.instance.memory.Err
}

// guard calls do, which runs the guest. When c.ctx is done, waits of the guest end;
// abi.Grace later the guest is stopped. It is called once per call.
func (c *call) guard(do func(context.Context) error) error {
	c.pastDeadline, c.stopped = make(chan struct{}), make(chan struct{})
	release := context.AfterFunc(c.ctx, c.interrupt)
	defer func() {
		c.releaseSlot()
		if release() {
			return
		}
		c.mu.Lock() // interrupt was called, or is running
		defer c.mu.Unlock()
		if c.stopping != nil {
			c.stopping.Stop()
		}
	}()
	return do(callContext{c})
}

// interrupt ends each wait of the call, and schedules the stop of the call itself.
func (c *call) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	grace := abi.Grace
	if end, ok := c.ctx.Deadline(); ok {
		late := time.Since(end)
		c.stalled.Store(late > maxInterruptDelay)
		grace -= min(max(late, 0), maxInterruptDelay)
	}
	close(c.pastDeadline)
	c.stopping = time.AfterFunc(grace, func() { close(c.stopped) })
	for _, s := range c.sockets {
		_ = s.conn.SetDeadline(past()) // an error means that it is closed
	}
}

// isOver reports whether the deadline has passed, or the attempt was cancelled.
func (c *call) isOver() bool { return isClosed(c.pastDeadline) }

// remaining returns the time to the deadline, at least 0.
func (c *call) remaining() time.Duration {
	end, ok := c.ctx.Deadline()
	if !ok {
		return forever
	}
	return max(time.Until(end), 0)
}

// forever is longer than any attempt.
const forever time.Duration = 1 << 62

// overError is the error of a host call that is made when the call is over.
func (c *call) overError() HostError {
	if errors.Is(c.ctx.Err(), context.Canceled) {
		return networkError(dial.Cancelled())
	}
	return HostError{Errno: abi.ETIMEDOUT, Reason: probe.ReasonTCPTimeout, Detail: "the deadline has passed"}
}

// fail records an error for InputError and returns its number.
func (c *call) fail(e HostError) abi.Errno {
	c.last = e
	c.failures++
	return e.Errno
}

// failf is fail for an error of the plugin's own making.
func (c *call) failf(errno abi.Errno, format string, a ...any) abi.Errno {
	return c.fail(HostError{Errno: errno, Detail: fmt.Sprintf(format, a...)})
}

// failMemory is fail for memory of the host that the guest's request needs.
func (c *call) failMemory() abi.Errno {
	return c.fail(HostError{Errno: abi.EADDRNOTAVAIL, Reason: probe.ReasonResources, Detail: ErrNoMemory.Error(), Local: true})
}

// bytes returns the guest's memory at an address.
func (c *call) bytes(address, length uint32) ([]byte, bool) { return c.memory.Read(address, length) }
