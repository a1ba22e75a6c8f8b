package sandbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// HostError is why a host call failed: a number for the plugin, and a reason and a text
// that it may ask for.
type HostError struct {
	Errno  abi.Errno
	Reason probe.Reason // empty when the plugin itself is at fault
	Detail string
}

// step is what was being done when an error came. It says what lateness, and
// HostError without a reason of its own, is.
type step struct {
	late  probe.Reason
	other probe.Reason
	errno abi.Errno // of other
}

var (
	resolving   = step{probe.ReasonDNSTimeout, probe.ReasonDNSFailed, abi.EIO}
	connecting  = step{probe.ReasonTCPTimeout, probe.ReasonTCPFailed, abi.EIO}
	unixDialing = step{probe.ReasonTCPTimeout, probe.ReasonUnixFailed, abi.EIO}
	handshaking = step{probe.ReasonTLSTimeout, probe.ReasonTLSFailed, abi.EPROTO}
	using       = step{probe.ReasonTCPTimeout, probe.ReasonTCPFailed, abi.EIO}
)

// explain finds out what an error of package net or crypto/tls means.
func explain(s step, err error) HostError {
	t := classify(s, err)
	t.Detail = probe.CleanText(err.Error(), abi.MaxDetail)
	return t
}

func classify(s step, err error) HostError {
	var number syscall.Errno
	if errors.As(err, &number) {
		if t := byNumber(s, number); t.Errno != abi.OK {
			return t
		}
	}
	var (
		dns     *net.DNSError
		timeout net.Error
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return HostError{Errno: abi.ENOENT, Reason: probe.ReasonDNSNotFound}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return HostError{Errno: abi.ETIMEDOUT, Reason: s.late}
	case errors.Is(err, context.Canceled):
		return HostError{Errno: abi.ECONNABORTED, Reason: probe.ReasonStopped}
	case s != handshaking && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return HostError{Errno: abi.ECONNRESET, Reason: probe.ReasonTCPClosed}
	}
	if reason := certificateReason(err); reason != "" {
		return HostError{Errno: abi.EPROTO, Reason: reason}
	}
	return HostError{Errno: s.errno, Reason: s.other}
}

func byNumber(s step, number syscall.Errno) HostError {
	if s == unixDialing {
		return byUnixNumber(number)
	}
	switch number {
	case syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAFNOSUPPORT, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS,
		syscall.ENOMEM, syscall.EACCES, syscall.EPERM:
		return HostError{Errno: abi.EADDRNOTAVAIL, Reason: probe.ReasonTCPSource}
	case syscall.ECONNREFUSED:
		return HostError{Errno: abi.ECONNREFUSED, Reason: probe.ReasonTCPRefused}
	case syscall.EPIPE:
		return HostError{Errno: abi.EPIPE, Reason: probe.ReasonTCPReset}
	case syscall.ECONNRESET, syscall.ECONNABORTED:
		return HostError{Errno: abi.ECONNRESET, Reason: probe.ReasonTCPReset}
	case syscall.EHOSTUNREACH, syscall.EHOSTDOWN:
		return HostError{Errno: abi.EHOSTUNREACH, Reason: probe.ReasonTCPUnreachable}
	case syscall.ENETUNREACH, syscall.ENETDOWN:
		return HostError{Errno: abi.ENETUNREACH, Reason: probe.ReasonTCPUnreachable}
	}
	return HostError{}
}

func byUnixNumber(number syscall.Errno) HostError {
	switch number {
	case syscall.ENOENT:
		return HostError{Errno: abi.ENOENT, Reason: probe.ReasonUnixMissing}
	case syscall.ECONNREFUSED, syscall.EAGAIN: // EAGAIN: the backlog is full
		return HostError{Errno: abi.ECONNREFUSED, Reason: probe.ReasonUnixRefused}
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return HostError{Errno: abi.EADDRNOTAVAIL, Reason: probe.ReasonTCPSource}
	}
	return HostError{}
}

func certificateReason(err error) probe.Reason {
	var (
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		cert    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return probe.ReasonTLSExpired
	case errors.As(err, &name):
		return probe.ReasonTLSName
	case errors.As(err, &cert):
		return probe.ReasonTLSUntrusted
	}
	return ""
}
