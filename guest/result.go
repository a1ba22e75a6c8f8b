package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
)

// Outcome is what one attempt found.
type Outcome int32

// The outcomes. The zero value never means health.
const (
	Unknown Outcome = iota // the attempt could not be made, through no fault of the target
	Success
	Warning // counts as Success; the detail says what to look at
	Failure
)

// String returns the outcome as Sonde writes it: "success".
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Warning:
		return "warning"
	case Failure:
		return "failure"
	}
	return "unknown"
}

// Result is what an attempt found and why.
type Result struct {
	Outcome Outcome

	// Reason is a stable code for alerts and metrics: a layer and a cause, as
	// "redis.loading", both of letters a-z, digits and underscores, at most 63
	// bytes. The layers plugin, engine, handler, target and restart are taken. A
	// Success needs none.
	Reason string

	// Detail is a text for a person, at most 4 KiB of UTF-8; the rest is cut.
	Detail string
}

// Succeed returns a Success.
func Succeed(detail string) Result { return Result{Success, "", detail} }

// Warn returns a Warning.
func Warn(reason, detail string) Result { return Result{Warning, reason, detail} }

// Fail returns a Failure.
func Fail(reason, detail string) Result { return Result{Failure, reason, detail} }

// FailWith returns what an attempt is that an error has ended. Trouble with the
// connection has its own reasons, such as "tcp.refused" and "tcp.timeout"; any other
// error has the reason given here. It is a Failure, but Unknown when the attempt
// could not be made: when a grant is missing or a limit was reached, say.
func FailWith(reason string, err error) Result {
	r := Result{Failure, reason, err.Error()}
	if known := reasonOf(err); known != "" {
		r.Reason = known
	}
	if unable(err) {
		r.Outcome = Unknown
	}
	return r
}

// Error is trouble with a connection. It is a net.Error.
type Error struct {
	Op     string // what was being done: "dial tcp :6379"
	Reason string // a stable code: "tcp.refused"; empty when the plugin itself is at fault
	Err    error  // a syscall.Errno, os.ErrDeadlineExceeded or what a library said
	detail string // what the host said
}

// Error returns what was being done, and a sentence.
func (e *Error) Error() string {
	verb, _, _ := strings.Cut(e.Op, " ")
	switch {
	case strings.HasPrefix(e.detail, verb+" "): // it says by itself what was being done
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

// Temporary returns false: an attempt is not repeated by itself.
func (e *Error) Temporary() bool { return false }

func timedOut(err error) bool {
	var late interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &late) && late.Timeout()
}

// reasonOf returns the reason that an error has by itself, or "". The codes are
// those of the built-in handlers.
func reasonOf(err error) string {
	var told *Error
	switch {
	case errors.As(err, &told) && told.Reason != "":
		return told.Reason
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
	return explain(err)
}

// unable reports whether an error says nothing about the target.
func unable(err error) bool {
	var told *Error
	if errors.As(err, &told) {
		return told.Reason == "" || told.Reason == "tcp.source" || told.Reason == "engine.stopped"
	}
	for _, number := range ours {
		if errors.Is(err, number) {
			return true
		}
	}
	return errors.Is(err, context.Canceled)
}
