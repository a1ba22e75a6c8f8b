//go:build !linux

package command

import (
	"context"
	"io"
	"syscall"
)

// Attr returns the attributes of a process in its own group. It goes on when the engine
// is killed: only Linux can prevent that.
func Attr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential}
}

// CloseInherited does nothing: there is no portable way.
func CloseInherited(int) {}

func (p Plan) run(ctx context.Context, stdout, stderr io.Writer, started func(error)) (End, error) {
	defer started(nil)
	return p.RunPortably(ctx, stdout, stderr)
}

// reap waits for the command, which reaps it, and then kills the rest of its group:
// there is no portable way to wait without reaping.
func (c *child) reap() error {
	err := c.cmd.Wait()
	c.exited()
	return c.statusError(err)
}
