package abi

import "fmt"

// Errno is an error of a host call. Numbers and names are those of WASI preview 1.
type Errno uint16

// The errors that a host returns.
const (
	OK              Errno = 0
	E2BIG           Errno = 1  // longer than its kind allows
	EADDRNOTAVAIL   Errno = 4  // no local address or port to dial from
	EAGAIN          Errno = 6  // not ready, and the descriptor has the NONBLOCK flag
	EBADF           Errno = 8  // no such descriptor
	ECONNABORTED    Errno = 13 // the attempt was cancelled
	ECONNREFUSED    Errno = 14
	ECONNRESET      Errno = 15
	EFAULT          Errno = 21 // address outside of the memory
	EHOSTUNREACH    Errno = 23
	EINVAL          Errno = 28
	EIO             Errno = 29 // any other error; InputError describes it
	EMFILE          Errno = 33 // more connections or dials than the limits allow
	ENETUNREACH     Errno = 40
	ENOENT          Errno = 44 // no such host name or Unix socket, or no connection held
	ENOSPC          Errno = 51 // a limit was reached: bytes, names of metrics
	ENOSYS          Errno = 52 // not implemented
	ENOTCONN        Errno = 53
	ENOTSUP         Errno = 58 // not supported by this host
	EPIPE           Errno = 64
	EPROTO          Errno = 65 // the TLS handshake failed
	EPROTONOSUPPORT Errno = 66 // unknown network
	ETIMEDOUT       Errno = 73 // a deadline has passed
	ENOTCAPABLE     Errno = 76 // not granted
)

// Error returns a description for people.
func (e Errno) Error() string {
	if text, ok := errnoTexts[e]; ok {
		return text
	}
	return fmt.Sprintf("error %d", uint16(e))
}

var errnoTexts = map[Errno]string{
	OK:              "no error",
	E2BIG:           "too long",
	EADDRNOTAVAIL:   "no local address or port to dial from",
	EAGAIN:          "not ready",
	EBADF:           "no such descriptor",
	ECONNABORTED:    "the attempt was cancelled",
	ECONNREFUSED:    "connection refused",
	ECONNRESET:      "connection reset",
	EFAULT:          "address outside of the memory",
	EHOSTUNREACH:    "host unreachable",
	EINVAL:          "invalid argument",
	EIO:             "input or output error",
	EMFILE:          "too many connections",
	ENETUNREACH:     "network unreachable",
	ENOENT:          "not found",
	ENOSPC:          "a limit was reached",
	ENOSYS:          "not implemented",
	ENOTCONN:        "not connected",
	ENOTSUP:         "not supported by this host",
	EPIPE:           "connection closed",
	EPROTO:          "TLS handshake failed",
	EPROTONOSUPPORT: "unknown network",
	ETIMEDOUT:       "timed out",
	ENOTCAPABLE:     "not granted",
}
