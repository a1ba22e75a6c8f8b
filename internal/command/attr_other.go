//go:build !linux

package command

import "syscall"

// Attr puts a new process into a group of its own. Nothing kills it when the
// engine is killed: only Linux can do that.
func Attr(who *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: who}
}

// reap waits for the command's end and kills what is left of its group. Here the
// number is let go first, since there is no portable way to wait without that.
func (c *child) reap() {
	_ = c.cmd.Wait()
	c.end()
}
