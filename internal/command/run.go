package command

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"
)

// Linger bounds what Run waits for beyond the command's end or ctx's: for the
// death of a command that was killed, and for the output pipes when a
// daemonised descendant holds them open.
const Linger = 100 * time.Millisecond

// End is how a command ended.
type End struct {
	Status syscall.WaitStatus
	Killed bool // ctx was done first and the group was killed; Status may be missing

	// Undead is set when the command was killed and has not died: it is another
	// user's, or stuck in the kernel. It is closed when the command is dead.
	Undead <-chan struct{}
}

// Run starts the command in a process group of its own, copies its output to
// stdout and stderr, and returns when it has ended or ctx is done, at most
// 2*Linger later. Whatever is left of the group is killed in both cases. What
// has left the group (setsid) lives on, but is not waited for.
//
// An error says that the command could not be started, or that its status was
// lost. The writers must neither refuse nor hold up a write, and must bear writes
// after Run has returned. They are written to at once unless they are the same.
func (p Plan) Run(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	if ctx.Err() != nil {
		return End{Killed: true}, nil
	}
	return p.run(ctx, stdout, stderr)
}

// lost is the error of a command that somebody else has reaped: a program that
// waits for any child, or that ignores SIGCHLD. To guess its status would be worse.
func lost(err error) error { return fmt.Errorf("exit status is lost: %w", err) }

// KillGroup sends SIGKILL to every process of a group. The caller knows that
// the group's leader is not reaped yet: its number is still its own.
func KillGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
