// Package command restarts something outside the engine by a command, such as "systemctl restart web". It does not
// watch the service itself; probes do.
package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	run "github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// Config configures the driver: the command that restarts the target. Command, Env, Dir and User are as in
// process.Config.
type Config struct {
	Target string // the target's name, for log records

	Command []string          `hcl:"command" doc:"program and its arguments that restart the target. A program without a slash is searched in the PATH of the command. There is no shell unless the command names one. Exit status 0 means that it was restarted"`
	Timeout time.Duration     `hcl:"timeout,optional,nonzero" doc:"time after which the command is killed with its descendants; the restart has then failed" default:"90s" max:"8784h"`
	Env     map[string]string `hcl:"env,optional" doc:"environment variables of the command, beside PATH, LANG, LC_ALL and TZ of the engine, and HOME, USER and LOGNAME of the user" default:"empty"`
	Dir     string            `hcl:"dir,optional,path" doc:"working directory" default:"that of the engine"`
	User    string            `hcl:"user,optional" doc:"user who runs the command: a name, a number, or user:group" default:"that of the engine"`

	Log *slog.Logger // one Warn record for each failed command, with its output; default: none
}

// defaultTimeout is the default of Config.Timeout: DefaultTimeoutStartSec of systemd.
const defaultTimeout = 90 * time.Second

// maxOutput is the maximum size of the kept output of a command, in bytes.
const maxOutput = 4 << 10

// maxReason is the maximum size of the output in the reason of a failure, in bytes.
const maxReason = 300

// driver restarts one target by a command. It is a restart.External. It costs one goroutine while the command is not
// running.
type driver struct {
	command run.Command
	timeout time.Duration
	log     *slog.Logger
	resumed string // the ID for the next Run; empty for a new one
	failed  func(reason error)
	run     func(p run.Plan, ctx context.Context, stdout, stderr io.Writer) (run.End, error) // run.Plan.Run
}

// Check validates the configuration without side effects. It returns one or more *probe.FieldError, joined, or nil.
func (c Config) Check() error {
	var wrong probe.FieldErrors
	if c.Timeout < 0 || c.Timeout > probe.MaxDuration {
		wrong.Add("timeout", "is %s; it must be greater than 0 and at most %s", probe.FormatDuration(c.Timeout), probe.FormatDuration(probe.MaxDuration))
	}
	return errors.Join(run.Command{Words: c.Command, Env: c.Env, Dir: c.Dir, User: c.User}.Check(), wrong.Err())
}

// New returns a restart.External, or a *probe.FieldError that names the invalid field. Each restart checks whether the
// program, the directory and the user exist.
func New(c Config) (restart.Driver, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	command := run.Command{Words: slices.Clone(c.Command), Env: maps.Clone(c.Env), Dir: c.Dir, User: c.User}
	log := cmp.Or(c.Log, slog.New(slog.DiscardHandler)).With("target", c.Target)
	return &driver{command: command, timeout: cmp.Or(c.Timeout, defaultTimeout), log: log, failed: func(error) {}, run: run.Plan.Run}, nil
}

// Resume makes the next Run resume an instance of an earlier Run: it runs outside the engine.
func (d *driver) Resume(id string) bool {
	d.resumed = id
	return true
}

var _ restart.External = (*driver)(nil)

// SetFailed sets the function that Run calls when the command has failed.
func (d *driver) SetFailed(failed func(reason error)) { d.failed = failed }

// Run assumes that the target's instance is running already, and runs the command when it is asked to terminate the
// instance. Exit status 0 means that the instance has terminated: Run returns the command's output. Any other status is
// logged and passed to the function of SetFailed, and the instance keeps running. When the command exits, its remaining
// descendants are killed, except a service that it started in a session of its own. The grace period is not used: the
// command itself decides how to stop the service. If this machine lacks a resource to start the command, the error is a
// restart.ErrShortage.
//
// When ctx is done, a running command is killed, and Run returns the cause of ctx as the error. A killed command, here
// or after its timeout, may hang in the kernel or belong to another user, and still have an effect: Run neither returns
// nor reports a failure before the command has exited, however long that takes.
func (d *driver) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	id := cmp.Or(d.resumed, newID(time.Now()))
	d.resumed = ""
	began(restart.Begun{ID: id})
	for {
		select {
		case <-ctx.Done():
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		case _, open := <-end:
			if !open {
				end = nil
				continue
			}
			r := d.restart(ctx)
			switch {
			case r.err == nil:
				return restart.Exit{Output: r.output}
			case ctx.Err() != nil:
				return restart.Exit{Code: -1, Err: context.Cause(ctx), Output: r.output}
			case errors.Is(r.err, restart.ErrShortage):
				return restart.Exit{Code: -1, Err: r.err}
			}
			d.log.Warn("restart command failed, instance not restarted", "error", r.err, "output", r.output)
			drain(end)
			d.failed(r.reason())
		}
	}
}

// newID returns a unique ID, which no instance of an earlier engine has either.
func newID(now time.Time) string {
	return now.UTC().Format("20060102T150405Z") + "-" + strings.ToLower(rand.Text()[:10])
}

// drain drops a request to terminate that arrived while the command ran.
func drain(end <-chan time.Duration) {
	select {
	case <-end:
	default:
	}
}

// result is the output and the outcome of a command.
type result struct {
	output string
	err    error // nil for exit status 0
}

// reason returns why the command failed, with the end of its output.
func (r result) reason() error {
	if r.output == "" {
		return fmt.Errorf("restart command failed: %w", r.err)
	}
	return fmt.Errorf("restart command failed: %w: %s", r.err, run.LastLines(r.output, maxReason))
}

// restart runs the command, and returns when it has exited.
func (d *driver) restart(ctx context.Context) result {
	plan, err := d.command.Plan()
	if shortage.Is(err) || errors.Is(err, run.ErrLookup) {
		err = fmt.Errorf("%w: %w", restart.ErrShortage, err)
	}
	if err != nil {
		return result{err: err}
	}
	plan.MayDetach = true
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	tail := &run.Output{Max: maxOutput, Last: true}
	end, err := d.run(plan, ctx, tail, tail)
	switch {
	case err == nil:
		err = d.exitError(end)
	case shortage.IsFork(err):
		err = fmt.Errorf("%w: %w", restart.ErrShortage, err)
	}
	if end.Stuck != nil {
		d.log.Warn("restart command was killed but has not exited: it hangs in the kernel or belongs to another user; no other restart of the target begins until it exits")
		<-end.Stuck
	}
	return result{output: probe.CleanText(tail.String(), maxOutput), err: err}
}

// exitError returns nil for exit status 0.
func (d *driver) exitError(end run.End) error {
	switch {
	case end.Killed:
		return fmt.Errorf("killed after %v (timeout)%s", d.timeout, end.Starved(d.timeout))
	case end.Status != 0:
		return errors.New(end.String())
	}
	return nil
}
