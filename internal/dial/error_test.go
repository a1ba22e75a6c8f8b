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
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// during returns an error in the form of package net.
func during(call string, number syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(call, number)}
}

func TestErrorsHaveReasons(t *testing.T) {
	invalid := func(why x509.InvalidReason) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: why, Cert: new(x509.Certificate)}}
	}
	tests := []struct {
		name    string
		stage   Stage
		err     error
		outcome probe.Outcome
		reason  probe.Reason
	}{
		{"no descriptors", Connecting, during("socket", syscall.EMFILE), probe.Unknown, probe.ReasonResources},
		{"no descriptors in the system", ConnectingUnix, during("socket", syscall.ENFILE), probe.Unknown, probe.ReasonResources},
		{"no free port", Connecting, during("connect", syscall.EADDRNOTAVAIL), probe.Unknown, probe.ReasonResources},
		{"no free port over UDP", Connecting, during("connect", syscall.EAGAIN), probe.Unknown, probe.ReasonResources},
		{"no more to wait for", Connecting, during("epoll_ctl", syscall.ENOSPC), probe.Unknown, probe.ReasonResources},
		{"no memory to send", Transferring, during("write", syscall.ENOMEM), probe.Unknown, probe.ReasonResources},
		{"a source address of another machine", Connecting, during("bind", syscall.EADDRNOTAVAIL), probe.Unknown, probe.ReasonTCPSource},
		{"no interface", Connecting, during("connect", syscall.ENETDOWN), probe.Unknown, probe.ReasonTCPSource},
		{"no IPv6", Connecting, during("socket", syscall.EAFNOSUPPORT), probe.Unknown, probe.ReasonTCPSource},
		{"no descriptors for a lookup", Resolving, localError{&net.DNSError{Err: "no such host", IsNotFound: true}}, probe.Unknown, probe.ReasonResources},
		{"a name server that is no longer known", Resolving, localError{fmt.Errorf("lookup web: %w", errUnlisted)}, probe.Unknown, probe.ReasonResolver},
		{"no name server answers", Resolving, &net.DNSError{Err: "i/o timeout", IsTimeout: true}, probe.Failure, probe.ReasonDNSTimeout},
		{"no name server is there", Resolving, &net.DNSError{Err: "connection refused"}, probe.Failure, probe.ReasonDNSFailed},
		{"a name server fails", Resolving, &net.DNSError{Err: "server misbehaving"}, probe.Failure, probe.ReasonDNSFailed},
		{"a backlog is full", ConnectingUnix, during("connect", syscall.EAGAIN), probe.Failure, probe.ReasonUnixRefused},
		{"no authorities to verify with", Handshaking, &tls.CertificateVerificationError{Err: x509.SystemRootsError{Err: syscall.EMFILE}}, probe.Unknown, probe.ReasonResources},
		{"no memory", Connecting, during("connect", syscall.ENOBUFS), probe.Unknown, probe.ReasonResources},
		{"a source that cannot go there", Connecting, during("connect", syscall.EINVAL), probe.Unknown, probe.ReasonTCPSource},
		{"a firewall here", Connecting, during("connect", syscall.EPERM), probe.Unknown, probe.ReasonTCPSource},
		{"refused", Connecting, during("connect", syscall.ECONNREFUSED), probe.Failure, probe.ReasonTCPRefused},
		{"reset", Connecting, during("connect", syscall.ECONNRESET), probe.Failure, probe.ReasonTCPReset},
		{"no route to the host", Connecting, during("connect", syscall.EHOSTUNREACH), probe.Failure, probe.ReasonTCPUnreachable},
		{"no route to the network", Connecting, during("connect", syscall.ENETUNREACH), probe.Failure, probe.ReasonTCPUnreachable},
		{"given up by the system", Connecting, during("connect", syscall.ETIMEDOUT), probe.Failure, probe.ReasonTCPTimeout},
		{"something else", Connecting, during("connect", syscall.EIO), probe.Failure, probe.ReasonTCPFailed},
		{"no socket", ConnectingUnix, during("connect", syscall.ENOENT), probe.Failure, probe.ReasonUnixMissing},
		{"not allowed", ConnectingUnix, during("connect", syscall.EACCES), probe.Failure, reasonUnixFailed},
		{"expired", Handshaking, invalid(x509.Expired), probe.Failure, probe.ReasonTLSExpired},
		{"not for servers", Handshaking, invalid(x509.IncompatibleUsage), probe.Failure, probe.ReasonTLSUntrusted},
		{"closed in the handshake", Handshaking, io.EOF, probe.Failure, probe.ReasonTLSFailed},
		{"late in the handshake", Handshaking, context.DeadlineExceeded, probe.Failure, probe.ReasonTLSTimeout},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantError(t, Classify(t.Context(), test.stage, test.err), test.outcome, test.reason)
		})
	}
}

func TestABrokenConnectionHasAReason(t *testing.T) {
	for reason, err := range map[probe.Reason]error{
		probe.ReasonTCPClosed:  io.ErrUnexpectedEOF,
		probe.ReasonTCPReset:   during("read", syscall.ECONNRESET),
		probe.ReasonTCPTimeout: os.ErrDeadlineExceeded,
		probe.ReasonTCPFailed:  net.ErrClosed,
		probe.ReasonTLSFailed:  &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")},
	} {
		wantError(t, Classify(t.Context(), Transferring, err), probe.Failure, reason)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	wantError(t, Classify(stopped, Transferring, io.EOF), probe.Unknown, probe.ReasonStopped)
}

func TestAResultIsBoundedAndClean(t *testing.T) {
	got := Result(failure(probe.ReasonTLSName, errors.New("\x1b[2J"+strings.Repeat("name, ", 10000))))
	if len(got.Detail) > maxText || strings.Contains(got.Detail, "\x1b") {
		t.Errorf("the detail has %d bytes: %q", len(got.Detail), got.Detail[:10])
	}
	if got := Result(io.EOF); got.Outcome != probe.Unknown || got.Reason != probe.ReasonTCPFailed || got.Detail != "EOF" {
		t.Errorf("an unknown error gives %+v", got)
	}
}
