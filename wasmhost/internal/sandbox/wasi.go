package sandbox

import (
	"encoding/binary"
	"time"

	"github.com/tetratelabs/wazero/sys"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The standard descriptors.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

// The types and flags of descriptors (wasi_snapshot_preview1, sections filetype and
// fdflags).
const (
	characterDevice = 2
	socketDatagram  = 5
	socketStream    = 6
	flagNonblock    = 4
)

// wasiFunctions returns the functions of WASI that work, by name.
func wasiFunctions() map[string]func(*call, args) abi.Errno {
	noArgs := func(c *call, a args) abi.Errno { return c.memory.put2(a.u32(0), a.u32(1), 0, 0) }
	success := func(*call, args) abi.Errno { return abi.OK }
	noDirectory := func(*call, args) abi.Errno { return abi.EBADF }
	return map[string]func(*call, args) abi.Errno{
		"args_get":            success,
		"args_sizes_get":      noArgs,
		"clock_res_get":       (*call).clockRes,
		"clock_time_get":      (*call).clockTime,
		"environ_get":         (*call).environ,
		"environ_sizes_get":   (*call).environSizes,
		"fd_close":            func(c *call, a args) abi.Errno { return c.streams.close(a.i32(0)) },
		"fd_fdstat_get":       func(c *call, a args) abi.Errno { return c.streams.status(a) },
		"fd_fdstat_set_flags": func(c *call, a args) abi.Errno { return c.streams.setFlags(a) },
		"fd_prestat_dir_name": noDirectory,
		"fd_prestat_get":      noDirectory,
		"fd_read":             func(c *call, a args) abi.Errno { return c.streams.readFile(a) },
		"fd_write":            func(c *call, a args) abi.Errno { return c.writeVector(a, a.u32(3)) },
		"poll_oneoff":         (*call).poll,
		"proc_exit":           func(_ *call, a args) abi.Errno { panic(sys.NewExitError(a.u32(0))) },
		"random_get":          func(c *call, a args) abi.Errno { return c.memory.random(a.u32(0), a.u32(1)) },
		"sched_yield":         func(c *call, _ args) abi.Errno { c.cpu.yield(); return abi.OK },
		"sock_recv":           func(c *call, a args) abi.Errno { return c.streams.receive(a) },
		"sock_send":           func(c *call, a args) abi.Errno { return c.writeVector(a, a.u32(4)) },
		"sock_shutdown":       func(c *call, a args) abi.Errno { return c.streams.shutdown(a) },
	}
}

func (c *call) clockRes(a args) abi.Errno {
	if _, ok := c.sandbox.clocks.read(a.u32(0), time.Now()); !ok {
		return abi.EINVAL
	}
	return c.memory.put64(a.u32(1), 1)
}

func (c *call) clockTime(a args) abi.Errno {
	ns, ok := c.sandbox.clocks.read(a.u32(0), time.Now())
	if !ok {
		return abi.EINVAL
	}
	return c.memory.put64(a.u32(2), uint64(ns))
}

// clocks has the clocks that a plugin may read.
type clocks struct {
	epoch time.Time // zero of the monotonic clock
}

// read returns the time of a clock in nanoseconds, or false if there is no such clock.
func (c clocks) read(id uint32, now time.Time) (int64, bool) {
	switch id {
	case abi.ClockReal:
		return now.UnixNano(), true
	case abi.ClockMonotonic:
		return int64(now.Sub(c.epoch)), true
	}
	return 0, false
}

func (c *call) environSizes(a args) abi.Errno {
	n := 0
	for _, v := range c.sandbox.config.Env {
		n += len(v) + 1
	}
	return c.memory.put2(a.u32(0), a.u32(1), uint32(len(c.sandbox.config.Env)), uint32(n))
}

func (c *call) environ(a args) abi.Errno {
	at, text := a.u32(0), a.u32(1)
	for i, v := range c.sandbox.config.Env {
		c.cpu.charge(unitsPart + len(v)/copiedPerUnit)
		ok := c.memory.WriteUint32Le(at+4*uint32(i), text) && c.memory.WriteString(text, v+"\x00")
		if !ok {
			return abi.EFAULT
		}
		text += uint32(len(v)) + 1
	}
	return abi.OK
}

// status returns the type and the flags of a descriptor.
func (t *streams) status(a args) abi.Errno {
	var stat [24]byte
	s, ok := t.open.get(a.i32(0))
	switch {
	case ok && s.datagram():
		stat[0] = socketDatagram
	case ok:
		stat[0] = socketStream
	case a.u32(0) <= stderr:
		stat[0] = characterDevice
	default:
		return abi.EBADF
	}
	if ok && s.nonblock {
		stat[2] = flagNonblock
	}
	binary.LittleEndian.PutUint64(stat[8:], ^uint64(0)) // all rights
	binary.LittleEndian.PutUint64(stat[16:], ^uint64(0))
	if !t.memory.Write(a.u32(1), stat[:]) {
		return abi.EFAULT
	}
	return abi.OK
}

// setFlags sets the flags of a descriptor.
func (t *streams) setFlags(a args) abi.Errno {
	s, ok := t.open.get(a.i32(0))
	switch {
	case ok:
		s.nonblock = a.u32(1)&flagNonblock != 0
		return abi.OK
	case a.u32(0) <= stderr:
		return abi.OK
	}
	return abi.EBADF
}

// readFile reads from a descriptor. Standard input is at its end.
func (t *streams) readFile(a args) abi.Errno {
	if a.u32(0) == stdin {
		return t.memory.put(a.u32(3), 0)
	}
	n, errno := t.readVector(a.i32(0), a.u32(1), a.u32(2))
	if errno != abi.OK {
		return errno
	}
	return t.memory.put(a.u32(3), uint32(n))
}

// receive reads from a connection.
func (t *streams) receive(a args) abi.Errno {
	if a.u32(3) != 0 { // MSG_PEEK and MSG_WAITALL are not supported
		return abi.ENOTSUP
	}
	n, errno := t.readVector(a.i32(0), a.u32(1), a.u32(2))
	if errno != abi.OK {
		return errno
	}
	return t.memory.put2(a.u32(4), a.u32(5), uint32(n), 0)
}

// readVector reads into the first non-empty buffer of a vector.
func (t *streams) readVector(fd int32, at, n uint32) (int, abi.Errno) {
	s, ok := t.open.get(fd)
	if !ok {
		return 0, abi.EBADF
	}
	part, errno := t.memory.firstPart(at, n)
	if errno != abi.OK || len(part) == 0 {
		return 0, errno
	}
	if _, ready := s.readable(); s.nonblock && !ready && !t.life.isOver() {
		return 0, abi.EAGAIN
	}
	return t.read(s, part)
}

// writeVector writes a vector, and stores the number of bytes written at result. To a connection it writes the first
// non-empty buffer only. A datagram must be in one buffer, since it cannot be continued.
func (c *call) writeVector(a args, result uint32) abi.Errno {
	fd, at, n := a.i32(0), a.u32(1), a.u32(2)
	s, ok := c.open.get(fd)
	var written int
	var errno abi.Errno
	switch {
	case ok && s.datagram() && n > 1:
		return c.failf(abi.ENOTSUP, "a datagram must be in one buffer, not in %d", n)
	case ok:
		var part []byte
		if part, errno = c.memory.firstPart(at, n); errno == abi.OK {
			written, errno = c.streams.write(s, part)
		}
	case fd == stdout, fd == stderr:
		written, errno = c.log.outputVector(at, n)
	default:
		return abi.EBADF
	}
	if errno != abi.OK {
		return errno
	}
	return c.memory.put(result, uint32(written))
}

// shutdown closes a connection for writing.
func (t *streams) shutdown(a args) abi.Errno {
	s, ok := t.open.get(a.i32(0))
	if !ok {
		return abi.EBADF
	}
	t.cpu.releaseSlot()
	return s.shutdown(a.u32(1))
}

// close closes a descriptor.
func (t *streams) close(fd int32) abi.Errno {
	s, ok := t.open.remove(fd)
	if !ok {
		return abi.EBADF
	}
	t.cpu.releaseSlot()
	s.close()
	return abi.OK
}
