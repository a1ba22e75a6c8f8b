package sandbox

import (
	"io"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// streams transfers bytes between the guest's memory and its connections, within limits, and waits for
// connections.
type streams struct {
	access
	limits *Limits

	bytesIn, bytesOut int64
	sent              time.Time     // of the last write
	firstByte         time.Duration // see probe.Timings
	wake              chan struct{} // signalled by the readers of sockets; created with the first reader
}

// transfer reads or writes a connection, by move.
func (t *streams) transfer(a args, move func(*streams, *socket, []byte) (int, abi.Errno)) int64 {
	s, ok := t.open.get(a.i32(0))
	if !ok {
		return i32(0, abi.EBADF)
	}
	p, ok := t.memory.bytes(a.u32(1), a.u32(2))
	if !ok {
		return i32(0, abi.EFAULT)
	}
	return i32(move(t, s, p))
}

// setDeadline sets the guest's own deadlines for a connection.
func (t *streams) setDeadline(a args) int64 {
	s, ok := t.open.get(a.i32(0))
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

// read reads into the guest's memory, and waits if necessary. A result of 0 means that the peer has
// closed the connection.
func (t *streams) read(s *socket, p []byte) (int, abi.Errno) {
	left := t.limits.BytesIn - t.bytesIn
	if left <= 0 {
		return 0, t.reachLimit("bytes_in", abi.ENOSPC)
	}
	if p = p[:min(int64(len(p)), left)]; len(p) == 0 {
		return 0, abi.OK
	}
	for {
		n, err, ok := s.readBuffered(p)
		if ok {
			return t.received(s, n, err)
		}
		if t.life.isOver() {
			return 0, t.failOver(s.dest.Network, t.life.overError())
		}
		if s.hasReader() {
			if !t.await([]*socket{s}, s.readBy) && !t.life.isOver() {
				return 0, t.failOver(s.dest.Network, HostError{Errno: abi.ETIMEDOUT, Reason: probe.ReasonTCPTimeout, Detail: "the descriptor's read deadline has passed"})
			}
			continue
		}
		t.cpu.releaseSlot()
		t.open.setDeadline(func() error { return s.conn.SetReadDeadline(s.readBy) })
		n, err = s.conn.Read(p[:min(len(p), writtenByHost)])
		s.recordError(n, err)
		if t.life.isOver() && isTimeout(err) {
			return 0, t.failOver(s.dest.Network, t.life.overError())
		}
		return t.received(s, n, err)
	}
}

// received counts the bytes of a read, and returns its result for the guest.
func (t *streams) received(s *socket, n int, err error) (int, abi.Errno) {
	t.bytesIn += int64(n)
	t.cpu.charge(n / copiedPerUnit)
	if n <= 0 && err != nil && err != io.EOF {
		return 0, t.failTransfer(t.life.ctx, s.dest.Network, err)
	}
	if !t.sent.IsZero() && t.firstByte == 0 {
		t.firstByte = time.Since(t.sent)
	}
	return n, abi.OK
}

// write writes all of p, and waits if necessary.
func (t *streams) write(s *socket, p []byte) (int, abi.Errno) {
	if int64(len(p)) > t.limits.BytesOut-t.bytesOut {
		return 0, t.reachLimit("bytes_out", abi.ENOSPC)
	}
	t.bytesOut += int64(len(p))
	t.cpu.charge(len(p) / copiedPerUnit)
	if t.life.isOver() {
		return 0, t.failOver(s.dest.Network, t.life.overError())
	}
	t.cpu.releaseSlot()
	t.open.setDeadline(func() error { return s.conn.SetWriteDeadline(s.writeBy) })
	n, err := s.conn.Write(p)
	t.sent = time.Now()
	if err == nil {
		return n, abi.OK
	}
	if t.life.isOver() && isTimeout(err) {
		return 0, t.failOver(s.dest.Network, t.life.overError())
	}
	return 0, t.failTransfer(t.life.ctx, s.dest.Network, err)
}

// await returns true as soon as one of the sockets can be read. It returns false when until has
// passed (never for the zero time) or the call is over.
func (t *streams) await(sockets []*socket, until time.Time) bool {
	if anyReadable(sockets) {
		return true
	}
	t.cpu.releaseSlot()
	if len(sockets) > 1 || sockets[0].hasReader() {
		return t.awaitAny(sockets, until)
	}
	s := sockets[0] // the common case is cheap: it reads on this goroutine
	t.open.setDeadline(func() error { return s.conn.SetReadDeadline(until) })
	s.readAhead()
	_, ok := s.readable()
	return ok
}

// awaitAny is like await, but reads from each socket in a separate goroutine.
func (t *streams) awaitAny(sockets []*socket, until time.Time) bool {
	if t.wake == nil {
		t.wake = make(chan struct{}, 1)
	}
	for _, s := range sockets {
		if !s.hasReader() {
			t.open.setDeadline(func() error { return s.conn.SetReadDeadline(time.Time{}) })
			s.startReader(t.wake)
		}
	}
	passed, stop := alarm(until)
	defer stop()
	for {
		select {
		case <-t.wake:
		case <-passed:
			return false
		case <-t.life.pastDeadline:
			return false
		}
		if anyReadable(sockets) {
			return true
		}
	}
}

// alarm returns a channel that fires at a time, or nil for the zero time.
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
