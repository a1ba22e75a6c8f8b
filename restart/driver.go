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
// A panic in Run is logged with its stack, and counts as an Exit with Err: the next
// instance starts after the back-off. What the driver has started by then is the
// driver's to clean up, by a deferred call.
type Driver interface {
	// Run starts one instance, and returns when the instance has terminated or
	// failed to start.
	//
	// Run calls began once, as soon as the instance runs. A grace period received from end asks Run to
	// terminate the instance: by a request first, by force when the grace period
	// is over. Further grace periods may arrive, and each may only shorten the
	// time that is left. When ctx is done Run kills the instance at once. A driver
	// that fails to terminate the instance keeps running, and is asked again.
	Run(ctx context.Context, began func(Begun), end <-chan time.Duration) Exit
}

// Begun is an instance that runs, as its driver knows it.
type Begun struct {
	ID      string            // no other instance of the target has it; a restart by the runtime makes another one
	Since   time.Time         // when it began to run, by the clock of this machine; zero: now. It is ignored if it lies in the future
	Address string            // where it is reached: see probe.Instance.Address; empty: where the target says
	Ports   map[string]uint16 // the same of its ports; do not write it afterwards
}

// External is a Driver whose instances run outside the engine, and outlive it. It
// is asked to terminate an instance only because a probe fails. When its unit is
// removed or changed, or the controller stops, the instance is released: ctx is
// done, and Run returns without touching it, with the cause of ctx as the error of
// the Exit; a command that terminates it is killed. An Exit without an error says that
// the instance has terminated. The next instance counts as started as soon as one has
// terminated; the back-off is kept between requests to terminate.
//
// While Run waits for an instance, since the one before has exited, it gives a Notice (see Notifying). It is then asked to
// terminate an instance, too: once the back-off is over, if the unit's policy restarts an instance with such an exit, and
// again after each further back-off. It starts the next instance, unless its runtime will do so, or somebody has stopped the
// one before. What was asked for before began is called is not received any more afterwards.
//
// The method SetFailed marks the driver: without it, the controller takes the instances for those that the engine
// runs. Assert the interface beside the driver, so that the compiler finds a method that is missing:
//
//	var _ restart.External = (*driver)(nil)
type External interface {
	Driver

	// SetFailed sets the function that Run calls with the reason when it could not terminate the instance, which keeps
	// running. It is called before Run, never concurrently with it; the function never blocks.
	SetFailed(failed func(reason error))
}

// Notifying is a Driver that says more about an instance than that it runs: that it has not started yet or does not
// work, as it reports itself, or that it cannot be seen.
type Notifying interface {
	Driver

	// SetNotice sets the function that Run calls with the latest Notice. It is called before Run, never concurrently with it; the function never blocks.
	SetNotice(set func(Notice))
}

// Notice is what a Notifying driver says about an instance. The zero Notice says that it is well.
type Notice struct {
	// Reason is why there is no instance yet, such as probe.ReasonStarting, before began is called: it is reported as one
	// that waits. Afterwards any reason restarts the instance, as a failing liveness probe does.
	//
	// A reason of the runtime (probe.Reason.BlamesRuntime) says that the driver can neither see the instance nor restart
	// it now. One that was reported as running stays so, with that reason. Its verdicts stay, and its restart waits: the
	// driver is not asked to terminate an instance until the Notice is withdrawn. When the driver knows that the instance
	// has ended, it returns an Exit instead.
	Reason probe.Reason
	Detail string // for people: what is wrong, since when, and what to do
}

// LostNotice returns the Notice of a driver whose runtime cannot be seen since a time, for a reason of the runtime.
func LostNotice(reason probe.Reason, why error, since time.Time) Notice {
	return Notice{Reason: reason, Detail: fmt.Sprintf("%v (since %s)", why, since.UTC().Format(time.RFC3339))}
}

// Outliving is a Driver whose instances may outlive the engine. When the controller stops,
// and Outlives returns true, the instance is released: ctx is done with the cause
// ErrReleased, and Run returns that error without touching it, whether it has called began or
// not. An Exit without ErrReleased says that the instance has exited meanwhile. When its unit is
// removed or changed it is terminated like any other.
type Outliving interface {
	Driver
	Outlives() bool

	// SetStop says by which signal an instance is asked to exit, and how long it may take to exit when
	// it is terminated without a request of this controller: by the next engine, for example. The
	// controller calls it before Run, and repeatedly while Run goes on, since the unit may have changed.
	// It must not block.
	SetStop(s StopSettings)
}

// ErrReleased is the cause of the context of an instance that is left running.
var ErrReleased = errors.New("restart: the instance is left running without the engine")

// ErrNotTakenOver is in the error of an Exit when an instance of an earlier engine may run,
// and the driver, a Resumer, cannot watch it now: it lacks descriptors, for example. An
// instance that goes on stays reported as running. The controller calls Run again, as after
// ErrShortage.
var ErrNotTakenOver = errors.New("running instance cannot be watched")

// ErrShortage is in the error of an Exit when no instance was started because this machine
// lacks what that takes: descriptors, memory, processes, threads, or room in a directory of
// the engine. The target is not at fault: the controller calls Run again within twenty seconds,
// and neither its back-off nor its restart count changes. An External driver returns it when it
// could not begin to terminate the instance. A Resumer calls began with the same ID again.
var ErrShortage = errors.New("the engine cannot start it now")

// ShortageError is an ErrShortage with a reason: it is not this machine that lacks something, but a container runtime or service manager
// that does not answer.
type ShortageError struct {
	Reason probe.Reason // such as runtime.unavailable
	Err    error
}

// Error implements error.
func (e *ShortageError) Error() string { return e.Err.Error() }

// Unwrap returns ErrShortage and the cause.
func (e *ShortageError) Unwrap() []error { return []error{ErrShortage, e.Err} }

// shortageReason returns the reason of an ErrShortage.
func shortageReason(err error) probe.Reason {
	if s, ok := errors.AsType[*ShortageError](err); ok {
		return s.Reason
	}
	return probe.ReasonResources
}

// ErrInterrupted is in the error of an Exit of an External driver that was stopped while it terminated an
// instance, or before, because this engine may not do that now: another one of its fleet may own the target. The
// instance goes on: the controller calls Run again a second later, and reports restart.ownership until then.
var ErrInterrupted = errors.New("the restart was interrupted")

// WithheldError is in the error of an Exit of an External driver that was not asked to terminate an instance, since a
// group of a fleet would have too few ready members without it, as another engine sees them or has reserved them. The
// instance goes on: the controller calls Run again as after ErrShortage, and reports restart.floor until then.
type WithheldError struct{ Group string }

// Error implements error.
func (e *WithheldError) Error() string { return withheldDetail(e.Group) }

// Exit describes how an instance exited.
type Exit struct {
	Code   int    // exit status; 128 plus the signal's number for a signal; -1 when Err is set
	Signal string // name of the signal that has killed it, such as "SIGKILL"; empty if none has, or that is not known
	Err    error  // why the instance failed to start, or could not be watched; nil otherwise
	Output string // the end of its output, at most 4 KiB; may be empty
	OOM    bool   // the kernel has killed it since it used more memory than it may

	// ByOthers says that somebody else has stopped or restarted the instance, such as an operator by the runtime's own
	// command. It is no crash and no restart of this controller, even if Run was asked to terminate the instance meanwhile:
	// it takes nothing from the budget, the back-off does not grow, and Run is called again at once for the next instance.
	ByOthers bool
}
