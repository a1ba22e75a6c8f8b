// Package command restarts what something else runs, by a command: "systemctl
// restart web". It does not watch the thing itself; probes do.
package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	run "github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// Config says which command restarts the target.
//
// The command's environment is a base of PATH, LANG, LC_ALL and TZ of the engine
// and HOME, USER and LOGNAME of the user it runs as, with Env on top.
type Config struct {
	Target string // the target's name, for log records

	// Command is the program and its arguments; required. A program without a
	// slash is looked for in the command's PATH. $(NAME) in a word gives the
	// value that Env has for it, and $$ gives a single $. There is no shell
	// unless Command names one.
	Command []string `hcl:"command"`

	Timeout time.Duration     `hcl:"timeout,optional"` // after which the command is killed; default 90s, at most probe.MaxDuration
	Env     map[string]string `hcl:"env,optional"`     // default: empty
	Dir     string            `hcl:"dir,optional"`     // default: the engine's
	User    string            `hcl:"user,optional"`    // "name", "uid", "user:group"; default: the engine's

	Log *slog.Logger // one Warn line for each command that has failed, with its output; default: none
}

// DefaultTimeout is the default of Config.Timeout: systemd's own
// DefaultTimeoutStartSec.
const DefaultTimeout = 90 * time.Second

// maxOutput bounds what is kept of a command's output, in bytes.
const maxOutput = 4 << 10

// Driver lets the lives of one target be restarted by a command. It is a
// restart.External. While the command does not run it costs nothing.
type Driver struct {
	command run.Command
	timeout time.Duration
	log     *slog.Logger
}

// New returns a driver, or a *probe.FieldError that names the wrong field.
// Whether program, directory and user exist is found out by each restart.
func New(c Config) (*Driver, error) {
	command := run.Command{Words: slices.Clone(c.Command), Env: maps.Clone(c.Env), Dir: c.Dir, User: c.User}
	if err := command.Check(); err != nil {
		return nil, err
	}
	if c.Timeout < 0 || c.Timeout > probe.MaxDuration {
		return nil, &probe.FieldError{Field: "timeout", Problem: "must be from 0 to " + probe.MaxDuration.String()}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{command: command, timeout: cmp.Or(c.Timeout, DefaultTimeout), log: c.Log.With("target", c.Target)}, nil
}

// External says that the lives are not the engine's.
func (d *Driver) External() {}

// Run takes the target as it is for a life that has begun, and runs the command
// when it is asked to end it. The life has ended when the command's exit status is
// 0; its output are the last words. Any other status is logged, and the life goes
// on. The grace period is not used: how to end is the command's own affair.
//
// When ctx is done a command under way is killed, and Run returns.
func (d *Driver) Run(ctx context.Context, began func(id string), end <-chan time.Duration) restart.Exit {
	began(newID(time.Now()))
	var undead <-chan struct{} // a command that was killed and has not died
	for {
		select {
		case <-ctx.Done():
			return restart.Exit{}
		case <-undead:
			undead = nil
		case _, open := <-end:
			switch {
			case !open:
				end = nil
				continue
			case undead != nil:
				d.log.Warn("the restart command was killed and has not died")
				continue
			}
			outcome := d.restart(ctx)
			if outcome.err == nil || ctx.Err() != nil {
				return restart.Exit{LastWords: outcome.output}
			}
			undead = outcome.undead
			d.log.Warn("the restart command did not succeed", "error", outcome.err, "output", outcome.output)
			forget(end)
		}
	}
}

// newID returns an ID that no other life has, not even one of an earlier engine.
func newID(now time.Time) string {
	return now.UTC().Format("20060102T150405Z") + "-" + strings.ToLower(rand.Text()[:10])
}

// forget drops what was asked while the command ran.
func forget(end <-chan time.Duration) {
	select {
	case <-end:
	default:
	}
}

// outcome is how a command has ended.
type outcome struct {
	output string
	err    error // nil for exit status 0
	undead <-chan struct{}
}

func (d *Driver) restart(ctx context.Context) outcome {
	plan, err := d.command.Plan()
	if err != nil {
		return outcome{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	words := &run.Tail{Max: maxOutput}
	end, err := plan.Run(ctx, words, words)
	if err == nil {
		err = d.problem(end)
	}
	return outcome{output: probe.CleanText(words.String(), maxOutput), err: err, undead: end.Undead}
}

// problem says what is wrong with how the command has ended, or nil.
func (d *Driver) problem(end run.End) error {
	switch {
	case end.Killed:
		return fmt.Errorf("killed, it must end within %v", d.timeout)
	case end.Status.Signaled():
		return fmt.Errorf("ended by signal: %v", end.Status.Signal())
	case end.Status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", end.Status.ExitStatus())
	}
	return nil
}
