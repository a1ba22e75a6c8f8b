package nonblock

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

// Exchange makes attempts that connect to an IP address, send a request and judge the
// response, without a goroutine. Its Step is that of a Stepper. It works on Linux;
// elsewhere every attempt is left to Probe. It is safe for concurrent use by multiple
// goroutines.
type Exchange struct {
	Protocol Protocol
	Socket   SocketOptions

	// MaxResponse bounds how much of a response is read, in bytes. 0: nothing is read;
	// the attempt succeeds when the request is sent.
	MaxResponse int

	// ReuseSocket has a connection reset that the peer has closed, so that its socket
	// can be used again. What the peer has not read yet of the request is lost.
	ReuseSocket bool

	// DetectSelf leaves an attempt to Probe whose socket is connected with itself: no
	// process listens at the address, and the system has chosen its port for this side.
	DetectSelf bool

	// FreshEvery is how many attempts use a connection that is kept: see Attempt.Kept. 0: any
	// number.
	FreshEvery int

	fallback fallbackSet
}

// Protocol says what an Exchange sends and what the response means. Its methods must
// return within microseconds and be safe for concurrent use by multiple goroutines.
type Protocol interface {
	// Request returns the address to connect to and what to send, which may be appended
	// to a.Buffer, and false if the attempt has to be made by Probe.
	Request(a *Attempt) (to netip.AddrPort, request []byte, ok bool)

	// Judge returns the result of a response and StepDone or StepKeep, StepWait when more
	// of the response is needed, or StepBlock when Probe has to make the attempt. Eof says
	// that no more will come. Judge may write to the response when it returns a result.
	Judge(response []byte, eof bool) (probe.Result, Progress)

	// Fail returns the result of an attempt that a fault has ended, and StepDone, or
	// StepBlock when Probe has to make the attempt: not after a timeout. The response is
	// what has come of it before.
	Fail(response []byte, f Fault) (probe.Result, Progress)
}

// SocketOptions say how the sockets of an Exchange are connected.
type SocketOptions struct {
	Source netip.Addr // to connect from; not valid: the system chooses

	// HalfOpen withholds the last packet of the handshake, so that the server's Accept
	// never returns the connection.
	HalfOpen bool

	// ClientFirst sends the last packet of the handshake together with the request,
	// which saves a packet and wakes the server once instead of twice.
	ClientFirst bool

	// KeepAlive are the settings of TCP keepalive packets; none are sent unless Enable is set.
	// All durations are whole seconds.
	KeepAlive net.KeepAliveConfig
}

// Phase is what an Exchange was doing.
type Phase uint8

// The phases of an attempt.
const (
	Connecting Phase = iota
	Sending
	Receiving
)

// Fault is why the connection of an attempt failed.
type Fault struct {
	Phase         Phase
	Call          string         // the system call that failed
	Errno         syscall.Errno  // 0: the deadline has passed
	Local, Remote netip.AddrPort // Local is not valid where it is not known
}

// Timeout reports whether the deadline of the attempt has passed.
func (f Fault) Timeout() bool { return f.Errno == 0 }
