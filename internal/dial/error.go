package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
)

// Error is a classified network error. All errors of this package's methods that use the network are of this type.
type Error struct {
	Outcome probe.Outcome // Failure, or Unknown if the error says nothing about the target
	Reason  probe.Reason
	Err     error

	CertificateExpiry int64 // of the certificates that the peer sent before the error: see function CertificateExpiry
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// reasonUnixFailed is the reason of a unix socket error that package probe has no reason for.
const reasonUnixFailed probe.Reason = "unix.failed"

// maxText is the maximum length of the text of an error in a result, in bytes. The names in a certificate come from the peer and
// may be long.
const maxText = 1 << 10

// Result returns the result of an attempt that ended with err. An error that is not an *Error results in Unknown.
func Result(err error) probe.Result {
	known := unknown(probe.ReasonTCPFailed, err)
	errors.As(err, &known)
	return probe.Result{
		Outcome: known.Outcome, Reason: known.Reason, Detail: probe.CleanText(err.Error(), maxText),
		CertificateExpiry: known.CertificateExpiry,
	}
}

func failure(why probe.Reason, err error) *Error {
	return &Error{Outcome: probe.Failure, Reason: why, Err: err}
}

func unknown(why probe.Reason, err error) *Error {
	return &Error{Outcome: probe.Unknown, Reason: why, Err: err}
}

// Stage is the activity during which an error occurred.
type Stage uint8

// The stages of a connection.
const (
	Resolving      Stage = iota // a name is looked up
	Connecting                  // connecting to an IP address
	ConnectingUnix              // connecting to a unix socket
	Handshaking                 // TLS
	Transferring                // reading and writing
	Pinging                     // an ICMP echo request is sent, and its reply is awaited
)

// reasons are the reasons by stage: for timeouts, and for errors without a reason of their own.
var reasons = [...]struct{ timeout, other probe.Reason }{
	Resolving:      {probe.ReasonDNSTimeout, probe.ReasonDNSFailed},
	Connecting:     {probe.ReasonTCPTimeout, probe.ReasonTCPFailed},
	ConnectingUnix: {probe.ReasonTCPTimeout, reasonUnixFailed},
	Handshaking:    {probe.ReasonTLSTimeout, probe.ReasonTLSFailed},
	Transferring:   {probe.ReasonTCPTimeout, probe.ReasonTCPFailed},
	Pinging:        {probe.ReasonICMPTimeout, probe.ReasonICMPFailed},
}

// Classify returns err with its outcome and reason, for an attempt with ctx. It is the only place that decides them, so built-in
// handlers and plugins agree.
func Classify(ctx context.Context, s Stage, err error) *Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return Cancelled()
	}
	switch ours := (localError{}); {
	case errors.Is(err, errUnlisted), errors.Is(err, errSilent):
		return unknown(probe.ReasonResolver, err)
	case errors.As(err, &ours), errors.As(err, new(x509.SystemRootsError)):
		return unknown(probe.ReasonResources, err)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && mayBeValid(invalid.Cert) {
		return unknown(probe.ReasonClock, fmt.Errorf("%w; but the clock of this machine may be wrong: it is before %d, or was set in the last %v", err, firstYear, doubtFor))
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		call := (*os.SyscallError)(nil)
		isBind := errors.As(err, &call) && call.Syscall == "bind"
		if outcome, why := classifyErrno(s, number, isBind); why != "" {
			return &Error{Outcome: outcome, Reason: why, Err: err}
		}
	}
	if why := reasonByType(err); why != "" {
		return failure(why, err)
	}
	other := reasons[s].other
	if s == Transferring && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		other, err = probe.ReasonTCPClosed, errors.New("the peer closed the connection")
	}
	if timeout := net.Error(nil); ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
		other = reasons[s].timeout
	}
	return failure(other, err)
}

// Cancelled returns the error of an attempt whose context was cancelled.
func Cancelled() *Error { return unknown(probe.ReasonStopped, errors.New("the attempt was cancelled")) }

// classifyErrno classifies an error number of the operating system. The reason is empty for a timeout, and for a number that has no
// reason of its own.
func classifyErrno(s Stage, number syscall.Errno, bind bool) (probe.Outcome, probe.Reason) {
	switch {
	case shortage.IsErrno(number),
		s == Connecting && !bind && (number == syscall.EADDRNOTAVAIL || number == syscall.EAGAIN): // no port is free, over TCP or UDP
		return probe.Unknown, probe.ReasonResources
	case s == Pinging:
		return classifyPing(number)
	case s == ConnectingUnix:
		return probe.Failure, unixReason(number)
	}
	switch {
	case isSourceErrno(number):
		return probe.Unknown, probe.ReasonTCPSource
	case isNoRoute(number):
		return probe.Failure, probe.ReasonTCPUnreachable
	}
	switch number {
	case syscall.ECONNREFUSED:
		return probe.Failure, probe.ReasonTCPRefused
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return probe.Failure, probe.ReasonTCPReset
	}
	return probe.Failure, ""
}

// isSourceErrno reports whether an error number means that this machine cannot reach anything in the attempted way.
func isSourceErrno(number syscall.Errno) bool {
	switch number {
	case syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT, // this machine lacks the address or its family
		syscall.EINVAL, syscall.EACCES, syscall.EPERM, // the source address cannot reach the peer, or a local firewall forbids it
		syscall.ENETDOWN: // this machine's interface is down: the network never reports it
		return true
	}
	return false
}

// isNoRoute reports whether an error number means that there is no route to the host.
func isNoRoute(number syscall.Errno) bool {
	return number == syscall.EHOSTUNREACH || number == syscall.ENETUNREACH || number == syscall.EHOSTDOWN
}

// classifyPing is classifyErrno for a system call on an ICMP socket. EAGAIN means that no identifier is free, or that the send
// buffer is full. EMSGSIZE counts as an answer: the packet does not fit through a network on the path, which the system may have
// learned from an earlier packet.
func classifyPing(number syscall.Errno) (probe.Outcome, probe.Reason) {
	switch {
	case number == syscall.EAGAIN:
		return probe.Unknown, probe.ReasonResources
	case isSourceErrno(number):
		return probe.Unknown, probe.ReasonICMPSource
	case isNoRoute(number):
		return probe.Failure, probe.ReasonICMPUnreachable
	case number == syscall.EMSGSIZE:
		return probe.Failure, probe.ReasonICMPTooBig
	}
	return probe.Failure, ""
}

func unixReason(number syscall.Errno) probe.Reason {
	switch number {
	case syscall.ENOENT:
		return probe.ReasonUnixMissing
	case syscall.ECONNREFUSED, syscall.EAGAIN: // EAGAIN: the backlog is full
		return probe.ReasonUnixRefused
	}
	return reasonUnixFailed
}

// reasonByType returns the reason of an error of the resolver or of a TLS handshake, by its type, or "".
func reasonByType(err error) probe.Reason {
	var (
		dns     *net.DNSError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		cert    *tls.CertificateVerificationError
		op      *net.OpError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return probe.ReasonDNSNotFound
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return probe.ReasonTLSExpired
	case errors.As(err, &name):
		return probe.ReasonTLSName
	case errors.As(err, &cert):
		return probe.ReasonTLSUntrusted
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // how crypto/tls marks alerts
		return probe.ReasonTLSFailed
	}
	return ""
}
