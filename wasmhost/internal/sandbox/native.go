package sandbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// nativeFunctions returns the functions of sonde_v1, by name. Their results are those of
// package abi: a negative one is an error.
func nativeFunctions() map[string]func(*call, args) int64 {
	return map[string]func(*call, args) int64{
		"input":     input,
		"output":    output,
		"log":       logRecord,
		"log_level": logLevel,
		"metric":    setMetric,
		"clock":     func(c *call, a args) int64 { ns, _ := c.sandbox.clock(a.u32(0), time.Now()); return ns },
		"remaining": func(c *call, _ args) int64 { return int64(c.remaining()) },
		"random":    func(c *call, a args) int64 { return i32(0, c.random(a.u32(0), a.u32(1))) },
		"resolve":   resolveName,
		"dial":      dialPlace,
		"start_tls": startTLS,
		"conn_info": connInfo,
		"deadline":  setDeadline,
		"read":      func(c *call, a args) int64 { return c.transfer(a, (*call).read) },
		"write":     func(c *call, a args) int64 { return c.transfer(a, (*call).write) },
		"close":     func(c *call, a args) int64 { return i32(0, c.close(a.i32(0))) },
		"hold":      holdSocket,
		"held":      heldSocket,
	}
}

// i32 returns a result, or an error as a negative number.
func i32(n int, errno abi.Errno) int64 {
	if errno != abi.OK {
		return int64(api.EncodeI32(-int32(errno)))
	}
	return int64(api.EncodeI32(int32(n)))
}

// argument returns the guest's bytes whose address and length are arguments i and i+1. More
// than max are an error.
func (c *call) argument(a args, i, max int) ([]byte, abi.Errno) {
	at, length := a.u32(i), a.u32(i+1)
	if length > uint32(max) {
		return nil, c.failf(abi.E2BIG, "text of %d bytes is too long, at most %d are allowed", length, max)
	}
	b, ok := c.bytes(at, length)
	if !ok {
		return nil, c.failf(abi.EFAULT, "%d bytes at address %d are outside of the memory", length, at)
	}
	return b, abi.OK
}

// text is argument as a string.
func (c *call) text(a args, i, max int) (string, abi.Errno) {
	b, errno := c.argument(a, i, max)
	c.charge(len(b) / copiedPerUnit)
	return string(b), errno
}

// give writes text to the guest's memory, if there is room, and returns its length.
func (c *call) give(text string, at, room uint32) int64 {
	c.charge(len(text) / copiedPerUnit)
	if len(text) <= int(room) && !c.memory.WriteString(at, text) {
		return i32(0, abi.EFAULT)
	}
	return i32(len(text), abi.OK)
}

func input(c *call, a args) int64 {
	var text string
	switch a.u32(0) {
	case abi.InputSettings:
		if c.settings != nil {
			text = c.settings.JSON
		}
	case abi.InputTarget:
		text = c.targetLines()
	case abi.InputState:
		if c.state != nil {
			c.state.mu.Lock()
			text = c.state.text
			c.state.mu.Unlock()
		}
	case abi.InputPrepared:
		text = c.prepared
	case abi.InputError:
		var b strings.Builder
		c.charge(len(c.last.Detail) / textPerUnit)
		line(&b, "reason", string(c.last.Reason))
		line(&b, "detail", c.last.Detail)
		text = b.String()
	default:
		return i32(0, abi.ENOTSUP)
	}
	return c.give(text, a.u32(1), a.u32(2))
}

// targetLines returns the target as InputTarget has it.
func (c *call) targetLines() string {
	c.charge(unitsPort * len(c.target.Ports))
	var b strings.Builder
	line(&b, "name", c.target.Name)
	if c.target.Address != "" {
		line(&b, "address", c.target.Address)
	}
	for _, name := range c.target.PortNames() {
		line(&b, "port", strconv.Itoa(int(c.target.Ports[name]))+" "+name)
	}
	if c.settings != nil {
		line(&b, "revision", c.settings.Revision)
	}
	return b.String()
}

