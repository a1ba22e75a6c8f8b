package restart

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Driver starts and terminates the instances of one target.
//
// A panic in Run is logged with its stack and counts as an Exit with Err: the next instance starts after the back-off.
// The driver must clean up whatever it has started by then in a deferred call.
type Driver interface {
	// Run starts one instance, and returns when the instance has terminated or
	// failed to start.
	//
	// Run calls began once, as soon as the instance runs. A grace period received from end asks Run to terminate the
	// instance: gracefully first, by force when the grace period is over. Further grace periods may arrive; each can
	// only shorten the remaining time. When ctx is done, Run kills the instance at once. A driver that fails to
	// terminate the instance keeps running, and is asked again.
	Run(ctx context.Context, began func(Begun), end <-chan time.Duration) Exit
}

// Begun describes a running instance, as reported by its driver.
type Begun struct {
	ID      string            // unique among the instances of the target; a restart by the runtime yields a new ID
	Since   time.Time         // when it began to run, by the clock of this machine; zero: now. A time in the future is ignored
	Address string            // see probe.Instance.Address; empty: the address that the target configures
	Ports   map[string]uint16 // see probe.Instance.Ports; must not be modified afterwards
}

// External is a Driver whose instances run outside the engine and outlive it. It is asked to terminate an instance only
// if a probe fails. When its unit is removed or changed, or the controller stops, the instance is released: ctx is
// done, and Run returns without touching the instance, with the cause of ctx as the error of the Exit. If a command is
// terminating the instance at that time, the command is killed. An Exit without an error means that the instance has
// terminated. The next instance counts as started as soon as the previous one has terminated; the back-off applies
// between requests to terminate.
//
// After an instance has exited, Run waits for the next one and publishes a Notice meanwhile (see Notifying). In that
// time it also receives requests to terminate an instance: one when the back-off is over, if the unit's policy restarts
// an instance after such an exit, and another after each further back-off. Run then starts the next instance, unless
// the runtime is about to do so, or somebody has stopped the previous one. Requests that were sent before began is
// called are dropped when it is called.
//
// The method SetFailed marks the driver as External: without it, the controller takes the instances for ones that the
// engine runs. Assert the interface next to the driver, so that the compiler reports a missing method:
//
//	var _ restart.External = (*driver)(nil)
type External interface {
	Driver

	// SetFailed sets the function that Run calls when it could not terminate the instance, which keeps running.
	// SetFailed is called before Run, never concurrently with it. The function never blocks.
	SetFailed(failed func(reason error))
}

// Notifying is a Driver that reports more about an instance than that it runs: that it has not started yet, that it
// reports itself as failing, or that the driver cannot see it.
type Notifying interface {
	Driver

	// SetNotice sets the function that Run calls with the latest Notice. SetNotice is called before Run, never
	// concurrently with it. The function never blocks.
	SetNotice(set func(Notice))
}

// Notice is the report of a Notifying driver about an instance. The zero Notice means that the instance is well.
type Notice struct {
	// Before began is called, Reason is why there is no instance yet, such as probe.ReasonStarting: the instance is
	// reported as waiting. After began, any reason restarts the instance, as a failing liveness probe does.
	//
	// The exception is a reason that blames the runtime (probe.Reason.BlamesRuntime): the driver can neither see nor
	// restart the instance now. An instance that was reported as running remains so, with that reason. Its verdicts
	// remain, and its restart waits: the driver is not asked to terminate an instance until the Notice is withdrawn. If
	// the driver knows that the instance has ended, it returns an Exit instead.
	Reason probe.Reason
	Detail string // for people: what is wrong, since when, and what to do
}

// LostNotice returns the Notice of a driver that has not been able to reach its runtime since the given time. The
// reason must be one that blames the runtime.
func LostNotice(reason probe.Reason, why error, since time.Time) Notice {
	return Notice{Reason: reason, Detail: fmt.Sprintf("%v (since %s)", why, since.UTC().Format(time.RFC3339))}
}

