//go:build !386 && !s390x

package nonblock

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// exchangeState is the part of an Attempt that an Exchange uses.
type exchangeState struct {
	to       netip.AddrPort
	request  []byte    // nil once sent; it may share memory with the attempt's Buffer
	since    time.Time // when the phase began
	sent     int       // bytes of the request that were sent
	reads    int       // reads that returned a piece of the response
	phase    Phase
	reusable bool     // the socket may be added to Spares
	conn     keptConn // a kept connection that previous attempts used; none if the connection is new
}

const (
	// maxReads is the maximum number of pieces in which a response may come. The whole response is judged again after each piece,
	// so a peer that sends single bytes could otherwise block the engine's loop.
	maxReads = 64

	// minBuffer is the initial size of a Buffer, in bytes: most responses fit.
	minBuffer = 1 << 10

	// maxKeptBuffer is the maximum size of the Buffers that are kept for other attempts, in bytes: there may be thousands.
	maxKeptBuffer = 4 << 10
)

// status is the result of a transfer in an attempt.
type status uint8

const (
	wouldBlock  status = iota // the attempt must wait
	requestSent               // the connection is open, and the request is sent
	received                  // a piece of the response was added to the Buffer
	eof                       // the peer has closed the connection; the Buffer has the whole response
	failed                    // the connection failed, as described by the Fault
	unsupported               // Probe must make the attempt
)

// Step continues an attempt until it would have to wait.
func (x *Exchange) Step(a *Attempt) Progress {
	switch a.Event {
	case StepBegin:
		return x.begin(a)
	case StepLate:
		result, _ := x.Protocol.Fail(x.response(a), x.fault(a, "", 0))
		return x.done(a, result)
	case StepStop:
		return x.done(a, probe.Broken(probe.ReasonStopped, "the attempt was cancelled"))
	}
	return x.advance(a)
}

func (x *Exchange) begin(a *Attempt) Progress {
	a.FD, a.Buffer, a.Result = -1, a.Buffer[:0], probe.Result{}
	to, request, ok := x.Protocol.Request(a)
	if !ok || x.fallback.Has(to) {
		return StepBlock
	}
	a.exchange = exchangeState{to: to, request: request, since: time.Now()}
	if c := a.Kept.take(to, x.FreshEvery); !c.isNone() {
		if isIdle(c.fd) {
			a.FD, a.Set, a.exchange.conn, a.exchange.phase = c.fd, c.set, c, Sending
			return x.advance(a)
		}
		a.Kept.ended(c)
	}
	return x.open(a)
}

// isIdle reports whether a connection is open and has no unread data. Unread data would not be the response to the next request;
// the peer may have sent it before closing the connection.
func isIdle(fd int) bool {
	var b [1]byte
	_, errno := receiveFrom(fd, b[:])
	return errno == syscall.EAGAIN
}

// open opens a new connection for an attempt.
func (x *Exchange) open(a *Attempt) Progress {
	if n := a.Target.Network; n != nil {
		var err error
		if a.FD, err = OpenIn(n, domainOf(a.exchange.to), streamSocket, syscall.IPPROTO_TCP); err != nil {
			a.FD = -1
			return StepBlock // Probe determines the reason
		}
	}
	if call, errno := x.connect(a); errno != 0 {
		return x.fail(a, x.fault(a, call, errno))
	}
	if x.DetectSelf && localAddress(a.FD) == a.exchange.to {
		x.closeSocket(a)
		return StepBlock
	}
	return x.advance(a)
}

// connect starts to connect a socket. If a system call fails, connect returns its name and error.
func (x *Exchange) connect(a *Attempt) (call string, errno syscall.Errno) {
	if a.FD < 0 {
		if a.FD, errno = x.takeSocket(a); errno != 0 {
			a.FD = -1
			return "socket", errno
		}
	}
	if x.Socket.HalfOpen || x.Socket.ClientFirst {
		if errno := setOption(a.FD, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0); errno != 0 {
			return "setsockopt", errno
		}
	}
	if source := x.source(a); source.IsValid() {
		_ = setOption(a.FD, syscall.IPPROTO_IP, BindAddressNoPort, 1) // unknown before Linux 4.2, and not required
		if errno := bindSocket(a.FD, netip.AddrPortFrom(source, 0)); errno != 0 {
			return "bind", errno
		}
	}
	if call, errno := x.setKeepAlive(a.FD); errno != 0 {
		return call, errno
	}
	if errno = connectSocket(a.FD, a.exchange.to); errno == syscall.EINPROGRESS {
		errno = 0
	}
	return "connect", errno
}

