package sandbox

import (
	"context"
	"errors"
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

// failNetwork records an error of package net or crypto/tls and returns its number.
func (c *call) failNetwork(ctx context.Context, s dial.Stage, err error) abi.Errno {
	return c.fail(networkError(dial.Classify(ctx, s, err)))
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
	case probe.ReasonResources, probe.ReasonResolver, probe.ReasonTCPSource:
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
