//go:build !386 && !s390x

package dial

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Turn is what an attempt in steps has come to.
type Turn uint8

// The turns.
const (
	Waits  Turn = iota // the system would block: wait for the attempt's FD
	Stands             // the connection stands, and everything is sent
	Heard              // more of the answer has come into the attempt's Buffer
	Ended              // the peer has ended the connection; the Buffer holds all it said
	Broken             // the connection could not be made, or broke; the Fault says how
	Odd                // this cannot be told in steps
)

// Fault is what broke a connection.
type Fault struct {
	op     string // as package net calls it: dial, read or write
	call   string // the system call
	number syscall.Errno
}

// The phases of an attempt in steps are in the lowest bits of its State; how many
// bytes are sent, or how many pieces have come, stands above them.
const (
	dialling = iota
	sending
	receiving

	phaseBits = 2
	phaseMask = 1<<phaseBits - 1
)

// maxPieces bounds in how many pieces an answer may come. Each has all of it looked
// at again, so a stranger that sends single bytes could otherwise hold the
// engine's loop up.
const maxPieces = 64

// firstRoom is how large a Buffer is at first, in bytes: most answers fit.
const firstRoom = 1 << 10

// Begin begins to connect an attempt to an address, which Spot has returned. With a
// Fault nothing is left to be closed.
func (d *Dialer) Begin(a *probe.Attempt, at netip.AddrPort) (Fault, bool) {
	a.FD, a.State, a.Result, a.Since = -1, dialling, probe.Result{}, time.Now()
	fd, number := openSocket(at)
	if number != 0 {
		return Fault{"dial", "socket", number}, false
	}
	a.FD = fd
	fault := d.begin(fd, at)
	if fault.number != 0 {
		hangUp(a)
	}
	return fault, fault.number == 0
}

func (d *Dialer) begin(fd int, at netip.AddrPort) Fault {
	if d.config.HalfOpen || d.source.IsValid() {
		if err := d.config.setOptions(fd); err != nil {
			number, _ := err.(syscall.Errno)
			return Fault{"dial", "setsockopt", number}
		}
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

// Advance takes an attempt that has begun as far as it goes without waiting: until
// the connection stands and what there is to send is sent, and then, call by call,
// until more of an answer has come. The Buffer holds at most room bytes of it. Send
// must be the same each time until it is sent; it may be the Buffer, which is
// emptied then.
func (d *Dialer) Advance(a *probe.Attempt, send []byte, room int) (Turn, Fault) {
	switch {
	case a.State&phaseMask == receiving:
		return receive(a, room)
	case len(send) == 0:
		return d.ask(a)
	}
	return deliver(a, send)
}

// ask asks whether the connection stands. On loopback it does at once.
func (d *Dialer) ask(a *probe.Attempt) (Turn, Fault) {
	_, at, _ := d.Spot(a.Target)
	switch number := connectSocket(a.FD, at); number {
	case 0, syscall.EISCONN:
	case syscall.EALREADY, syscall.EINPROGRESS, syscall.EINTR:
		return Waits, Fault{}
	default:
		return Broken, Fault{"dial", "connect", number}
	}
	connected(a, time.Now())
	if localAddress(a.FD) == at { // nobody listens: the system has given the socket its own port
		return Odd, Fault{}
	}
	return delivered(a, a.Since)
}

// deliver sends. Nothing can be sent before the connection stands, so that the
// first success tells of that too.
func deliver(a *probe.Attempt, send []byte) (Turn, Fault) {
	for a.State>>phaseBits < len(send) {
		now := a.Since
		if a.State == dialling {
			now = time.Now()
		}
		n, number := sendTo(a.FD, send[a.State>>phaseBits:])
		switch {
		case number == syscall.EAGAIN || number == syscall.EINTR:
			return Waits, Fault{}
		case number != 0 && a.State == dialling:
			return Broken, Fault{"dial", "connect", number}
		case number != 0:
			return Broken, Fault{"write", "write", number}
		case a.State == dialling:
			connected(a, now)
		}
		a.State += n << phaseBits
	}
	return delivered(a, time.Now())
}

func connected(a *probe.Attempt, now time.Time) {
	a.Result.Phases.Connect = now.Sub(a.Since)
	a.Since, a.State = now, sending
}

func delivered(a *probe.Attempt, now time.Time) (Turn, Fault) {
	a.Buffer, a.Since, a.State = a.Buffer[:0], now, receiving
	return Stands, Fault{}
}

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
	case number == syscall.EAGAIN || number == syscall.EINTR:
		return Waits, Fault{}
	case number != 0:
		return Broken, Fault{"read", "read", number}
	case n == 0:
		return Ended, Fault{}
	}
	if a.State>>phaseBits == 0 {
		a.Result.Phases.FirstByte = time.Since(a.Since)
	}
	a.Buffer = a.Buffer[:len(a.Buffer)+n]
	a.State += 1 << phaseBits
	return Heard, Fault{}
}

// Done ends an attempt with a result, to which it adds the phases.
func Done(a *probe.Attempt, r probe.Result) probe.Progress {
	r.Phases = a.Result.Phases
	a.Result = r
	hangUp(a)
	return probe.StepDone
}

// Leave ends an attempt that cannot be made in steps.
func Leave(a *probe.Attempt) probe.Progress {
	hangUp(a)
	return probe.StepBlock
}

func hangUp(a *probe.Attempt) {
	if a.FD >= 0 {
		closeSocket(a.FD)
	}
	a.FD = -1
}
