package sandbox

import (
	"crypto/rand"
	"encoding/binary"
	"runtime"
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
	noArgs := func(c *call, a args) abi.Errno { return c.put2(a.u32(0), a.u32(1), 0, 0) }
	success := func(*call, args) abi.Errno { return abi.OK }
	noDirectory := func(*call, args) abi.Errno { return abi.EBADF }
	return map[string]func(*call, args) abi.Errno{
		"args_get":            success,
		"args_sizes_get":      noArgs,
		"clock_res_get":       clockRes,
		"clock_time_get":      clockTime,
		"environ_get":         environGet,
		"environ_sizes_get":   environSizes,
		"fd_close":            func(c *call, a args) abi.Errno { return c.close(a.i32(0)) },
		"fd_fdstat_get":       fdstat,
		"fd_fdstat_set_flags": setFlags,
		"fd_prestat_dir_name": noDirectory,
		"fd_prestat_get":      noDirectory,
		"fd_read":             fdRead,
		"fd_write":            func(c *call, a args) abi.Errno { return c.writeVector(a, a.u32(3)) },
		"poll_oneoff":         pollOneoff,
		"proc_exit":           func(_ *call, a args) abi.Errno { panic(sys.NewExitError(a.u32(0))) },
		"random_get":          func(c *call, a args) abi.Errno { return c.random(a.u32(0), a.u32(1)) },
		"sched_yield":         schedYield,
		"sock_recv":           sockRecv,
		"sock_send":           func(c *call, a args) abi.Errno { return c.writeVector(a, a.u32(4)) },
		"sock_shutdown":       sockShutdown,
	}
}

// schedYield lets other goroutines run, and other calls compute.
func schedYield(c *call, _ args) abi.Errno {
	c.releaseSlot()
	runtime.Gosched()
	return abi.OK
}

// put2 writes two numbers.
func (c *call) put2(at1, at2, n1, n2 uint32) abi.Errno {
	if !c.memory.WriteUint32Le(at1, n1) || !c.memory.WriteUint32Le(at2, n2) {
		return abi.EFAULT
	}
	return abi.OK
}

func clockRes(c *call, a args) abi.Errno {
	if _, ok := c.sandbox.clock(a.u32(0), time.Now()); !ok {
		return abi.EINVAL
	}
	if !c.memory.WriteUint64Le(a.u32(1), 1) {
		return abi.EFAULT
	}
	return abi.OK
}

func clockTime(c *call, a args) abi.Errno {
	ns, ok := c.sandbox.clock(a.u32(0), time.Now())
	switch {
	case !ok:
		return abi.EINVAL
	case !c.memory.WriteUint64Le(a.u32(2), uint64(ns)):
		return abi.EFAULT
	}
	return abi.OK
}

// clock returns the time of a clock in nanoseconds. False means that there is no such clock.
func (s *Sandbox) clock(id uint32, now time.Time) (int64, bool) {
	switch id {
	case abi.ClockReal:
		return now.UnixNano(), true
	case abi.ClockMonotonic:
		return int64(now.Sub(s.epoch)), true
	}
	return 0, false
}

// random fills the guest's memory with random bytes.
func (c *call) random(at, length uint32) abi.Errno {
	if length > abi.MaxRandom {
		return abi.EINVAL
	}
	b, ok := c.bytes(at, length)
	if !ok {
		return abi.EFAULT
	}
	c.charge(len(b) / randomPerUnit)
	rand.Read(b) // never fails
	return abi.OK
}

func environSizes(c *call, a args) abi.Errno {
	n := 0
	for _, v := range c.sandbox.config.Env {
		n += len(v) + 1
	}
	return c.put2(a.u32(0), a.u32(1), uint32(len(c.sandbox.config.Env)), uint32(n))
}

func environGet(c *call, a args) abi.Errno {
	at, text := a.u32(0), a.u32(1)
	for i, v := range c.sandbox.config.Env {
		c.charge(unitsPart + len(v)/copiedPerUnit)
		ok := c.memory.WriteUint32Le(at+4*uint32(i), text) && c.memory.WriteString(text, v+"\x00")
		if !ok {
			return abi.EFAULT
		}
		text += uint32(len(v)) + 1
	}
	return abi.OK
}

func fdstat(c *call, a args) abi.Errno {
	var stat [24]byte
	s, ok := c.sockets[a.i32(0)]
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
	if !c.memory.Write(a.u32(1), stat[:]) {
		return abi.EFAULT
	}
	return abi.OK
}

