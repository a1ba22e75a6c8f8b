package wasmhost

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

// trouble is why a call of the host did not work: a number for the plugin, and a
// reason and a sentence that it may ask for.
type trouble struct {
	errno  abi.Errno
	reason probe.Reason // empty when the plugin itself is at fault
	detail string
}

// step is what was being done when an error came. It says what lateness, and
// trouble without a reason of its own, is.
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
func explain(s step, err error) trouble {
	t := classify(s, err)
	t.detail = probe.CleanText(err.Error(), abi.MaxDetail)
	return t
}

func classify(s step, err error) trouble {
	var number syscall.Errno
	if errors.As(err, &number) {
		if t := byNumber(s, number); t.errno != abi.OK {
			return t
		}
	}
	var (
		dns     *net.DNSError
		timeout net.Error
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return trouble{errno: abi.ENOENT, reason: probe.ReasonDNSNotFound}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return trouble{errno: abi.ETIMEDOUT, reason: s.late}
	case errors.Is(err, context.Canceled):
		return trouble{errno: abi.ECONNABORTED, reason: probe.ReasonStopped}
	case s != handshaking && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return trouble{errno: abi.ECONNRESET, reason: probe.ReasonTCPClosed}
	}
	if reason := certificateReason(err); reason != "" {
		return trouble{errno: abi.EPROTO, reason: reason}
	}
	return trouble{errno: s.errno, reason: s.other}
}

func byNumber(s step, number syscall.Errno) trouble {
	if s == unixDialing {
		return byUnixNumber(number)
	}
	switch number {
	case syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAFNOSUPPORT, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS,
		syscall.ENOMEM, syscall.EACCES, syscall.EPERM:
		return trouble{errno: abi.EADDRNOTAVAIL, reason: probe.ReasonTCPSource}
	case syscall.ECONNREFUSED:
		return trouble{errno: abi.ECONNREFUSED, reason: probe.ReasonTCPRefused}
	case syscall.EPIPE:
		return trouble{errno: abi.EPIPE, reason: probe.ReasonTCPReset}
	case syscall.ECONNRESET, syscall.ECONNABORTED:
		return trouble{errno: abi.ECONNRESET, reason: probe.ReasonTCPReset}
	case syscall.EHOSTUNREACH, syscall.EHOSTDOWN:
		return trouble{errno: abi.EHOSTUNREACH, reason: probe.ReasonTCPUnreachable}
	case syscall.ENETUNREACH, syscall.ENETDOWN:
		return trouble{errno: abi.ENETUNREACH, reason: probe.ReasonTCPUnreachable}
	}
	return trouble{}
}

func byUnixNumber(number syscall.Errno) trouble {
	switch number {
	case syscall.ENOENT:
		return trouble{errno: abi.ENOENT, reason: probe.ReasonUnixMissing}
	case syscall.ECONNREFUSED, syscall.EAGAIN: // EAGAIN: the backlog is full
		return trouble{errno: abi.ECONNREFUSED, reason: probe.ReasonUnixRefused}
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return trouble{errno: abi.EADDRNOTAVAIL, reason: probe.ReasonTCPSource}
	}
	return trouble{}
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
