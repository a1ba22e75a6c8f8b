package command

import (
	"context"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/quota"
)

// waitDelay limits how long Run waits after the command has exited or ctx is done: for a killed command to exit, and for output
// pipes that a descendant keeps open.
const waitDelay = 100 * time.Millisecond

// End is the result of a command.
type End struct {
	Status syscall.WaitStatus
	Killed bool // ctx was done first and the command itself was killed, not only the rest of its group; Status may be zero

	// TooMany is true if the command was killed because it had more than maxProcesses. Then Killed is false.
	TooMany bool

	// Lost is how long the command could not run: before its start, while the limits on processes left no space for it and until a
	// processor started it, and later while it waited for a processor. If the command was killed because ctx was done, Lost
	// includes its running descendants, otherwise only its first thread. Time does not count as lost if the command lost it to its
	// own processes, to the quota of a control group that it joined, or by flooding its outputs. Lost is 0 on systems other than
	// Linux.
	Lost time.Duration

	// Unmeasured is why a part of Lost is unknown: this process lacked descriptors or memory to read it. The command may have
	// lacked them as well.
	Unmeasured error

	// Stuck is set if the command was killed and has not exited: it belongs to another user, or hangs in the kernel. The channel is
	// closed when the command exits.
	Stuck <-chan struct{}
}

// died reports whether a killed command died from the SIGKILL. Otherwise it had exited before, unnoticed.
func died(status syscall.WaitStatus) bool {
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

// maxProcesses is the maximum number of processes of a command, on Linux: a command with more is assumed to fork without end, and
// is killed.
const maxProcesses = 512

// String returns "exit status 7" or "killed by signal: terminated".
func (e End) String() string {
	if e.TooMany {
		return fmt.Sprintf("killed because it had more than %d processes", maxProcesses)
	}
	if e.Status.Signaled() {
		return "killed by signal: " + e.Status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", e.Status.ExitStatus())
}

// Starved returns a text to append to the message about a command that was killed after a time, if it could not run for more than a
// quarter of that time; otherwise "".
func (e End) Starved(after time.Duration) string {
	if e.Lost <= after/4 {
		return ""
	}
	return fmt.Sprintf("; for %v of that time it could not run: this machine is short of processor time or processes", e.Lost.Round(time.Millisecond))
}

// Run starts the command in its own process group, copies its output to stdout and stderr, and returns when the command has exited,
// or at most 2*waitDelay after ctx is done. In both cases the rest of the group is killed, and on Linux all descendants of the
// command, even those that have left the group (setsid): a guard, a process of this program that is their subreaper, kills them,
// even if this program exits, for whatever reason. Run does not wait for them. See MayDetach for an exception, and maxProcesses.
//
// The command waits to be started, for at most half of ctx's time, while it would exceed the pids.max of a cgroup or the
// RLIMIT_NPROC of this process.
//
// An error means that the command could not be started, or that its status is lost; shortage.IsFork reports whether this machine is
// at fault. The writers must not fail or block, and must accept writes after Run has returned. Unless they are equal, Run writes to
// them concurrently.
func (p Plan) Run(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	if ctx.Err() != nil {
		return End{Killed: true}, nil
	}
	waited, err := quota.Processes.Acquire(ctx)
	if err != nil && ctx.Err() != nil {
		return End{Killed: true, Lost: waited}, nil
	}
	if err != nil {
		return End{}, err
	}
	defer quota.Processes.Ended()
	end, err := p.run(ctx, stdout, stderr, onceWithError(quota.Processes.Started))
	end.Lost += waited
	return end, err
}

// onceWithError returns a function that calls f only the first time it is called.
func onceWithError(f func(error)) func(error) {
	var once sync.Once
	return func(err error) { once.Do(func() { f(err) }) }
}

// statusLost returns the error for a command that was reaped by another part of the program, which waits for any child or ignores
// SIGCHLD.
func statusLost(err error) error { return fmt.Errorf("exit status is lost: %w", err) }
