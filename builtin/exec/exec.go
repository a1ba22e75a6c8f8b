// Package execprobe is the exec handler: an attempt runs a command, and exit status 0 is a success.
//
// On Linux, commands are children of a guard: this program, started again under the name sonde-command-guard, which runs before
// main. The guard starts with the first attempt, exits together with the program, however that exits, and kills the processes that
// an attempt leaves behind. It never touches other children of the program. Packages that are initialized before this one are also
// initialized in the guard.
package execprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/quota"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
)

// Config defines the command to run.
//
// The command's environment has PATH, LANG, LC_ALL and TZ of the engine's environment, HOME, USER and LOGNAME of the user that the
// command runs as, the target's environment, and Env. If a variable occurs more than once, the last value counts. No other
// variables of the engine's environment are passed on, because they may contain secrets.
type Config struct {
	Command []string          `hcl:"command" doc:"program and its arguments. A program without a slash is searched in the PATH of the command. $(NAME) in a word is replaced by the variable NAME of the target or of env, and $$ by $. There is no shell unless the command names one"`
	Env     map[string]string `hcl:"env,optional" doc:"environment variables in addition to those of the target" default:"empty"`
	Dir     string            `hcl:"dir,optional,path" doc:"working directory" default:"that of the target, else of the engine"`
	User    string            `hcl:"user,optional" doc:"user who runs the command: a name, a number, or user:group" default:"that of the target, else of the engine"`
}

// handler runs a command for each attempt. It is safe for concurrent use by multiple goroutines.
type handler struct {
	config Config
	run    runFunc
	stuck  chan struct{} // holds an element for each command that was killed and has not exited
}

// runFunc runs a command: command.Plan.Run, or RunPortably in tests that cover both.
type runFunc func(command.Plan, context.Context, io.Writer, io.Writer) (command.End, error)

// maxStuck is the maximum number of commands of a handler that cannot be killed. Each of them occupies a thread.
const maxStuck = 4

// New returns a handler. An error is a *probe.FieldError that names the invalid field, or several of them.
func New(c Config) (probe.Handler, error) {
	if err := (command.Command{Words: c.Command, Env: c.Env, Dir: c.Dir, User: c.User}).Check(); err != nil {
		return nil, err
	}
	c.Command = slices.Clone(c.Command)
	c.Env = maps.Clone(c.Env)
	return &handler{config: c, run: command.Plan.Run, stuck: make(chan struct{}, maxStuck)}, nil
}

// Probe runs the command and returns when it has exited, or at most 200 ms after ctx is done. Then it kills the processes that the
// command has left: its descendants on Linux, its process group elsewhere. The result's Detail says how the command exited, unless
// it succeeded, followed by its standard output and standard error, at most probe.MaxDetail bytes in total. A failure is Denied if,
// meanwhile, this machine refused a process or memory to the engine's cgroup, or if the engine lacked descriptors at the timeout.
// Lost is how long the command waited until it could have its processes, and for processors that others used; at a timeout it
// includes the command's descendants.
//
// A command that cannot be killed, because it belongs to another user or hangs in the kernel, is left running. While there are four
// of them, an attempt waits until one exits, and fails when ctx is done.
func (h *handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	began, before := time.Now(), quota.Read()
	res := h.attempt(ctx, t)
	res.Lost = min(res.Lost, time.Since(began))
	if res.Outcome == probe.Failure {
		res.Denied = res.Denied || quota.DeniedSince(before)
	}
	return res
}

func (h *handler) attempt(ctx context.Context, t probe.Target) (res probe.Result) {
	if !h.awaitStuck(ctx) {
		return stuck(ctx)
	}
	plan, err := h.command(t).Plan()
	if err != nil {
		return notStarted(err)
	}
	stdout, stderr := command.Output{Max: probe.MaxDetail}, command.Output{Max: probe.MaxDetail}
	began := time.Now()
	end, err := h.run(plan, ctx, &stdout, &stderr)
	if end.Stuck != nil {
		h.countStuck(end.Stuck)
	}
	if err != nil {
		return notStarted(err)
	}
	output := stdout.String() + stderr.String()
	if end.Killed {
		res = killed(ctx, time.Since(began), output)
	} else {
		res = exited(end, output)
	}
	res.Lost, res.Denied = end.Lost, end.Unmeasured != nil
	return res
}

// notStarted returns the result of a command that could not be started.
func notStarted(err error) probe.Result {
	if shortage.IsFork(err) || errors.Is(err, command.ErrLookup) {
		res := probe.Broken(probe.ReasonResources, "%v", err)
		res.Denied = true
		return res
	}
	return probe.Broken("exec.start", "%v", err)
}

// awaitStuck waits until fewer than maxStuck commands are stuck, and returns false if ctx is done before that. It waits because, on
// a starved machine, a killed command takes a while to die.
func (h *handler) awaitStuck(ctx context.Context) bool {
	select {
	case h.stuck <- struct{}{}:
	default:
		select {
		case h.stuck <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	<-h.stuck
	return true
}

// stuck returns the result of an attempt that could not start because of stuck commands.
func stuck(ctx context.Context) probe.Result {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return probe.Fail(probe.ReasonExecTimeout, "%d commands of earlier attempts were killed but have not exited", maxStuck)
	}
	return probe.Broken(probe.ReasonStopped, "the attempt was cancelled before its command could start")
}

// countStuck counts a command until it exits. Nobody waits for its goroutine: the command may never exit.
func (h *handler) countStuck(dead <-chan struct{}) {
	go func() {
		h.stuck <- struct{}{} // waits while there are more of them, from concurrent attempts
		<-dead
		<-h.stuck
	}()
}

func (h *handler) command(t probe.Target) command.Command {
	env := maps.Clone(t.Env)
	if env == nil {
		env = make(map[string]string, len(h.config.Env))
	}
	maps.Copy(env, h.config.Env)
	return command.Command{
		Words: h.config.Command,
		Env:   env,
		Dir:   cmp.Or(h.config.Dir, t.Dir),
		User:  cmp.Or(h.config.User, t.User),
	}
}

// killed returns the result of a command that was killed at the deadline, or because the attempt was cancelled.
func killed(ctx context.Context, after time.Duration, output string) probe.Result {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return probe.Fail(probe.ReasonExecTimeout, "%s", detail(fmt.Sprintf("killed after %v", after.Round(time.Millisecond)), output))
	}
	return probe.Broken(probe.ReasonStopped, "the command was killed before it exited")
}

func exited(end command.End, output string) probe.Result {
	switch {
	case end.TooMany:
		return probe.Broken("exec.processes", "%s", detail(end.String(), output))
	case end.Status.Signaled():
		return probe.Fail(probe.ReasonExecSignal, "%s", detail(end.String(), output))
	case end.Status != 0:
		return probe.Fail(probe.ReasonExecExit, "%s", detail(end.String(), output))
	}
	return probe.Succeed(detail("", output))
}

func detail(how, output string) string {
	if how != "" && output != "" {
		how += ": "
	}
	return probe.CleanText(how+output, probe.MaxDetail)
}
