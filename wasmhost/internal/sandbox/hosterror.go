package sandbox

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// HostError is the error of a host call: a number that is returned to the plugin, and a reason and
// a detail that the plugin can read as abi.InputError.
type HostError struct {
	Errno  abi.Errno
	Reason probe.Reason // empty if the plugin itself is at fault
	Detail string
	Local  bool // this machine is at fault: the error is unrelated to the target
}

// errLimit is the panic value that ends a guest that continues after it reached a limit.
var errLimit = errors.New("limit reached")

// failures records the failed host calls of a call.
type failures struct {
	last  HostError // for abi.InputError
	count int
	limit string // the latest limit that was reached
}

// fail records an error and returns its number.
func (f *failures) fail(e HostError) abi.Errno {
	f.last = e
	f.count++
	return e.Errno
}

// failf is like fail, for an error caused by the plugin itself.
func (f *failures) failf(errno abi.Errno, format string, a ...any) abi.Errno {
	return f.fail(HostError{Errno: errno, Detail: fmt.Sprintf(format, a...)})
}

// failMemory is like fail, if the host has no memory for the guest's request.
func (f *failures) failMemory() abi.Errno {
	return f.fail(HostError{Errno: abi.EADDRNOTAVAIL, Reason: probe.ReasonResources, Detail: ErrNoMemory.Error(), Local: true})
}

// failOver is like fail, for an error on a network such as "udp".
func (f *failures) failOver(network string, e HostError) abi.Errno {
	if network == "udp" {
		e.Reason = e.Reason.OverUDP()
	}
	return f.fail(e)
}

// failTransfer is like failOver, for an error of package net or crypto/tls during a transfer.
func (f *failures) failTransfer(ctx context.Context, network string, err error) abi.Errno {
	return f.failOver(network, networkError(dial.Classify(ctx, dial.Transferring, err)))
}

// reachLimit records that a limit was reached.
func (f *failures) reachLimit(limit string, errno abi.Errno) abi.Errno {
	f.limit = limit
	return f.failf(errno, "limit %s was reached", limit)
}

// networkError converts an error of package dial to a HostError.
func networkError(err error) HostError {
	known := new(dial.Error)
	errors.As(err, &known)
	return HostError{
		Errno:  errnoOf(known),
		Reason: known.Reason,
		Detail: probe.CleanText(err.Error(), abi.MaxDetail),
		Local:  known.Outcome == probe.Unknown,
	}
}

func errnoOf(err *dial.Error) abi.Errno {
	switch err.Reason {
	case probe.ReasonStopped:
		return abi.ECONNABORTED
	case probe.ReasonResources, probe.ReasonResolver, probe.ReasonTCPSource, probe.ReasonNetwork, probe.ReasonPermission:
		return abi.EADDRNOTAVAIL
	case probe.ReasonDNSTimeout, probe.ReasonTCPTimeout, probe.ReasonTLSTimeout:
		return abi.ETIMEDOUT
	case probe.ReasonDNSNotFound, probe.ReasonUnixMissing:
		return abi.ENOENT
	case probe.ReasonTCPRefused, probe.ReasonUnixRefused:
		return abi.ECONNREFUSED
	case probe.ReasonTCPClosed:
		return abi.ECONNRESET
	case probe.ReasonTCPReset:
		if errors.Is(err, syscall.EPIPE) {
			return abi.EPIPE
		}
		return abi.ECONNRESET
	case probe.ReasonTCPUnreachable:
		if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.ENETDOWN) {
			return abi.ENETUNREACH
		}
		return abi.EHOSTUNREACH
	case probe.ReasonTLSExpired, probe.ReasonClock, probe.ReasonTLSName, probe.ReasonTLSUntrusted, probe.ReasonTLSFailed:
		return abi.EPROTO
	}
	return abi.EIO
}