func setFlags(c *call, a args) abi.Errno {
	s, ok := c.sockets[a.i32(0)]
	switch {
	case ok:
		s.nonblock = a.u32(1)&flagNonblock != 0
		return abi.OK
	case a.u32(0) <= stderr:
		return abi.OK
	}
	return abi.EBADF
}

func fdRead(c *call, a args) abi.Errno {
	if a.u32(0) == stdin {
		return c.put(a.u32(3), 0)
	}
	n, errno := c.readVector(a.i32(0), a.u32(1), a.u32(2))
	if errno != abi.OK {
		return errno
	}
	return c.put(a.u32(3), uint32(n))
}

func (c *call) put(at, n uint32) abi.Errno {
	if !c.memory.WriteUint32Le(at, n) {
		return abi.EFAULT
	}
	return abi.OK
}

func sockRecv(c *call, a args) abi.Errno {
	if a.u32(3) != 0 { // MSG_PEEK and MSG_WAITALL are not supported
		return abi.ENOTSUP
	}
	n, errno := c.readVector(a.i32(0), a.u32(1), a.u32(2))
	if errno != abi.OK {
		return errno
	}
	return c.put2(a.u32(4), a.u32(5), uint32(n), 0)
}

// readVector reads into the first part of a vector that is not empty.
func (c *call) readVector(fd int32, at, n uint32) (int, abi.Errno) {
	s, ok := c.sockets[fd]
	if !ok {
		return 0, abi.EBADF
	}
	for i := range min(n, maxVector) {
		c.charge(unitsPart)
		part, errno := c.part(at, i)
		if errno != abi.OK {
			return 0, errno
		}
		if len(part) == 0 {
			continue
		}
		if _, ready := s.readable(); s.nonblock && !ready && !c.isOver() {
			return 0, abi.EAGAIN
		}
		return c.read(s, part)
	}
	return 0, abi.OK
}

// maxVector bounds the parts of a vector that one read or write uses.
const maxVector = 1024

// part returns one part of a vector.
func (c *call) part(at, i uint32) ([]byte, abi.Errno) {
	start, ok1 := c.memory.ReadUint32Le(at + 8*i)
	length, ok2 := c.memory.ReadUint32Le(at + 8*i + 4)
	if !ok1 || !ok2 {
		return nil, abi.EFAULT
	}
	b, ok := c.bytes(start, length)
	if !ok {
		return nil, abi.EFAULT
	}
	return b, abi.OK
}

// writeVector writes the parts of a vector as one piece, and its length to result.
func (c *call) writeVector(a args, result uint32) abi.Errno {
	fd, at, n := a.i32(0), a.u32(1), a.u32(2)
	s, ok := c.sockets[fd]
	if !ok && fd != stdout && fd != stderr {
		return abi.EBADF
	}
	all, errno := c.gather(at, n)
	if errno != abi.OK {
		return errno
	}
	written := len(all)
	if ok {
		written, errno = c.write(s, all)
	} else {
		c.logOutput(all)
	}
	if errno != abi.OK {
		return errno
	}
	return c.put(result, uint32(written))
}

// maxGather bounds the bytes that are written of a vector at once, if it has several parts:
// they may overlap, and add up to far more than the memory. It is the size of the largest
// datagram. As with any short write, the guest writes the rest.
const maxGather = 1 << 16

// gather returns a vector in one piece, or its first maxGather bytes. The bytes are valid
// until the next call of gather.
func (c *call) gather(at, n uint32) ([]byte, abi.Errno) {
	switch {
	case n > maxVector:
		return nil, abi.EINVAL
	case n == 0:
		return nil, abi.OK
	case n == 1:
		return c.part(at, 0)
	case c.instance.gathered == nil:
		if c.instance.reserve(maxGather) != nil {
			return nil, c.failMemory()
		}
		c.instance.gathered = make([]byte, 0, maxGather)
	}
	all := c.instance.gathered
	for i := range n {
		part, errno := c.part(at, i)
		if errno != abi.OK {
			return nil, errno
		}
		part = part[:min(len(part), maxGather-len(all))]
		c.charge(unitsPart + len(part)/copiedPerUnit)
		if all = append(all, part...); len(all) == maxGather {
			break
		}
	}
	return all, abi.OK
}

func sockShutdown(c *call, a args) abi.Errno {
	s, ok := c.sockets[a.i32(0)]
	if !ok {
		return abi.EBADF
	}
	c.releaseSlot()
	return s.shutdown(a.u32(1))
}

// close closes a descriptor.
func (c *call) close(fd int32) abi.Errno {
	s, ok := c.remove(fd)
	if !ok {
		return abi.EBADF
	}
	c.releaseSlot()
	s.close()
	return abi.OK
}
