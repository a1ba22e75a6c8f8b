package command

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attr returns the attributes of a process in its own group, which the kernel kills when
// the thread that started it ends. The caller must keep that thread locked.
func Attr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: credential}
}

// reap waits until the command has exited, kills the rest of its group, and then reaps
// it: before that the ID of the group cannot be reused.
func (c *child) reap() error {
	awaitExit(c.cmd.Process.Pid)
	c.exited()
	return c.statusError(c.cmd.Wait())
}

// awaitExit returns when a child has exited, and does not reap it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
