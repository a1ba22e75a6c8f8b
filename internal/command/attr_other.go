//go:build !linux

package command

import (
	"context"
	"io"
	"os/exec"
	"syscall"
)

// Attr returns the attributes of a process in its own group. The process continues if the engine is killed: only Linux can prevent
// that.
func Attr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential}
}

// CloseInherited does nothing: there is no portable way.
func CloseInherited(int) {}

func (p Plan) run(ctx context.Context, stdout, stderr io.Writer, started func(error)) (End, error) {
	defer started(nil)
	return p.RunPortably(ctx, stdout, stderr)
}

// reapGroup waits for a command, which reaps it, and then kills the rest of its group: there is no portable way to wait without
// reaping.
func reapGroup(cmd *exec.Cmd) error {
	err := cmd.Wait()
	KillGroup(cmd.Process.Pid)
	return err
}
