package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// call is one call of a guest: its input, its output, and the state of its host functions. A host function
// is a method of the part that it uses, or of call if it uses several parts. All methods except interrupt
// run on the goroutine that calls the guest.
type call struct {
	sandbox  *Sandbox
	tenant   *Tenant
	instance *Instance
	input    Attempt
	reported
	failures
	hostCalls int

	life    lifetime
	cpu     cpu
	memory  memory
	log     guestLog
	open    descriptors
	streams streams
	network network
}

// access has the parts of a call that streams and network use.
type access struct {
	*failures
	memory *memory
	life   *lifetime
	cpu    *cpu
	open   *descriptors
}

// reported is the output of a guest in one call.
type reported struct {
	detail, reason, field string
	newState              string
	stateSet              bool
	tooLong               int // the length of prepared data that exceeded the limit, or 0
}

// newCall returns a call of an instance. The input is empty while an instance starts; a check of
// settings has Settings only.
func newCall(ctx context.Context, t *Tenant, i *Instance, input Attempt) *call {
	s := i.sandbox
	c := &call{sandbox: s, tenant: t, instance: i, input: input}
	c.life.ctx = ctx
	c.cpu = cpu{life: &c.life, failures: &c.failures, footprint: &i.footprint, queue: &t.slotQueue, limit: unlimited}
	if input.State != nil {
		c.cpu.limit = int64(s.config.Limits.Fuel)
	}
	c.memory = memory{Memory: i.module.Memory(), failures: &c.failures, cpu: &c.cpu}
	c.log = guestLog{memory: &c.memory, cpu: &c.cpu, tenant: t, limit: s.config.Limits.Log, target: input.Target.Name}
	c.open = descriptors{life: &c.life, cpu: &c.cpu, account: s.account, next: abi.FirstFD}
	others := access{&c.failures, &c.memory, &c.life, &c.cpu, &c.open}
	c.streams = streams{access: others, limits: &s.config.Limits}
	c.network = network{access: others, config: &s.config, shared: &s.network, tenant: t, input: &c.input}
	return c
}

// callKey is the context key under which host functions find their call.
type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// run calls a function of the guest, closes everything that the guest left open, and returns a
// report.
func (c *call) run(f *function) Report {
	began, stack, i := time.Now(), c.instance.stack[:], c.instance
	c.cpu.function = f
	i.running = &c.cpu
	defer func() { i.running = nil }()
	i.memory.Refused, i.memory.Err = false, nil
	c.cpu.grantFirst(i.fuel, c.cpu.left())
	err := c.guard(func(ctx context.Context) error { return f.CallWithStack(ctx, stack) })
	c.finish()
	timings, lasted := c.network.timings, time.Since(began)
	timings.FirstByte = c.streams.firstByte
	return Report{
		Ending: c.ending(err), Stalled: c.life.stalled.Load(), Value: api.DecodeI32(stack[0]), Err: readable(err),
		Detail: c.detail, Reason: c.reason, Field: c.field, Prepared: c.input.Prepared, TooLong: c.tooLong, Fuel: c.cpu.total(),
		Waited: c.cpu.waited + c.cpu.delayed, Starved: c.cpu.isStarved(lasted), Computes: c.cpu.isBusy(lasted, c.life.late()),
		Computed: c.cpu.computed, RanAway: c.cpu.computed > muchComputed,
		NoMemory: c.noMemory(err),
		Late:     c.life.isOver() || c.life.remaining() < almostLate, Apart: !c.network.used, Refused: c.network.refused, Limit: c.limit, Last: c.last,
		Timings: timings, CertificateExpiry: c.network.expiry,
	}
}

// noMemory returns the error with which a call that ended with err was refused memory below its
// limit, or nil.
func (c *call) noMemory(err error) error {
	if errors.Is(err, ErrNoMemory) { // it was refused memory for its stack
		return ErrNoMemory
	}
	return c.instance.memory.Err
}

// guard calls do, which runs the guest. When the context of the call is done, all waits of the
// guest end; abi.Grace later the guest is stopped. guard must be called once per call.
func (c *call) guard(do func(context.Context) error) error {
	c.life.begin()
	release := context.AfterFunc(c.life.ctx, c.interrupt)
	defer func() {
		c.cpu.releaseSlot()
		if !release() {
			c.life.cancelStop()
		}
	}()
	return do(context.WithValue(c.life.ctx, callKey{}, c)) // not wrapped in another context, so that callOf finds it at once
}

// interrupt ends all waits of the call and schedules its stop.
func (c *call) interrupt() {
	c.life.interrupt()
	c.open.interrupt()
}

// count counts a host call, and ends the call by a panic if it exceeds the limit.
func (c *call) count() {
	c.life.stopIfDue()
	if c.hostCalls++; c.hostCalls > c.sandbox.config.Limits.HostCalls {
		c.reachLimit("host_calls", abi.ENOSPC)
		panic(errLimit)
	}
	c.cpu.charge(unitsCall)
}

// finish logs an unfinished line of output and closes the connections that the guest left open.
func (c *call) finish() {
	c.log.endLine()
	c.open.closeAll()
}
