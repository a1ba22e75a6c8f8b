//go:build !386 && !s390x

package dial

import (
	"net/netip"
	"syscall"
	"time"

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

// Begin begins to connect an attempt to an address, which Spot has returned. Talks
// says that something is to be sent: then the handshake's last step goes with it.
// Begin returns Waits, or Broken when there is nothing to be closed.
func (d *Dialer) Begin(a *probe.Attempt, at netip.AddrPort, talks bool) (Turn, Fault) {
	a.FD, a.State, a.Result, a.Since = -1, dialling, probe.Result{}, time.Now()
	fd, number := openSocket(at)
	if number != 0 {
		return Broken, Fault{"dial", "socket", number}
	}
	a.FD = fd
	if fault := d.begin(fd, at, talks); fault.number != 0 {
		hangUp(a)
		return Broken, fault
	}
	return Waits, Fault{}
}

func (d *Dialer) begin(fd int, at netip.AddrPort, talks bool) Fault {
	if number := d.prepareSocket(fd, talks); number != 0 {
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

// prepareSocket does what Config.setOptions does, and more for a connection over
// which something is sent at once: an acknowledgement that is held back for it is a
// packet less, and wakes the server once instead of twice.
func (d *Dialer) prepareSocket(fd int, talks bool) syscall.Errno {
	if d.source.IsValid() {
		_ = setOption(fd, syscall.IPPROTO_IP, bindAddressNoPort, 1)
	}
	if !d.config.HalfOpen && !talks {
		return 0
	}
	number := setOption(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0)
	if !d.config.HalfOpen || number != 0 {
		return number
	}
	return setOption(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, 1, 0)
}

// ToItself reports whether an attempt that has begun connects a socket with itself:
// nobody listens at the address, and the system has chosen its port for this side.
func ToItself(a *probe.Attempt, at netip.AddrPort) bool { return localAddress(a.FD) == at }

// Advance takes an attempt that has begun as far as it goes without waiting: until
// the connection stands and what there is to send is sent, and then, call by call,
// until more of an answer has come. The Buffer holds at most room bytes of it. Send
// must be the same each time until it is sent; it may be the Buffer, which is
// emptied then.
func (d *Dialer) Advance(a *probe.Attempt, send []byte, room int) (Turn, Fault) {
	if a.State&phaseMask == receiving {
		return receive(a, room)
	}
	return deliver(a, send)
}

// deliver sends. Nothing can be sent before the connection stands, so that the
// first success, be it with no byte at all, tells of that too.
func deliver(a *probe.Attempt, send []byte) (Turn, Fault) {
	for a.State == dialling || a.State>>phaseBits < len(send) {
		now := time.Now()
		n, number := sendTo(a.FD, send[a.State>>phaseBits:])
		switch {
		case number == syscall.EAGAIN:
			return Waits, Fault{}
		case number != 0 && a.State == dialling:
			return Broken, Fault{"dial", "connect", number}
		case number != 0:
			return Broken, Fault{"write", "write", number}
		case a.State == dialling:
			a.Result.Phases.Connect = now.Sub(a.Since)
			a.State = sending
		}
		a.State += n << phaseBits
	}
	if len(send) > 0 {
		a.Since = time.Now()
	}
	a.Buffer, a.State = a.Buffer[:0], receiving
	return Stands, Fault{}
}

// receive reads some of the answer, but for what is in the Buffer already.
func receive(a *probe.Attempt, room int) (Turn, Fault) {
	if a.State>>phaseBits >= maxPieces || len(a.Buffer) >= room {
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
		since(a.Since, &a.Result.Phases.FirstByte)
	}
	a.Buffer = a.Buffer[:len(a.Buffer)+n]
	a.State += 1 << phaseBits
	return Heard, Fault{}
}
