//go:build !386 && !s390x

package dial

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Fault is what broke a connection.
type Fault struct {
	op     string // as package net calls it: dial, read or write
	call   string // the system call
	number syscall.Errno
}

// maxPieces bounds in how many pieces an answer may come. Each has all of it looked
// at again, so a stranger that sends single bytes could otherwise hold the
// engine's loop up.
const maxPieces = 64

// firstRoom is how large a Buffer is at first, in bytes: most answers fit.
const firstRoom = 1 << 10

// Begin begins to connect an attempt to an address, which Spot has returned. It
// returns Waits, or Broken when there is nothing to be closed.
func (d *Dialer) Begin(a *nonblock.Attempt, at netip.AddrPort) (Turn, Fault) {
	a.FD, a.State, a.Result, a.Since = -1, dialling, probe.Result{}, time.Now()
	fd, number := d.takeSocket(a, at)
	if number != 0 {
		return Broken, Fault{"dial", "socket", number}
	}
	a.FD = fd
	if fault := d.begin(fd, at); fault.number != 0 {
		d.hangUp(a)
		return Broken, fault
	}
	return Waits, Fault{}
}

// takeSocket returns one of the spare sockets, or a new one.
func (d *Dialer) takeSocket(a *nonblock.Attempt, at netip.AddrPort) (fd int, number syscall.Errno) {
	if a.Spares == nil || !d.config.HalfOpen && !d.config.ClientFirst || d.source.IsValid() || !at.Addr().Is4() {
		return openSocket(at)
	}
	a.State |= again
	if fd, ok := a.Spares.Take(); ok {
		return fd, 0
	}
	return openSocket(at)
}

func (d *Dialer) begin(fd int, at netip.AddrPort) Fault {
	if number := d.prepareSocket(fd); number != 0 {
		return Fault{"dial", "setsockopt", number}
	}
	if d.source.IsValid() {
		if number := bindSocket(fd, netip.AddrPortFrom(d.source, 0)); number != 0 {
			return Fault{"dial", "bind", number}
		}
	}
	number := connectSocket(fd, at)
	if number == syscall.EINPROGRESS {
		number = 0
	}
	return Fault{"dial", "connect", number}
}

// prepareSocket does what Config.setOptions does but for the reset, which hangUp
// sends. It also has the handshake's last step wait for what is sent: that is a
// packet less, and wakes the server once instead of twice.
func (d *Dialer) prepareSocket(fd int) syscall.Errno {
	if d.source.IsValid() {
		_ = setOption(fd, syscall.IPPROTO_IP, bindAddressNoPort, 1)
	}
	if d.config.HalfOpen || d.config.ClientFirst {
		return setOption(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0)
	}
	return 0
}

// ToItself reports whether an attempt that has begun connects a socket with itself:
// nobody listens at the address, and the system has chosen its port for this side.
func ToItself(a *nonblock.Attempt, at netip.AddrPort) bool { return localAddress(a.FD) == at }

// Advance takes an attempt that has begun as far as it goes without waiting: until
// the connection stands and what there is to send is sent, and then, call by call,
// until more of an answer has come. The Buffer holds at most room bytes of it. Send
// must be the same each time until it is sent; it may be the Buffer, which is
// emptied then.
func (d *Dialer) Advance(a *nonblock.Attempt, send []byte, room int) (Turn, Fault) {
	if a.State&phaseMask == receiving {
		return receive(a, room)
	}
	return deliver(a, send)
}

// deliver sends. Nothing can be sent before the connection stands, so that the
// first success, be it with no byte at all, tells of that too.
func deliver(a *nonblock.Attempt, send []byte) (Turn, Fault) {
	for Dialling(a) || a.State>>countShift < len(send) {
		now := time.Now()
		n, number := sendTo(a.FD, send[a.State>>countShift:])
		switch {
		case number == syscall.EAGAIN:
			return Waits, Fault{}
		case number != 0 && Dialling(a):
			return Broken, Fault{"dial", "connect", number}
		case number != 0:
			return Broken, Fault{"write", "write", number}
		case Dialling(a):
			a.Result.Timings.Connect = now.Sub(a.Since)
			enter(a, sending)
		}
		a.State += n * counted
	}
	if len(send) > 0 {
		a.Since = time.Now()
	}
	a.Buffer = a.Buffer[:0]
	enter(a, receiving)
	return Stands, Fault{}
}

// receive reads some of the answer, but for what is in the Buffer already.
func receive(a *nonblock.Attempt, room int) (Turn, Fault) {
	if a.State>>countShift >= maxPieces || len(a.Buffer) >= room {
		return Odd, Fault{}
	}
	if len(a.Buffer) == cap(a.Buffer) {
		grown := make([]byte, len(a.Buffer), min(max(firstRoom, 2*cap(a.Buffer)), room))
		copy(grown, a.Buffer)
		a.Buffer = grown
	}
	n, number := receiveFrom(a.FD, a.Buffer[len(a.Buffer):min(cap(a.Buffer), room)])
	switch {
	case number == syscall.EAGAIN:
		return Waits, Fault{}
	case number != 0:
		return Broken, Fault{"read", "read", number}
	case n == 0:
		return Ended, Fault{}
	}
	if len(a.Buffer) == 0 {
		since(a.Since, &a.Result.Timings.FirstByte)
	}
	a.Buffer = a.Buffer[:len(a.Buffer)+n]
	a.State += counted
	return Heard, Fault{}
}

// Finish is Done for an attempt over a connection that is of no use any more. Where
// that is half open, or the peer has ended it, a reset dissolves it, which leaves
// the peer no connection to remember and this side a socket to use again.
func (d *Dialer) Finish(a *nonblock.Attempt, r probe.Result) nonblock.Progress {
	if a.State&again != 0 && (d.config.HalfOpen || ended(a.FD)) && disconnect(a.FD) == 0 && a.Spares.Put(a.FD) {
		a.FD = -1
	}
	return d.Done(a, r)
}

// ended reports whether the peer has ended a connection and all that it has sent is
// read.
func ended(fd int) bool {
	var b [1]byte
	n, number := receiveFrom(fd, b[:])
	return n == 0 && number == 0
}

func (d *Dialer) hangUp(a *nonblock.Attempt) {
	if a.FD < 0 {
		return
	}
	if d.config.HalfOpen && disconnect(a.FD) != 0 {
		_ = setOption(a.FD, syscall.SOL_SOCKET, syscall.SO_LINGER, 1, 0) // then close sends the reset
	}
	closeSocket(a.FD)
	a.FD = -1
}
