package command

import "syscall"

// KillGroup sends SIGKILL to all processes of a group. The leader of the group must not
// be reaped yet: its ID could belong to another process afterwards.
func KillGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }

// Signal sends a signal to the process group of a command, and to the command itself if it has joined another group. The command
// must not be reaped yet.
func Signal(pid int, s syscall.Signal) {
	_ = syscall.Kill(-pid, s)
	if group, err := syscall.Getpgid(pid); err == nil && group != pid {
		_ = syscall.Kill(pid, s)
	}
}
