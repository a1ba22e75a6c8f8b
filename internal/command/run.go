package command

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"
)

// WaitDelay bounds how long Run waits after the command has exited or ctx is done: for a
// killed command to exit, and for output pipes that a descendant keeps open.
const WaitDelay = 100 * time.Millisecond

// End is the result of a command.
type End struct {
	Status syscall.WaitStatus
	Killed bool // ctx was done first and the group was killed; Status may be zero

	// Stuck is set when the command was killed and has not exited: it belongs to
	// another user, or hangs in the kernel. It is closed when the command exits.
	Stuck <-chan struct{}
}

// String returns "exit status 7" or "killed by signal: terminated".
func (e End) String() string {
	if e.Status.Signaled() {
		return "killed by signal: " + e.Status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", e.Status.ExitStatus())
}

// Run starts the command in its own process group, copies its output to stdout and
// stderr, and returns when the command has exited or ctx is done, at most 2*WaitDelay
// later. In both cases it kills the rest of the group. Descendants that have left the
// group (setsid) go on, but Run does not wait for them.
//
// An error says that the command could not be started, or that its status is lost. The
// writers must not fail or block, and must accept writes after Run has returned. Unless
// they are equal, Run writes to them concurrently.
func (p Plan) Run(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	if ctx.Err() != nil {
		return End{Killed: true}, nil
	}
	return p.run(ctx, stdout, stderr)
}

// statusLost is the error for a command that was reaped by another part of the program,
// which waits for any child or ignores SIGCHLD.
func statusLost(err error) error { return fmt.Errorf("exit status is lost: %w", err) }

// KillGroup sends SIGKILL to all processes of a group. The leader of the group must not
// be reaped yet: its ID could belong to another process afterwards.
func KillGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
