package guest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// The functions of the host; see wasmhost/abi.

//go:wasmimport sonde_v1 input
func hostInput(kind int32, buf *byte, limit int32) int32

//go:wasmimport sonde_v1 output
func hostOutput(kind int32, text string) int32

//go:wasmimport sonde_v1 log
func hostLog(level int32, text string) int32

//go:wasmimport sonde_v1 metric
func hostMetric(kind int32, name string, value float64) int32

//go:wasmimport sonde_v1 random
func hostRandom(buf *byte, length int32) int32

//go:wasmimport sonde_v1 remaining
func hostRemaining() int64

//go:wasmimport sonde_v1 resolve
func hostResolve(name string, buf *byte, limit int32) int32

//go:wasmimport sonde_v1 dial
func hostDial(network, address, options string, flags, timeout int32) int32

//go:wasmimport sonde_v1 start_tls
func hostStartTLS(fd int32, options string) int32

//go:wasmimport sonde_v1 conn_info
func hostConnInfo(fd int32, what uint32, buf *byte, limit int32) int32

//go:wasmimport sonde_v1 deadline
func hostDeadline(fd, which int32, ns int64) int32

//go:wasmimport sonde_v1 read
func hostRead(fd int32, buf *byte, length int32) int32

//go:wasmimport sonde_v1 write
func hostWrite(fd int32, buf *byte, length int32) int32

//go:wasmimport sonde_v1 close
func hostClose(fd int32) int32

//go:wasmimport sonde_v1 hold
func hostHold(fd int32, key string) int32

//go:wasmimport sonde_v1 held
func hostHeld(key string, flags int32) int32

// The constants of wasmhost/abi.
const (
	inputSettings = 1
	inputTarget   = 2
	inputState    = 3
	inputError    = 4
	inputPrepared = 5

	outputDetail = 1
	outputReason = 2
	outputState  = 3
	outputField  = 4

	outputPrepared = 5

	deadlineRead  = 1
	deadlineWrite = 2
)

// scratch is the buffer to which the host writes, for one call at a time.
var scratch = make([]byte, 4<<10)

// ask calls f with larger and larger buffers until the result fits. The result is valid until the
// next call of ask.
func ask(f func(buf *byte, limit int32) int32) ([]byte, int32) {
	for {
		n := f(unsafe.SliceData(scratch), int32(len(scratch)))
		if n <= int32(len(scratch)) {
			return scratch[:max(n, 0)], n
		}
		scratch = make([]byte, n)
	}
}

func input(kind int32) []byte {
	b, _ := ask(func(buf *byte, limit int32) int32 { return hostInput(kind, buf, limit) })
	return b
}

// hostError returns the error for a negative result, with the host's description.
func hostError(op string, result int32) error {
	e := &Error{Op: op, Err: syscall.Errno(-result)}
	if e.Err == syscall.ETIMEDOUT {
		e.Err = os.ErrDeadlineExceeded
	}
	eachLine(string(input(inputError)), func(key, value string) {
		switch key {
		case "reason":
			e.Reason = value
		case "detail":
			e.detail = value
		}
	})
	return e
}

// localErrors are unrelated to the target: a grant is missing, a limit was reached, or the attempt
// was cancelled.
var localErrors = []syscall.Errno{syscall.Errno(76), syscall.EMFILE, syscall.ENOSPC, syscall.ECONNABORTED}

// systemReason returns "": the errors that it handles occur only outside WebAssembly.
func systemReason(error) string { return "" }

// isApart reports whether an error comes from the simulated network that package net has inside a module. Connections
// made by the host have other errors.
func isApart(err error) bool {
	op, lookup, ours := (*net.OpError)(nil), (*net.DNSError)(nil), (*Error)(nil)
	return !errors.As(err, &ours) && (errors.As(err, &op) && op.Op == "dial" || errors.As(err, &lookup))
}

// host calls the host's functions.
type host struct {
	endpoint
	unmeasured bool // nothing uses numbers about this attempt
}

func (*host) dial(ctx context.Context, network, address string, secure TLS) (*Conn, error) {
	op := "dial " + network + " " + address
	wait, err := millisecondsOf(ctx)
	if err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	fd := hostDial(network, address, secure.options(), 0, wait)
	if fd < 0 {
		return nil, hostError(op, fd)
	}
	return &Conn{fd: fd, network: network}, nil
}

// millisecondsOf returns the time until ctx's deadline, as the timeout of dial: 0 means the
// attempt's own deadline.
func millisecondsOf(ctx context.Context) (int32, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if _, ok := ctx.(*lazyContext); ok {
		return 0, nil
	}
	at, ok := ctx.Deadline()
	if !ok {
		return 0, nil
	}
	left := max(time.Until(at).Milliseconds(), 1)
	return int32(min(left, 1<<31-1)), nil
}

func (*host) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	b, n := ask(func(buf *byte, limit int32) int32 { return hostResolve(name, buf, limit) })
	if n < 0 {
		return nil, hostError("resolve "+name, n)
	}
	var found []netip.Addr
	for line := range strings.Lines(string(b)) {
		if a, err := netip.ParseAddr(strings.TrimSuffix(line, "\n")); err == nil {
			found = append(found, a)
		}
	}
	return found, nil
}

func (*host) hold(key string, c *Conn) error {
	if n := hostHold(c.fd, key); n < 0 {
		return hostError("hold "+key, n)
	}
	c.gone = true
	if c.file != nil {
		_ = c.file.Close() // the host holds the connection, and has already closed the descriptor
	}
	return nil
}

func (*host) held(key string) (*Conn, bool) {
	fd := hostHeld(key, 0)
	return &Conn{fd: fd}, fd >= 0
}

func (*host) state() []byte { return append([]byte{}, input(inputState)...) }

func (*host) setState(b []byte) error {
	if n := hostOutput(outputState, unsafe.String(unsafe.SliceData(b), len(b))); n < 0 {
		return hostError("state", n)
	}
	return nil
}

func (*host) log(l Level, text string) { hostLog(int32(l), text) }

func (h *host) metric(kind int32, name string, value float64) {
	if kind == attempt && h.unmeasured {
		return
	}
	if hostMetric(kind, name, value) < 0 && kind == attempt {
		h.unmeasured = true
	}
}