func output(c *call, a args) int64 {
	kind := a.u32(0)
	max, ok := maxOutput[kind]
	if !ok {
		return i32(0, abi.ENOTSUP)
	}
	if kind == abi.OutputDetail {
		a = args{a[0], a[1], uint64(min(a.u32(2), abi.MaxDetail))} // the rest is cut
	}
	b, errno := c.argument(a, 1, max)
	if kind == abi.OutputPrepared && errno == abi.E2BIG {
		c.tooLong = int(a.u32(2))
	}
	if errno != abi.OK {
		return i32(0, errno)
	}
	text := string(b)
	c.charge(len(text) / copiedPerUnit)
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
		if c.state != nil || c.settings == nil {
			return i32(0, c.failf(abi.ENOTCAPABLE, "only sonde_configure can prepare settings"))
		}
		c.prepared = text
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

// transfer moves bytes between a connection and the guest's memory.
func (c *call) transfer(a args, move func(*call, *socket, []byte) (int, abi.Errno)) int64 {
	s, ok := c.sockets[a.i32(0)]
	if !ok {
		return i32(0, abi.EBADF)
	}
	p, ok := c.bytes(a.u32(1), a.u32(2))
	if !ok {
		return i32(0, abi.EFAULT)
	}
	return i32(move(c, s, p))
}

func setDeadline(c *call, a args) int64 {
	s, ok := c.sockets[a.i32(0)]
	if !ok {
		return i32(0, abi.EBADF)
	}
	var at time.Time
	if ns := int64(a[2]); ns > 0 {
		at = time.Now().Add(time.Duration(ns))
	}
	if a.u32(1)&abi.DeadlineRead != 0 {
		s.readBy = at
	}
	if a.u32(1)&abi.DeadlineWrite != 0 {
		s.writeBy = at
	}
	return 0
}

func holdSocket(c *call, a args) int64 {
	key, errno := c.key(a, 1)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if c.state == nil {
		return i32(0, c.failf(abi.ENOTCAPABLE, "connections can be held in an attempt only"))
	}
	fd := a.i32(0)
	s, ok := c.sockets[fd]
	if !ok {
		return i32(0, abi.EBADF)
	}
	c.releaseSlot()
	if !c.separate(s) {
		return i32(0, c.failMemory())
	}
	c.remove(fd)
	s.stopReader()
	_ = s.conn.SetDeadline(time.Time{}) // an error means that it is closed, as its next use finds
	if wake := c.state.limitWakes(c.wakeProbe); wake != nil {
		if s.watch == nil {
			s.watch = c.sandbox.watcher.Watch(s.conn)
		}
		s.watch.Arm(wake)
	}
	if errno := c.state.hold(key, s); errno != abi.OK {
		s.watch.Disarm()
		c.addAs(fd, s)
		return i32(0, c.reachLimit("held", errno))
	}
	return 0
}

func heldSocket(c *call, a args) int64 {
	key, errno := c.key(a, 0)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if c.state == nil {
		return i32(0, abi.ENOENT)
	}
	if len(c.sockets) >= c.sandbox.config.Limits.Connections {
		return i32(0, c.reachLimit("connections", abi.EMFILE))
	}
	s, ok := c.state.popConn(key)
	if !ok {
		return i32(0, abi.ENOENT)
	}
	s.watch.Disarm()
	s.nonblock = a.u32(2)&abi.FlagNonblock != 0
	s.readBy, s.writeBy = time.Time{}, time.Time{}
	return i32(c.add(s), abi.OK)
}

func (c *call) key(a args, i int) (string, abi.Errno) {
	key, errno := c.text(a, i, abi.MaxKey)
	if errno == abi.OK && key == "" {
		errno = c.failf(abi.EINVAL, "key must not be empty")
	}
	return key, errno
}
