package command

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attr puts a new process into a group of its own, and has the kernel kill it
// when the thread that starts it ends. The caller keeps that thread locked.
func Attr(who *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: who}
}

// reap waits for the command's end, kills what is left of its group while the
// group's number is still its own, and only then lets go of the number.
func (c *child) reap() error {
	awaitExit(c.cmd.Process.Pid)
	c.end()
	return c.lost(c.cmd.Wait())
}

// awaitExit returns when a child of ours has ended, and leaves it unreaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
