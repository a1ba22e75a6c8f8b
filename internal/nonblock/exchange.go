package nonblock

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

// Exchange makes attempts without a goroutine: they connect to an IP address, send a request and judge the response. Its Step is
// that of a Stepper. It works on Linux; on other systems it leaves every attempt to Probe. It is safe for concurrent use by
// multiple goroutines.
type Exchange struct {
	Protocol Protocol
	Socket   SocketOptions

	// MaxResponse is the maximum number of bytes that are read of a response. If it is 0, nothing is read, and the attempt succeeds
	// when the request is sent.
	MaxResponse int

	// ReuseSocket resets a connection that the peer has closed, so that its socket can be reused. Data of the request that the peer
	// has not read yet is lost.
	ReuseSocket bool

	// DetectSelf leaves an attempt to Probe if its socket is connected to itself: no process listens at the address, and the system
	// has chosen that port for this side.
	DetectSelf bool

	// FreshEvery is the number of attempts that use a kept connection: see Attempt.Kept. 0 means any number.
	FreshEvery int

	fallback fallbackSet
}

// Protocol defines the request of an Exchange and the meaning of the response. Its methods must return within microseconds and be
// safe for concurrent use by multiple goroutines.
type Protocol interface {
	// Request returns the address to connect to and the request to send, which may be appended to a.Buffer. It returns false if the
	// attempt must be made by Probe.
	Request(a *Attempt) (to netip.AddrPort, request []byte, ok bool)

	// Judge returns the result of a response and StepDone or StepKeep, or StepWait if it needs more of the response, or StepBlock
	// if Probe must make the attempt. Eof says that no more will come. Judge may modify response if it returns a result.
	Judge(response []byte, eof bool) (probe.Result, Progress)

	// Fail returns the result of an attempt that ended with a fault, and StepDone, or StepBlock if Probe must make the attempt,
	// which is not permitted after a timeout. Response is the part of the response that was received before.
	Fail(response []byte, f Fault) (probe.Result, Progress)
}

// SocketOptions are the options with which an Exchange connects sockets.
type SocketOptions struct {
	Source netip.Addr // address to connect from; not valid: the system chooses

	// HalfOpen withholds the last packet of the handshake, so that the server's Accept never returns the connection.
	HalfOpen bool

	// ClientFirst sends the last packet of the handshake together with the request, which saves a packet and wakes the server once
	// instead of twice.
	ClientFirst bool

	// KeepAlive has the settings of TCP keepalive packets; none are sent unless Enable is set. All durations must be whole seconds.
	KeepAlive net.KeepAliveConfig
}

// Phase is the activity of an Exchange in an attempt.
type Phase uint8

// Phases of an attempt.
const (
	Connecting Phase = iota
	Sending
	Receiving
)

// Fault describes why the connection of an attempt failed.
type Fault struct {
	Phase         Phase
	Call          string         // the system call that failed
	Errno         syscall.Errno  // 0: the deadline has passed
	Local, Remote netip.AddrPort // Local is not valid if unknown
}

// Timeout reports whether the deadline of the attempt has passed.
func (f Fault) Timeout() bool { return f.Errno == 0 }
