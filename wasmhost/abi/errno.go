package abi

import "fmt"

// Errno is an error of a call. The numbers and their names are those of WASI
// preview 1.
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
	ENOTSOCK        Errno = 57 // not a connection
	ENOTSUP         Errno = 58 // not supported by this host
	EPIPE           Errno = 64
	EPROTO          Errno = 65 // the TLS handshake failed
	EPROTONOSUPPORT Errno = 66 // unknown network
	ETIMEDOUT       Errno = 73 // a deadline has passed
	ENOTCAPABLE     Errno = 76 // not granted
)

// Error returns a text for people.
func (e Errno) Error() string {
	if s := e.text(); s != "" {
		return s
	}
	return fmt.Sprintf("error %d", uint16(e))
}

func (e Errno) text() string {
	switch e {
	case OK:
		return "no error"
	case E2BIG:
		return "too long"
	case EADDRNOTAVAIL:
		return "no local address or port to dial from"
	case EAGAIN:
		return "not ready"
	case EBADF:
		return "no such descriptor"
	case ECONNABORTED:
		return "the attempt was cancelled"
	case ECONNREFUSED:
		return "connection refused"
	case ECONNRESET:
		return "connection reset"
	case EFAULT:
		return "address outside of the memory"
	case EHOSTUNREACH:
		return "host unreachable"
	case EINVAL:
		return "invalid argument"
	case EIO:
		return "input or output error"
	case EMFILE:
		return "too many connections"
	case ENETUNREACH:
		return "network unreachable"
	case ENOENT:
		return "not found"
	case ENOSPC:
		return "a limit was reached"
	case ENOSYS:
		return "not implemented"
	case ENOTCONN:
		return "not connected"
	case ENOTSOCK:
		return "not a connection"
	case ENOTSUP:
		return "not supported by this host"
	case EPIPE:
		return "connection closed"
	case EPROTO:
		return "TLS handshake failed"
	case EPROTONOSUPPORT:
		return "unknown network"
	case ETIMEDOUT:
		return "timed out"
	case ENOTCAPABLE:
		return "not granted"
	}
	return ""
}
