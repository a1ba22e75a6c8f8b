package sandbox

import (
	"io"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// read reads into the guest's memory and waits if necessary. 0 means that the peer has
// closed the connection.
func (c *call) read(s *socket, p []byte) (int, abi.Errno) {
	left := c.sandbox.config.Limits.BytesIn - c.bytesIn
	if left <= 0 {
		return 0, c.reachLimit("bytes_in", abi.ENOSPC)
	}
	if p = p[:min(int64(len(p)), left)]; len(p) == 0 {
		return 0, abi.OK
	}
	for {
		n, err, ok := s.readBuffered(p)
		if ok {
			return c.received(n, err)
		}
		if c.isOver() {
			return 0, c.fail(c.overError())
		}
		if s.hasReader() {
			if !c.await([]*socket{s}, s.readBy) && !c.isOver() {
				return 0, c.fail(HostError{Errno: abi.ETIMEDOUT, Reason: probe.ReasonTCPTimeout, Detail: "the descriptor's read deadline has passed"})
			}
			continue
		}
		c.releaseSlot()
		c.setDeadline(func() error { return s.conn.SetReadDeadline(s.readBy) })
		n, err = s.conn.Read(p[:min(len(p), writtenByHost)])
		s.recordError(n, err)
		if c.isOver() && isTimeout(err) {
			return 0, c.fail(c.overError())
		}
		return c.received(n, err)
	}
}

// received counts what the guest has read.
func (c *call) received(n int, err error) (int, abi.Errno) {
	c.bytesIn += int64(n)
	c.charge(n / copiedPerUnit)
	if n <= 0 && err != nil && err != io.EOF {
		return 0, c.failNetwork(c.ctx, dial.Transferring, err)
	}
	if !c.sent.IsZero() && c.timings.FirstByte == 0 {
		c.timings.FirstByte = time.Since(c.sent)
	}
	return n, abi.OK
}

// write writes all of p, and waits if necessary.
func (c *call) write(s *socket, p []byte) (int, abi.Errno) {
	if int64(len(p)) > c.sandbox.config.Limits.BytesOut-c.bytesOut {
		return 0, c.reachLimit("bytes_out", abi.ENOSPC)
	}
	c.bytesOut += int64(len(p))
	c.charge(len(p) / copiedPerUnit)
	if c.isOver() {
		return 0, c.fail(c.overError())
	}
	c.releaseSlot()
	c.setDeadline(func() error { return s.conn.SetWriteDeadline(s.writeBy) })
	n, err := s.conn.Write(p)
	c.sent = time.Now()
	if err == nil {
		return n, abi.OK
	}
	if c.isOver() && isTimeout(err) {
		return 0, c.fail(c.overError())
	}
	return 0, c.failNetwork(c.ctx, dial.Transferring, err)
}

// await returns true as soon as one of the sockets can be read, and false when until
// has passed (never for the zero time) or the call is over.
func (c *call) await(sockets []*socket, until time.Time) bool {
	if anyReadable(sockets) {
		return true
	}
	c.releaseSlot()
	if len(sockets) > 1 || sockets[0].hasReader() {
		return c.awaitAny(sockets, until)
	}
	s := sockets[0] // the common case is the cheap one: it reads on this goroutine
	c.setDeadline(func() error { return s.conn.SetReadDeadline(until) })
	s.readAhead()
	_, ok := s.readable()
	return ok
}

// awaitAny reads from each socket on a goroutine of its own.
func (c *call) awaitAny(sockets []*socket, until time.Time) bool {
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	for _, s := range sockets {
		if !s.hasReader() {
			c.setDeadline(func() error { return s.conn.SetReadDeadline(time.Time{}) })
			s.startReader(c.wake)
		}
	}
	passed, stop := alarm(until)
	defer stop()
	for {
		select {
		case <-c.wake:
		case <-passed:
			return false
		case <-c.pastDeadline:
			return false
		}
		for _, s := range sockets {
			s.pollReader()
		}
		if anyReadable(sockets) {
			return true
		}
	}
}

// alarm returns a channel that receives at a time; nil for the zero time.
func alarm(at time.Time) (passed <-chan time.Time, stop func() bool) {
	if at.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(time.Until(at))
	return t.C, t.Stop
}

func anyReadable(sockets []*socket) bool {
	for _, s := range sockets {
		s.pollReader()
		if _, ok := s.readable(); ok {
			return true
		}
	}
	return false
}
