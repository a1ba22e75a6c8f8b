package sandbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// nativeFunctions returns the functions of sonde_v1, by name. Results are as in package abi: a
// negative one is an error.
func nativeFunctions() map[string]func(*call, args) int64 {
	return map[string]func(*call, args) int64{
		"input":     (*call).giveInput,
		"output":    (*call).takeOutput,
		"log":       func(c *call, a args) int64 { return c.log.record(a) },
		"log_level": func(c *call, _ args) int64 { return c.log.lowest() },
		"metric":    (*call).setMetric,
		"clock":     func(c *call, a args) int64 { ns, _ := c.sandbox.clocks.read(a.u32(0), time.Now()); return ns },
		"remaining": func(c *call, _ args) int64 { return int64(c.life.remaining()) },
		"random":    func(c *call, a args) int64 { return i32(0, c.memory.random(a.u32(0), a.u32(1))) },
		"resolve":   func(c *call, a args) int64 { return c.network.resolve(a) },
		"dial":      func(c *call, a args) int64 { return c.network.dial(a) },
		"start_tls": func(c *call, a args) int64 { return c.network.startTLS(a) },
		"conn_info": func(c *call, a args) int64 { return c.network.connInfo(a) },
		"deadline":  func(c *call, a args) int64 { return c.streams.setDeadline(a) },
		"read":      func(c *call, a args) int64 { return c.streams.transfer(a, (*streams).read) },
		"write":     func(c *call, a args) int64 { return c.streams.transfer(a, (*streams).write) },
		"close":     func(c *call, a args) int64 { return i32(0, c.streams.close(a.i32(0))) },
		"hold":      func(c *call, a args) int64 { return c.network.hold(a) },
		"held":      func(c *call, a args) int64 { return c.network.held(a) },
	}
}

// i32 returns a result, or an error as a negative number.
func i32(n int, errno abi.Errno) int64 {
	if errno != abi.OK {
		return int64(api.EncodeI32(-int32(errno)))
	}
	return int64(api.EncodeI32(int32(n)))
}

// giveInput implements input.
func (c *call) giveInput(a args) int64 {
	var text string
	switch a.u32(0) {
	case abi.InputSettings:
		if c.input.Settings != nil {
			text = c.input.Settings.JSON
		}
	case abi.InputTarget:
		text = c.targetLines()
	case abi.InputState:
		if c.input.State != nil {
			c.input.State.mu.Lock()
			text = c.input.State.text
			c.input.State.mu.Unlock()
		}
	case abi.InputPrepared:
		text = c.input.Prepared
	case abi.InputError:
		var b strings.Builder
		c.cpu.charge(len(c.last.Detail) / textPerUnit)
		line(&b, "reason", string(c.last.Reason))
		line(&b, "detail", c.last.Detail)
		text = b.String()
	default:
		return i32(0, abi.ENOTSUP)
	}
	return c.memory.give(text, a.u32(1), a.u32(2))
}

// targetLines returns the target in the format of InputTarget.
func (c *call) targetLines() string {
	c.cpu.charge(unitsPort * len(c.input.Target.Ports))
	var b strings.Builder
	line(&b, "name", c.input.Target.Name)
	if c.input.Target.Address != "" {
		line(&b, "address", c.input.Target.Address)
	}
	for _, name := range c.input.Target.PortNames() {
		line(&b, "port", strconv.Itoa(int(c.input.Target.Ports[name]))+" "+name)
	}
	if c.input.Settings != nil {
		line(&b, "revision", c.input.Settings.Revision)
	}
	return b.String()
}

// takeOutput implements output.
func (c *call) takeOutput(a args) int64 {
	kind := a.u32(0)
	max, ok := maxOutput[kind]
	if !ok {
		return i32(0, abi.ENOTSUP)
	}
	if kind == abi.OutputDetail {
		a = args{a[0], a[1], uint64(min(a.u32(2), abi.MaxDetail))} // the rest is cut
	}
	b, errno := c.memory.argument(a, 1, max)
	if kind == abi.OutputPrepared && errno == abi.E2BIG {
		c.tooLong = int(a.u32(2))
	}
	if errno != abi.OK {
		return i32(0, errno)
	}
	text := string(b)
	c.cpu.charge(len(text) / copiedPerUnit)
	switch kind {
	case abi.OutputDetail:
		c.detail = text
	case abi.OutputReason:
		if !abi.CheckReason(text) {
			return i32(0, c.failf(abi.EINVAL, "reason %.80q is invalid: write a layer and a cause, such as redis.loading", text))
		}
		c.reason = text
	case abi.OutputState:
		c.newState, c.stateSet = text, true
	case abi.OutputField:
		c.field = text
	case abi.OutputPrepared:
		if c.input.State != nil || c.input.Settings == nil {
			return i32(0, c.failf(abi.ENOTCAPABLE, "only sonde_configure can prepare settings"))
		}
		c.input.Prepared = text
	}
	return 0
}

// maxOutput is the maximum length of each kind of output.
var maxOutput = map[uint32]int{
	abi.OutputDetail: abi.MaxDetail,
	abi.OutputReason: abi.MaxReason,
	abi.OutputState:  abi.MaxState,
	abi.OutputField:  abi.MaxField,

	abi.OutputPrepared: abi.MaxPrepared,
}
