package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sonde-probe/sonde/internal/dbus"
	"github.com/sonde-probe/sonde/probe"
)

// Error is the reason why a call to systemd failed.
type Error struct {
	Reason probe.Reason // of the layer runtime
	Text   string
	err    error
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// errChanged is the error of an action on an invocation that is no longer the current one, or that is being stopped.
var errChanged = errors.New("the unit was restarted in the meantime, or is being stopped")

const (
	busErrors     = "org.freedesktop.DBus.Error."
	managerErrors = "org.freedesktop.systemd1."
)

// failed converts the error of a call. unit is the unit that the call should start or restart, or empty.
func failed(err error, socket, unit string) error {
	var answer *dbus.Error
	name := ""
	if errors.As(err, &answer) {
		name = answer.Name
	}
	is := func(prefix string, names ...string) bool {
		for _, n := range names {
			if name == prefix+n {
				return true
			}
		}
		return false
	}
	wrap := func(reason probe.Reason, format string, args ...any) error {
		return &Error{Reason: reason, Text: probe.OneLine(fmt.Sprintf(format, args...), maxText), err: err}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case is(managerErrors, "NoUnitForInvocationID", "TransactionIsDestructive"):
		return errChanged
	case errors.Is(err, context.DeadlineExceeded), is(busErrors, "NoReply", "Timeout", "TimedOut"):
		return wrap(probe.ReasonRuntimeTimeout, "systemd did not answer in time at the bus %s", socket)
	case unit != "" && is(busErrors, "AccessDenied", "InteractiveAuthorizationRequired"):
		return wrap(probe.ReasonRuntimePermission, `user %d may not restart %s: run the engine as root, or permit it by a rule of polkit for the action org.freedesktop.systemd1.manage-units with unit %q (%v)`, os.Getuid(), unit, unit, answer)
	case errors.Is(err, fs.ErrPermission), is(busErrors, "AccessDenied", "AuthFailed"):
		return wrap(probe.ReasonRuntimePermission, "user %d may not use the bus %s: %v", os.Getuid(), socket, err)
	case is(busErrors, "ServiceUnknown", "NameHasNoOwner", "Disconnected"):
		return wrap(probe.ReasonRuntimeUnavailable, "systemd is not connected to the bus %s: %v", socket, answer)
	case answer != nil:
		return wrap(probe.ReasonRuntimeFailed, "systemd: %v", answer)
	}
	text := err.Error()
	if _, after, found := strings.Cut(text, socket+": "); found {
		text = after
	}
	return wrap(probe.ReasonRuntimeUnavailable, "the bus %s cannot be reached: %s", socket, text)
}

// maxText is the maximum size of a text that comes from systemd or the bus, in bytes.
const maxText = 1 << 10

// reasonOf returns the reason of an error that failed returned.
func reasonOf(err error) probe.Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return probe.ReasonRuntimeFailed
}
