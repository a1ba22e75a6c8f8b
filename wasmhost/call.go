package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// call is one call of a guest: what it may do, what it has, and what it has said.
// Its functions run in the goroutine that calls the guest, but interrupt.
type call struct {
	ctx       context.Context
	plugin    *Plugin
	instance  *instance
	memory    api.Memory
	handler   *Handler     // nil while an instance starts
	target    probe.Target // empty but in an attempt
	canDial   bool
	wakeProbe func() // asks for the probe's next attempt; nil where nobody listens

	// What is used up.
	hostCalls, dials  int
	bytesIn, bytesOut int64
	logged            int

	// What the guest has said.
	detail, reason, field string
	state                 string
	stateSet              bool

	last     trouble // of the call of the host that did not work last
	failures int     // how many did not work
	refused  string  // the place that is not granted, if one was asked for
	limit    string  // the limit that was reached, if one was
	timings  probe.Timings
	sent     time.Time     // when something was written first, until it is answered
	over     chan struct{} // closed when the deadline has passed or the attempt was cancelled
	hard     chan struct{} // closed when the call is stopped
	stopped  bool          // it did not end by itself
	wake     chan struct{} // told by pumps; made when there is one
	mu       sync.Mutex    // of sockets and over, for interrupt
	sockets  map[int32]*socket
	stopping *time.Timer
}

// callKey is how functions of the host find their call.
type callKey struct{}

// callContext is the context of a guest's call, which is done when the guest is stopped.
// It finds the call without a walk.
type callContext struct{ call *call }

// Deadline says that there is none: the attempt's is not that of the call.
func (c callContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the guest is stopped.
func (c callContext) Done() <-chan struct{} { return c.call.hard }

// Err returns context.Canceled once the guest is stopped.
func (c callContext) Err() error {
	if isClosed(c.call.hard) {
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

// run calls a function of the guest and returns its result.
func (c *call) run(f api.Function) (int32, error) {
	stack := c.instance.stack[:]
	err := c.guarded(func(ctx context.Context) error { return c.plugin.guard.call(ctx, f, stack) })
	return api.DecodeI32(stack[0]), err
}

// guarded does something that runs the guest. The first deadline is ctx's; abi.Grace
// after ctx is done the guest is stopped. It is called once in a call.
func (c *call) guarded(do func(context.Context) error) error {
	c.over, c.hard = make(chan struct{}), make(chan struct{})
	release := context.AfterFunc(c.ctx, c.interrupt)
	defer func() {
		if !release() {
			c.calm()
		}
	}()
	err := do(callContext{c})
	if c.stopped = isClosed(c.hard); c.stopped && err == nil {
		err = errStopped // the instance is being closed
	}
	return err
}

// calm takes the stop back that interrupt has ordered.
func (c *call) calm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping != nil {
		c.stopping.Stop()
	}
}

// interrupt ends each wait of the call, and the call itself a little later.
func (c *call) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.over)
	c.stopping = time.AfterFunc(abi.Grace, func() { close(c.hard) })
	for _, s := range c.sockets {
		_ = s.conn.SetDeadline(past()) // an error says that it is closed
	}
}

// isOver reports whether the deadline has passed, or the attempt was cancelled.
func (c *call) isOver() bool { return isClosed(c.over) }

// late is the trouble of what is asked for when the call is over.
func (c *call) late() trouble {
	if errors.Is(c.ctx.Err(), context.Canceled) {
		return trouble{abi.ECONNABORTED, probe.ReasonStopped, "the attempt was cancelled"}
	}
	return trouble{abi.ETIMEDOUT, probe.ReasonTCPTimeout, "the deadline has passed"}
}

// fail remembers a trouble for InputError and returns its number.
func (c *call) fail(t trouble) abi.Errno {
	c.last = t
	c.failures++
	return t.errno
}

// failf is fail for what is the plugin's own fault.
func (c *call) failf(errno abi.Errno, format string, a ...any) abi.Errno {
	return c.fail(trouble{errno: errno, detail: fmt.Sprintf(format, a...)})
}

// errLimit and errStopped are the panics that end a guest that goes on in spite of a
// limit, or after it was stopped.
var (
	errLimit   = errors.New("limit")
	errStopped = errors.New("stopped")
)

// exhaust notes that a limit was reached.
func (c *call) exhaust(limit string) abi.Errno {
	c.limit = limit
	return c.failf(abi.ENOSPC, "the limit %s was reached", limit)
}

// count counts a call of the host, and stops the guest after the last one.
func (c *call) count() {
	c.stopHere()
	if c.hostCalls++; c.hostCalls > c.plugin.limits.HostCalls {
		c.exhaust("host_calls")
		panic(errLimit)
	}
}

// stopHere ends a guest that was stopped.
func (c *call) stopHere() {
	if isClosed(c.hard) {
		panic(errStopped)
	}
}

// bytes returns the guest's memory at an address.
func (c *call) bytes(address, length uint32) ([]byte, bool) { return c.memory.Read(address, length) }

// add gives a connection a descriptor.
func (c *call) add(s *socket) int {
	fd := c.instance.nextFD
	c.instance.nextFD++
	c.restore(fd, s)
	return int(fd)
}

// restore gives a connection the descriptor that it had.
func (c *call) restore(fd int32, s *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sockets == nil {
		c.sockets = make(map[int32]*socket)
	}
	c.sockets[fd] = s
	if c.isOver() {
		_ = s.conn.SetDeadline(past()) // an error says that it is closed
	}
}

// remove takes a connection from the guest.
func (c *call) remove(fd int32) (*socket, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sockets[fd]
	delete(c.sockets, fd)
	return s, ok
}

// finish closes what the guest has left open and frees what is bound to the call.
func (c *call) finish() {
	c.mu.Lock()
	open := c.sockets
	c.sockets = nil
	c.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

// unlessOver sets a deadline of a connection, but when the call is over, which has
// set them all. An error says that the connection is closed, as its use will.
func (c *call) unlessOver(set func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isOver() {
		_ = set()
	}
}
