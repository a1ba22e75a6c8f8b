package command

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attr returns the attributes of a process in its own group that the kernel kills when the thread that started it exits. The caller
// must keep that thread locked.
func Attr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: credential}
}

// reapGroup waits until a command has exited, kills the rest of its group, and then reaps the command: until it is reaped, the ID
// of the group cannot be reused.
func reapGroup(cmd *exec.Cmd) error {
	awaitExit(cmd.Process.Pid)
	KillGroup(cmd.Process.Pid)
	return cmd.Wait()
}

// awaitExit returns when a child has exited, without reaping it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
