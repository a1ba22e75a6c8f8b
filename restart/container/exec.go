package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
)

// execHandler runs a command inside the container of an attempt's instance.
type execHandler struct {
	runtimes *Runtimes
	socket   string
	config   execprobe.Config

	mu   sync.Mutex // guards left
	left []*docker.LeftExec
}

// maxLeft is the maximum number of a handler's commands that may keep running in the container after their timeout.
const maxLeft = 4

// NewExec returns a handler that runs a command inside a container, as docker exec does: the container that a driver of
// the same runtimes has reported as the instance of the target. socket is the path of the runtime's socket. If the
// configuration is invalid, NewExec returns a *probe.FieldError that names the invalid field. The handler is safe for
// concurrent use.
//
// The command has the environment, directory and user of the container, unless the configuration sets others. $(NAME)
// is replaced by a variable of the target or of the configuration. When ctx is done, the command is killed with its
// descendants, and Probe returns at most a second later. If the engine may not signal processes of the container, the
// command keeps running; while four such commands run, attempts are unknown, with the reason runtime.permission. An
// attempt is also unknown if the runtime refuses it, or if at the timeout the command has not begun or has already
// exited. Podman keeps two processes for five minutes after each command.
func NewExec(r *Runtimes, socket string, c execprobe.Config) (probe.Handler, error) {
	if err := (command.Command{Words: c.Command, Env: c.Env, Dir: c.Dir, User: c.User}).Check(); err != nil {
		return nil, err
	}
	c.Command, c.Env = slices.Clone(c.Command), maps.Clone(c.Env)
	return &execHandler{runtimes: r, socket: socket, config: c}, nil
}

// Probe makes an attempt.
func (h *execHandler) Probe(ctx context.Context, t probe.Target) probe.Result {
	rt := h.runtimes.get(h.socket)
	c, found, lost := rt.watch.Find(func(c docker.Container) bool { return c.State.Running && instanceID(c) == t.Instance })
	switch {
	case lost != nil && !errors.Is(lost, docker.ErrNotListed):
		return probe.Broken(reasonOf(lost), "%v", lost)
	case !found:
		return probe.Broken(probe.ReasonRuntimeNoContainer, "instance %s of the target is not a running container", t.Instance)
	}
	if err := h.killLeft(rt); err != nil {
		return probe.Broken(leftReason(err), "%d commands of earlier attempts are still running in the container and cannot be killed: %v", maxLeft, err)
	}
	stdout, stderr := command.Output{Max: probe.MaxDetail}, command.Output{Max: probe.MaxDetail}
	end, err := rt.Run(ctx, h.command(c, t, &stdout, &stderr))
	if end.Left != nil {
		h.keep(end.Left)
	}
	res := result(ctx, end, err, stdout.String()+stderr.String())
	res.Lost = end.Delay
	return res
}

// command returns the command of an attempt.
func (h *execHandler) command(c docker.Container, t probe.Target, stdout, stderr *command.Output) docker.Exec {
	env := maps.Clone(t.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, h.config.Env)
	x := docker.Exec{Container: c.ID, Dir: h.config.Dir, User: h.config.User, Stdout: stdout, Stderr: stderr}
	for _, word := range h.config.Command {
		x.Command = append(x.Command, command.Expand(word, env))
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		x.Env = append(x.Env, name+"="+env[name])
	}
	return x
}

// result returns the probe result for the end of a command.
func result(ctx context.Context, end docker.ExecEnd, err error, output string) probe.Result {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return probe.Broken(probe.ReasonStopped, "the command was killed before it exited")
	case err != nil:
		return probe.Broken(reasonOf(err), "%v", err)
	case end.Left != nil:
		return probe.Fail(probe.ReasonExecTimeout, "%s", detail(fmt.Sprintf("timed out and could not be killed: %v", end.Left.Err), output))
	case end.TimedOut:
		return probe.Fail(probe.ReasonExecTimeout, "%s", detail("killed at its timeout", output))
	case end.NotStarted:
		return probe.Broken("exec.start", "%s", detail("", output))
	case end.Code != 0:
		return probe.Fail(probe.ReasonExecExit, "%s", detail(fmt.Sprintf("exit status %d", end.Code), output))
	}
	return probe.Succeed(detail("", output))
}

func detail(how, output string) string {
	if how != "" && output != "" {
		how += ": "
	}
	return probe.CleanText(how+output, probe.MaxDetail)
}

// leftReason returns the reason to report when commands cannot be killed.
func leftReason(err error) probe.Reason {
	if r := reasonOf(err); r != probe.ReasonRuntimeFailed {
		return r
	}
	return probe.ReasonRuntimePermission
}

func (h *execHandler) keep(left *docker.LeftExec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = append(h.left, left)
}

// killLeft kills the commands that earlier attempts left running. If it cannot, and maxLeft or more remain, it returns
// the error.
func (h *execHandler) killLeft(rt *runtime) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = slices.DeleteFunc(h.left, func(l *docker.LeftExec) bool {
		if l = rt.KillExec(l); l != nil {
			err = l.Err
		}
		return l == nil
	})
	if len(h.left) < maxLeft {
		return nil
	}
	return err
}
