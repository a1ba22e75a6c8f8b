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
	request  []byte    // nil once it is sent; it may share memory with the attempt's Buffer
	since    time.Time // when the phase began
	sent     int       // bytes of the request
	reads    int       // that returned a piece of the response
	phase    Phase
	reusable bool     // the socket may become a spare one
	conn     keptConn // that an attempt before has used; none: the connection is new
}

const (
	// maxReads bounds in how many pieces a response may come. The whole response is
	// judged again after each piece, so a peer that sends single bytes could otherwise
	// block the engine's loop.
	maxReads = 64

	// minBuffer is how large a Buffer is at first, in bytes: most responses fit.
	minBuffer = 1 << 10

	// maxKeptBuffer bounds the Buffers that are kept for other attempts, in bytes: there
	// may be thousands.
	maxKeptBuffer = 4 << 10
)

// status is how far an attempt has come.
type status uint8

const (
	wouldBlock  status = iota // nothing more can be done now
	requestSent               // the connection is open, and the request is sent
	received                  // a piece of the response has come into the Buffer
	eof                       // the peer has closed the connection; the Buffer has the whole response
	failed                    // the connection failed; the Fault says why
	unsupported               // the attempt has to be made by Probe
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

// isIdle reports whether a connection is open and nothing has arrived. What has is no response
// to the next request, and may be a last word before the end.
func isIdle(fd int) bool {
	var b [1]byte
	_, errno := receiveFrom(fd, b[:])
	return errno == syscall.EAGAIN
}

// open makes a new connection for an attempt.
func (x *Exchange) open(a *Attempt) Progress {
	if n := a.Target.Network; n != nil {
		var err error
		if a.FD, err = OpenIn(n, domainOf(a.exchange.to), streamSocket, syscall.IPPROTO_TCP); err != nil {
			a.FD = -1
			return StepBlock // Probe finds out why
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

// connect begins to connect a socket. When a call fails, it returns its name and error.
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
		_ = setOption(a.FD, syscall.IPPROTO_IP, BindAddressNoPort, 1) // not known before Linux 4.2, and not needed
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

// setKeepAlive makes the system send keepalive packets, if they are wanted.
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

// takeSocket returns one of the spare sockets, or a new one.
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
			if !a.exchange.conn.isNone() && a.Event == StepBegin { // it returned EAGAIN before the request was sent
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

// reopen makes a new connection for an attempt whose kept one has ended: the server may have
// closed it while the request was on its way, as net/http allows for too.
func (x *Exchange) reopen(a *Attempt) Progress {
	defer a.Kept.ended(a.exchange.conn) // after the new socket is open, which would have the same number otherwise
	a.Set = nil
	return x.begin(a)
}

// keep is done for a connection that another attempt may use.
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

// send sends the request. Sending succeeds only when the connection is open, so that an
// empty request is sent too.
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
	if len(a.Buffer) == cap(a.Buffer) || cap(a.Buffer) < min(minBuffer, x.MaxResponse) { // that of the request may be small
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

// response returns what has come of the response.
func (x *Exchange) response(a *Attempt) []byte {
	if a.exchange.phase != Receiving {
		return nil // the Buffer may have the request
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

// fallBack leaves an attempt to Probe, and for a while those at the same address.
func (x *Exchange) fallBack(a *Attempt) Progress {
	x.fallback.Add(a.exchange.to)
	x.closeSocket(a)
	return StepBlock
}

// finish is done for a connection that is no longer of use. Where it is half open, or
// the peer has closed it, a reset leaves the peer no connection to remember and this
// side a socket to use again.
func (x *Exchange) finish(a *Attempt, r probe.Result) Progress {
	r = x.judgeLoss(a, r)
	if a.exchange.reusable && (x.Socket.HalfOpen || x.ReuseSocket && atEOF(a.FD)) && disconnect(a.FD) == 0 && a.Spares.Put(a.FD) {
		a.FD = -1
	}
	return x.done(a, r)
}

// judgeLoss returns the result of an attempt with what was lost of it over a new connection. The socket of a lossy one is not used
// again: before Linux 5.6 it would count on.
func (x *Exchange) judgeLoss(a *Attempt, r probe.Result) probe.Result {
	t := &a.Result.Timings
	if r.Outcome != probe.Success || t.Connect+t.FirstByte < MaySendAgain || !a.exchange.conn.isNone() {
		return r
	}
	n := retransmissions(a.FD)
	a.exchange.reusable = a.exchange.reusable && n == 0
	return Lossy(r, n)
}

// atEOF reports whether the peer has closed a connection of which all data is read.
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
		_ = setOption(a.FD, syscall.SOL_SOCKET, syscall.SO_LINGER, 1, 0) // then close sends the reset
	}
	closeSocket(a.FD)
	a.FD = -1
}