// setKeepAlive makes the system send keepalive packets, if they are enabled.
func (x *Exchange) setKeepAlive(fd int) (call string, errno syscall.Errno) {
	k := &x.Socket.KeepAlive
	if !k.Enable {
		return "", 0
	}
	for _, set := range [...]struct {
		level, option int
		value         int32
	}{
		{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, int32(k.Idle / time.Second)},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, int32(k.Interval / time.Second)},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, int32(k.Count)},
	} {
		if errno := setOption(fd, set.level, set.option, set.value); errno != 0 {
			return "setsockopt", errno
		}
	}
	return "", 0
}

// takeSocket returns a spare socket or a new one.
func (x *Exchange) takeSocket(a *Attempt) (fd int, errno syscall.Errno) {
	to := a.exchange.to
	if a.Spares == nil || a.Kept != nil || !x.Socket.HalfOpen && !x.Socket.ClientFirst || x.Socket.Source.IsValid() || !to.Addr().Is4() {
		return openSocket(to)
	}
	a.exchange.reusable = true
	if fd, ok := a.Spares.Take(); ok {
		return fd, 0
	}
	return openSocket(to)
}

// advance continues an attempt that has begun until it would have to wait.
func (x *Exchange) advance(a *Attempt) Progress {
	for {
		transfer := x.send
		if a.exchange.phase == Receiving {
			transfer = x.receive
		}
		status, fault := transfer(a)
		if !a.exchange.conn.isNone() && (status == failed || status == eof) && len(x.response(a)) == 0 {
			return x.reopen(a)
		}
		switch status {
		case wouldBlock:
			return StepWait
		case failed:
			return x.fail(a, fault)
		case unsupported:
			return x.fallBack(a)
		case requestSent:
			if x.MaxResponse == 0 {
				return x.finish(a, probe.Succeed(""))
			}
			if !a.exchange.conn.isNone() && a.Event == StepBegin { // it returned EAGAIN just before the request
				return StepWait
			}
			continue
		}
		switch result, progress := x.Protocol.Judge(a.Buffer, status == eof); {
		case progress == StepKeep && a.Kept != nil && status != eof:
			return x.keep(a, result)
		case progress == StepDone, progress == StepKeep:
			return x.finish(a, result)
		case progress == StepBlock, status == eof:
			return x.fallBack(a)
		}
	}
}

// reopen opens a new connection for an attempt whose kept connection has ended: the server may have closed it while the request was
// in transit. Package net/http retries in the same way.
func (x *Exchange) reopen(a *Attempt) Progress {
	defer a.Kept.ended(a.exchange.conn) // after the new socket is open, which would otherwise get the same number
	a.Set = nil
	return x.begin(a)
}

// keep does the same as done, but keeps the connection for another attempt.
func (x *Exchange) keep(a *Attempt, r probe.Result) Progress {
	r = x.judgeLoss(a, r)
	c := a.exchange.conn
	if c.isNone() {
		c = keptConn{fd: a.FD, to: a.exchange.to, watch: kept.watch(descriptor(a.FD))}
	}
	c.set = a.Set
	a.exchange.conn, a.FD = keptConn{}, -1
	a.Kept.put(c, a.Wake)
	return x.done(a, r)
}

// send sends the request. Sending succeeds only once the connection is open, so even an empty request is sent.
func (x *Exchange) send(a *Attempt) (status, Fault) {
	e := &a.exchange
	for e.phase == Connecting || e.sent < len(e.request) {
		now := time.Now()
		n, errno := sendTo(a.FD, e.request[e.sent:])
		switch {
		case errno == syscall.EAGAIN:
			return wouldBlock, Fault{}
		case errno != 0 && e.phase == Connecting:
			return failed, x.fault(a, "connect", errno)
		case errno != 0:
			return failed, x.fault(a, "write", errno)
		case e.phase == Connecting:
			a.Result.Timings.Connect, a.Result.Timings.Connected = now.Sub(e.since), true
			e.phase = Sending
		}
		e.sent += n
	}
	if len(e.request) > 0 {
		e.since = time.Now()
	}
	e.phase, e.request, a.Buffer = Receiving, nil, a.Buffer[:0]
	return requestSent, Fault{}
}

