package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

// Error says why a connection could not be opened or used.
type Error struct {
	Outcome probe.Outcome // Failure, or Unknown when the target has no part in it
	Reason  probe.Reason
	Err     error
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// maxText bounds what an error says, in bytes. A certificate's names come from a
// stranger and may be long.
const maxText = 1 << 10

// Result makes the result of an attempt that ended with an error of this package.
func Result(err error) probe.Result {
	known := unknown(probe.ReasonTCPFailed, err)
	errors.As(err, &known)
	return probe.Result{Outcome: known.Outcome, Reason: known.Reason, Detail: probe.CleanText(err.Error(), maxText)}
}

func failure(why probe.Reason, err error) *Error {
	return &Error{Outcome: probe.Failure, Reason: why, Err: err}
}

func unknown(why probe.Reason, err error) *Error {
	return &Error{Outcome: probe.Unknown, Reason: why, Err: err}
}

// step is what was being done when an error came. It says which reason lateness
// and trouble without a reason of its own have.
type step struct {
	late  probe.Reason
	other probe.Reason
}

var (
	resolveStep = step{probe.ReasonDNSTimeout, probe.ReasonDNSFailed}
	connectStep = step{probe.ReasonTCPTimeout, probe.ReasonTCPFailed}
	unixStep    = step{probe.ReasonTCPTimeout, probe.ReasonUnixFailed}
	tlsStep     = step{probe.ReasonTLSTimeout, probe.ReasonTLSFailed}
	useStep     = step{probe.ReasonTCPTimeout, probe.ReasonTCPFailed}
)

// Broke classifies an error of a connection that stood, while it was read from or
// written to. The deadline is that of ctx.
func Broke(ctx context.Context, err error) *Error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return classify(ctx, step{probe.ReasonTCPTimeout, probe.ReasonTCPClosed}, errors.New("the peer closed the connection"))
	}
	return classify(ctx, useStep, err)
}

func classify(ctx context.Context, s step, err error) *Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return Stopped()
	}
	if known := byNumber(s, err); known != nil {
		return known
	}
	if known := byType(err); known != nil {
		return known
	}
	if late(ctx, err) {
		return failure(s.late, err)
	}
	return failure(s.other, err)
}

// Stopped is the error of an attempt that was cancelled.
func Stopped() *Error { return unknown(probe.ReasonStopped, errors.New("the attempt was cancelled")) }

func late(ctx context.Context, err error) bool {
	var n net.Error
	return ctx.Err() != nil || errors.As(err, &n) && n.Timeout()
}

// byNumber classifies the errors that the system has numbers for, or returns nil.
func byNumber(s step, err error) *Error {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return nil
	}
	if s == unixStep && !noMeans(number) {
		return byUnixNumber(number, err)
	}
	outcome, why := ofNumber(number)
	if why == "" {
		return nil
	}
	return &Error{Outcome: outcome, Reason: why, Err: err}
}

// ofNumber classifies an error number of a TCP connection. The reason is empty
// where it depends on what was being done.
func ofNumber(number syscall.Errno) (probe.Outcome, probe.Reason) {
	switch number {
	case syscall.EINVAL, syscall.EACCES, syscall.EPERM: // the source address cannot go there, or a firewall here forbids it
		return probe.Unknown, probe.ReasonTCPSource
	case syscall.ECONNREFUSED:
		return probe.Failure, probe.ReasonTCPRefused
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return probe.Failure, probe.ReasonTCPReset
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN:
		return probe.Failure, probe.ReasonTCPUnreachable
	}
	if noMeans(number) {
		return probe.Unknown, probe.ReasonTCPSource
	}
	return probe.Failure, ""
}

func byUnixNumber(number syscall.Errno, err error) *Error {
	switch number {
	case syscall.ENOENT:
		return failure(probe.ReasonUnixMissing, err)
	case syscall.ECONNREFUSED, syscall.EAGAIN: // EAGAIN: the backlog is full
		return failure(probe.ReasonUnixRefused, err)
	}
	return failure(probe.ReasonUnixFailed, err)
}

// noMeans reports whether this machine lacked something to connect with.
func noMeans(number syscall.Errno) bool {
	switch number {
	case syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAFNOSUPPORT, // addresses, ports, no IPv6
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}

// byType classifies the errors of the resolver and of the TLS handshake, or
// returns nil.
func byType(err error) *Error {
	var (
		dns     *net.DNSError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		cert    *tls.CertificateVerificationError
		op      *net.OpError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return failure(probe.ReasonDNSNotFound, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failure(probe.ReasonTLSExpired, err)
	case errors.As(err, &name):
		return failure(probe.ReasonTLSName, err)
	case errors.As(err, &cert):
		return failure(probe.ReasonTLSUntrusted, err)
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // how crypto/tls marks alerts
		return failure(probe.ReasonTLSFailed, err)
	}
	return nil
}
