package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// The kinds of errors of a runtime. Any other error of a call is an *Error without a kind: the runtime refused the
// call, with the reason in the text.
var (
	ErrUnavailable = errors.New("the container runtime is unreachable")
	ErrTimeout     = errors.New("the container runtime did not respond in time")
	ErrPermission  = errors.New("no permission to use the container runtime")
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("conflict")
)

// Error is an error of a call.
type Error struct {
	Kind   error  // ErrUnavailable, ErrTimeout, ErrPermission, ErrNotFound or ErrConflict; nil for any other
	Op     string // the call: "POST /containers/…/start"
	Status int    // of the response; 0 if there was none
	Text   string // a description, in one line
	Err    error  // the cause; nil if the response is the cause
}

// Error implements error.
func (e *Error) Error() string {
	if e.Kind == nil || e.Kind == ErrNotFound || e.Kind == ErrConflict {
		return e.Text
	}
	return e.Kind.Error() + ": " + e.Text
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	var causes []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			causes = append(causes, err)
		}
	}
	return causes
}

func (c *Client) errorf(op, format string, args ...any) *Error {
	return &Error{Op: op, Text: fmt.Sprintf(format, args...)}
}

// failed returns the error of a call without a complete response.
func (c *Client) failed(ctx context.Context, op string, err error) error {
	e := &Error{Op: op, Err: err}
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e.Kind, e.Text = ErrTimeout, fmt.Sprintf("%s at %s", op, c.socket)
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Text = ErrPermission, fmt.Sprintf("%s: add the user of the engine to the group of this socket, or run Podman's socket as this user", c.socket)
	default:
		e.Kind, e.Text = ErrUnavailable, fmt.Sprintf("%s: %s", c.socket, oneLine(innermost(err).Error()))
	}
	return e
}

// innermost returns the innermost cause of an error, without the wrapping of the packages net and net/http.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// refused returns the error for an error response.
func (c *Client) refused(op string, res *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxMessage)) // on an error, the message is just shorter
	e := &Error{Op: op, Status: res.StatusCode, Text: message(text)}
	if e.Text == "" {
		e.Text = fmt.Sprintf("%s failed: the runtime responded with %s", op, oneLine(res.Status))
	}
	switch res.StatusCode {
	case http.StatusNotFound:
		e.Kind = ErrNotFound
	case http.StatusConflict:
		e.Kind = ErrConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Kind = ErrPermission
	case http.StatusInternalServerError:
		if strings.HasSuffix(e.Text, "no such container") { // Podman's response about a container that is being removed
			e.Kind = ErrNotFound
		}
	}
	return e
}

// message returns the message of an error response.
func message(text []byte) string {
	var answer struct{ Message, Cause string }
	if json.Unmarshal(text, &answer) == nil && answer.Message != "" {
		return oneLine(answer.Message)
	}
	return oneLine(string(text))
}

// oneLine returns untrusted text as one line of limited length.
func oneLine(text string) string {
	return probe.OneLine(strings.TrimSpace(text), maxMessage)
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }
