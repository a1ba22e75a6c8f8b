package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Outcome is the outcome of one attempt.
type Outcome int32

// The outcomes. The zero value never means healthy.
const (
	Unknown Outcome = iota // the attempt could not be made, and the target is not to blame
	Success
	Warning // counts as Success; the detail describes the problem
	Failure
)

// String returns the name of the outcome in JSON and metrics, such as "success".
func (o Outcome) String() string {
	if o < Unknown || o > Failure {
		o = Unknown
	}
	return [...]string{"unknown", "success", "warning", "failure"}[o]
}

// Result is the result of an attempt.
type Result struct {
	Outcome Outcome

	// Reason is a stable code for alerts and metrics: a layer and a cause such as
	// "redis.loading", both of letters a-z, digits and underscores, at most 63 bytes.
	// The layers plugin, engine, handler, target and restart are reserved. A Success
	// needs no reason.
	Reason string

	// Detail is a text for people, in UTF-8. It is truncated to 4 KiB.
	Detail string
}

// Succeed returns a Success.
func Succeed(detail string) Result { return Result{Success, "", detail} }

// Warn returns a Warning.
func Warn(reason, detail string) Result { return Result{Warning, reason, detail} }

// Fail returns a Failure.
func Fail(reason, detail string) Result { return Result{Failure, reason, detail} }

// FailWith returns the result of an attempt that ended with an error. Connection errors have their
// own reasons, such as "tcp.refused" and "tcp.timeout"; for any other error the result has the
// given reason. The result is a Failure, or Unknown if the attempt could not be made, for example
// because a grant is missing or a limit was reached.
func FailWith(reason string, err error) Result {
	if isApart(err) { // the host sets the reason
		return Result{Outcome: Unknown, Detail: "the plugin connected by itself, which reaches nothing from inside a module: pass t.DialContext to its library: " + err.Error()}
	}
	r := Result{Failure, reason, err.Error()}
	if known := reasonOf(err); known != "" {
		r.Reason = known
	}
	if notTarget(err) {
		r.Outcome = Unknown
	}
	return r
}

// Problem returns an error with its own reason, which takes precedence over the reason given to FailWith.
func Problem(reason, text string) error { return &Error{Reason: reason, detail: text} }

// Error is an error of a connection, or a Problem. It is a net.Error.
type Error struct {
	Op     string // the operation: "dial tcp :6379"; empty for a Problem
	Reason string // a stable code: "tcp.refused"; empty if the plugin itself is at fault
	Err    error  // a syscall.Errno, os.ErrDeadlineExceeded or an error of a library
	detail string // the host's description
}

// Error returns the operation and a description.
func (e *Error) Error() string {
	verb, _, _ := strings.Cut(e.Op, " ")
	switch {
	case e.Op == "", strings.HasPrefix(e.detail, verb+" "): // it names the operation already
		return e.detail
	case e.detail != "":
		return e.Op + ": " + e.detail
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether a deadline has passed.
func (e *Error) Timeout() bool { return timedOut(e.Err) }

// Temporary returns false: an attempt is not retried automatically.
func (e *Error) Temporary() bool { return false }

func timedOut(err error) bool {
	var late interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &late) && late.Timeout()
}

// reasonOf returns the reason of a connection error, or "". The codes are those of the built-in
// handlers.
func reasonOf(err error) string {
	if known := (*Error)(nil); errors.As(err, &known) && known.Reason != "" {
		return known.Reason
	}
	why := networkReason(err)
	if op := (*net.OpError)(nil); errors.As(err, &op) && strings.HasPrefix(op.Net, "udp") {
		why = strings.Replace(why, "tcp.", "udp.", 1)
	}
	return why
}

func networkReason(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "tcp.refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "tcp.reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "tcp.unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "tcp.closed"
	case timedOut(err):
		return "tcp.timeout"
	}
	return systemReason(err)
}

// localReasons are the reasons of errors that are unrelated to the target.
var localReasons = []string{"", "tcp.source", "engine.resources", "engine.network", "engine.permission", "engine.resolver", "engine.clock", "engine.stopped"}

// notTarget reports whether an error is unrelated to the target.
func notTarget(err error) bool {
	var known *Error
	if errors.As(err, &known) {
		return slices.Contains(localReasons, known.Reason)
	}
	for _, number := range localErrors {
		if errors.Is(err, number) {
			return true
		}
	}
	return errors.Is(err, context.Canceled)
}
