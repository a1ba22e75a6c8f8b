//go:build !linux

package command

import (
	"context"
	"io"
	"syscall"
)

// Attr puts a new process into a group of its own. Nothing kills it when the
// engine is killed: only Linux can do that.
func Attr(who *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: who}
}

func (p Plan) run(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	return p.RunPortably(ctx, stdout, stderr)
}

// reap waits for the command's end and kills what is left of its group. Here the
// number is let go first, since there is no portable way to wait without that.
func (c *child) reap() error {
	err := c.cmd.Wait()
	c.end()
	return c.lost(err)
}