// Outliving is a Driver whose instances may outlive the engine. If Outlives returns true when the controller stops, the
// instance is released: ctx is done with the cause ErrReleased, and Run returns that error without touching the
// instance, whether it has called began or not. An Exit without ErrReleased means that the instance has exited in the
// meantime. When its unit is removed or changed, the instance is terminated like any other.
type Outliving interface {
	Driver
	Outlives() bool

	// SetStop sets how the instance is asked to exit, and how long it may take, when it is terminated without a request
	// of this controller: by the next engine, for example. The controller calls SetStop before Run, and repeatedly
	// while Run is running, since the unit may have changed. It must not block.
	SetStop(s StopSettings)
}

// ErrReleased is the cause of the context of an instance that keeps running without the engine.
var ErrReleased = errors.New("restart: the instance is left running without the engine")

// ErrNotTakenOver is wrapped in the error of an Exit when an instance of an earlier engine may be running, but the
// driver, a Resumer, cannot watch it now: it lacks descriptors, for example. Such an instance stays reported as running
// if it was. The controller calls Run again, as after ErrShortage.
var ErrNotTakenOver = errors.New("running instance cannot be watched")

// ErrShortage is wrapped in the error of an Exit when no instance was started because this machine lacks a resource:
// descriptors, memory, processes, threads, or space in a directory of the engine. The target is not at fault: the
// controller calls Run again within twenty seconds, and neither the back-off nor the restart count changes. An External
// driver returns it when it could not begin to terminate the instance; a Resumer must then call began with the same ID
// again.
var ErrShortage = errors.New("the engine lacks resources for this now")

// ShortageError is an ErrShortage with its own reason: not a shortage of this machine, but a container runtime or
// service manager that does not respond.
type ShortageError struct {
	Reason probe.Reason // such as runtime.unavailable
	Err    error
}

// Error implements error.
func (e *ShortageError) Error() string { return e.Err.Error() }

// Unwrap returns ErrShortage and the cause.
func (e *ShortageError) Unwrap() []error { return []error{ErrShortage, e.Err} }

// shortageReason returns the reason of a ShortageError, or the default for any other ErrShortage.
func shortageReason(err error) probe.Reason {
	if s, ok := errors.AsType[*ShortageError](err); ok {
		return s.Reason
	}
	return probe.ReasonResources
}

// ErrInterrupted is wrapped in the error of an Exit of an External driver that was stopped before or while it
// terminated an instance, because this engine may not terminate it now: another engine of its fleet may own the target.
// The instance keeps running: the controller calls Run again a second later, and reports restart.ownership until then.
var ErrInterrupted = errors.New("the restart was interrupted")

// WithheldError is wrapped in the error of an Exit of an External driver that did not terminate an instance because a
// group of a fleet would have too few ready members without it, including reservations and observations of other
// engines. The instance keeps running: the controller calls Run again as after ErrShortage, and reports restart.floor
// until then.
type WithheldError struct{ Group string }

// Error implements error.
func (e *WithheldError) Error() string { return withheldDetail(e.Group) }

// Exit describes how an instance exited.
type Exit struct {
	Code   int    // exit status; 128 plus the signal's number for a signal; -1 when Err is set
	Signal string // name of the signal that killed it, such as "SIGKILL"; empty if none did, or if unknown
	Err    error  // why the instance failed to start or could not be watched; nil otherwise
	Output string // the end of its output, at most 4 KiB; may be empty
	OOM    bool   // the kernel killed it for exceeding its memory limit

	// ByOthers means that somebody else has stopped or restarted the instance, such as an operator with the runtime's
	// own command. This counts neither as a crash nor as a restart by this controller, even if Run was asked to
	// terminate the instance in the meantime: the budget is not charged, the back-off does not grow, and Run is called
	// again at once for the next instance.
	ByOthers bool
}