// receive appends a piece of the response to the Buffer.
func (x *Exchange) receive(a *Attempt) (status, Fault) {
	e := &a.exchange
	if e.reads >= maxReads || len(a.Buffer) >= x.MaxResponse {
		return unsupported, Fault{}
	}
	if len(a.Buffer) == cap(a.Buffer) || cap(a.Buffer) < min(minBuffer, x.MaxResponse) { // the buffer of the request may be small
		grown := make([]byte, len(a.Buffer), min(max(minBuffer, 2*cap(a.Buffer)), x.MaxResponse))
		copy(grown, a.Buffer)
		a.Buffer = grown
	}
	n, errno := receiveFrom(a.FD, a.Buffer[len(a.Buffer):min(cap(a.Buffer), x.MaxResponse)])
	switch {
	case errno == syscall.EAGAIN:
		return wouldBlock, Fault{}
	case errno != 0:
		return failed, x.fault(a, "read", errno)
	case n == 0:
		return eof, Fault{}
	}
	if len(a.Buffer) == 0 {
		a.Result.Timings.FirstByte += time.Since(e.since)
	}
	a.Buffer = a.Buffer[:len(a.Buffer)+n]
	e.reads++
	return received, Fault{}
}

// response returns the part of the response that was received.
func (x *Exchange) response(a *Attempt) []byte {
	if a.exchange.phase != Receiving {
		return nil // the Buffer may contain the request
	}
	return a.Buffer
}

func (x *Exchange) fault(a *Attempt, call string, errno syscall.Errno) Fault {
	f := Fault{Phase: a.exchange.phase, Call: call, Errno: errno, Remote: a.exchange.to}
	switch {
	case f.Phase != Connecting:
		f.Local = localAddress(a.FD)
	default:
		if source := x.source(a); source.IsValid() {
			f.Local = netip.AddrPortFrom(source, 0)
		}
	}
	return f
}

// source returns the address to connect from; it is not valid if the system chooses it.
func (x *Exchange) source(a *Attempt) netip.Addr {
	if x.Socket.Source.IsValid() {
		return x.Socket.Source
	}
	return a.Target.Network.SourceAddr()
}

// fail ends an attempt whose connection failed.
func (x *Exchange) fail(a *Attempt, f Fault) Progress {
	result, progress := x.Protocol.Fail(x.response(a), f)
	if progress == StepBlock {
		return x.fallBack(a)
	}
	return x.done(a, result)
}

// fallBack leaves an attempt to Probe and, for a while, all attempts at the same address.
func (x *Exchange) fallBack(a *Attempt) Progress {
	x.fallback.Add(a.exchange.to)
	x.closeSocket(a)
	return StepBlock
}

// finish does the same as done for a connection that is no longer needed. If the connection is half open, or the peer has closed
// it, finish resets it: the peer then need not remember the connection, and this side can reuse the socket.
func (x *Exchange) finish(a *Attempt, r probe.Result) Progress {
	r = x.judgeLoss(a, r)
	if a.exchange.reusable && (x.Socket.HalfOpen || x.ReuseSocket && atEOF(a.FD)) && disconnect(a.FD) == 0 && a.Spares.Put(a.FD) {
		a.FD = -1
	}
	return x.done(a, r)
}

// judgeLoss returns the result of an attempt, with retransmissions over a new connection taken into account. A socket with
// retransmissions is not reused: before Linux 5.6, its counter would not be reset.
func (x *Exchange) judgeLoss(a *Attempt, r probe.Result) probe.Result {
	t := &a.Result.Timings
	if r.Outcome != probe.Success || t.Connect+t.FirstByte < MaySendAgain || !a.exchange.conn.isNone() {
		return r
	}
	n := retransmissions(a.FD)
	a.exchange.reusable = a.exchange.reusable && n == 0
	return Lossy(r, n)
}

// atEOF reports whether the peer has closed a connection and all its data was read.
func atEOF(fd int) bool {
	var b [1]byte
	n, errno := receiveFrom(fd, b[:])
	return n == 0 && errno == 0
}

// done ends an attempt with a result, to which it adds the timings.
func (x *Exchange) done(a *Attempt, r probe.Result) Progress {
	r.Timings = a.Result.Timings
	if a.exchange.phase == Connecting && r.Reason.Evidence() != probe.Answered {
		r.Timings.Connect += time.Since(a.exchange.since)
	}
	a.Result = r
	if cap(a.Buffer) > maxKeptBuffer {
		a.Buffer = nil
	}
	x.closeSocket(a)
	return StepDone
}

func (x *Exchange) closeSocket(a *Attempt) {
	if a.FD < 0 {
		return
	}
	if c := a.exchange.conn; !c.isNone() {
		a.Kept.ended(c)
		a.exchange.conn, a.FD = keptConn{}, -1
		return
	}
	if x.Socket.HalfOpen && disconnect(a.FD) != 0 {
		_ = setOption(a.FD, syscall.SOL_SOCKET, syscall.SO_LINGER, 1, 0) // makes close send the reset
	}
	closeSocket(a.FD)
	a.FD = -1
}
