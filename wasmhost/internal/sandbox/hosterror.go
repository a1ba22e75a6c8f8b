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

// HostError is why a host call failed: a number for the plugin, and a reason and a text
// that it may ask for.
type HostError struct {
	Errno  abi.Errno
	Reason probe.Reason // empty when the plugin itself is at fault
	Detail string
	Local  bool // this machine is at fault: the error says nothing about the target
}

// errLimit is the panic that ends a guest which goes on after a limit was reached.
var errLimit = errors.New("limit reached")

// failures are the host calls of a call that failed.
type failures struct {
	last  HostError // for abi.InputError
	count int
	limit string // the limit that was reached last
}

// fail records an error and returns its number.
func (f *failures) fail(e HostError) abi.Errno {
	f.last = e
	f.count++
	return e.Errno
}

// failf is fail for an error of the plugin's own making.
func (f *failures) failf(errno abi.Errno, format string, a ...any) abi.Errno {
	return f.fail(HostError{Errno: errno, Detail: fmt.Sprintf(format, a...)})
}

// failMemory is fail for memory of the host that the guest's request needs.
func (f *failures) failMemory() abi.Errno {
	return f.fail(HostError{Errno: abi.EADDRNOTAVAIL, Reason: probe.ReasonResources, Detail: ErrNoMemory.Error(), Local: true})
}

// failOver is fail for an error of a network such as "udp".
func (f *failures) failOver(network string, e HostError) abi.Errno {
	if network == "udp" {
		e.Reason = e.Reason.OverUDP()
	}
	return f.fail(e)
}

// failTransfer is failOver for an error of package net or crypto/tls.
func (f *failures) failTransfer(ctx context.Context, network string, err error) abi.Errno {
	return f.failOver(network, networkError(dial.Classify(ctx, dial.Transferring, err)))
}

// reachLimit records that a limit was reached.
func (f *failures) reachLimit(limit string, errno abi.Errno) abi.Errno {
	f.limit = limit
	return f.failf(errno, "limit %s was reached", limit)
}

// networkError returns what an error of package dial means to a plugin.
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
