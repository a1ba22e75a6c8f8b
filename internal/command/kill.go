package command

import "syscall"

// KillGroup sends SIGKILL to all processes of a group. The leader of the group must not
// be reaped yet: its ID could belong to another process afterwards.
func KillGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
