// Package process starts a command as a process of ours, watches it, and ends it
// with everything it started.
//
// Each life of a command has a guard between the engine and itself: the engine's
// own program, started again, which does nothing but watch. The guard adopts
// what the command's descendants leave behind (PR_SET_CHILD_SUBREAPER) and is
// joined to the engine by a pipe, the lifeline. When the command ends, when the
// engine says so, and when the lifeline breaks since the engine is no more, not
// even by its own fault, the guard kills whatever is left. Sessions of their own
// do not help descendants to get away, and neither root nor cgroups are needed.
// Where a cgroup can be made the command gets one: its kill is faster, and
// reaches everybody even when the guard itself was killed.
//
// Systems other than Linux have no such adoption: there, only the command's
// process group is killed.
package process

import (
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// Config says which command to run, and where its output goes.
//
// The command's environment is a base of PATH, LANG, LC_ALL and TZ of the engine
// and HOME, USER and LOGNAME of the user it runs as, with Env on top. Nothing
// else of the engine's environment is passed on, since it may hold secrets.
type Config struct {
	Target string // the target's name, for log records and the process list

	// Command is the program and its arguments; required. A program without a
	// slash is looked for in the command's PATH. $(NAME) in a word gives the
	// value that Env has for it, and $$ gives a single $. There is no shell
	// unless Command names one.
	Command []string `hcl:"command"`

	Env  map[string]string `hcl:"env,optional"`  // default: empty
	Dir  string            `hcl:"dir,optional"`  // default: the engine's
	User string            `hcl:"user,optional"` // "name", "uid", "user:group"; default: the engine's

	// NoCgroup says not to make a cgroup for each life, below the engine's own,
	// where that could be done.
	NoCgroup bool `hcl:"no_cgroup,optional"`

	// Log gets a record for each line of output: the line, with the attributes
	// target and stream (stdout or stderr). Default: none.
	Log *slog.Logger

	// LinesPerSecond bounds the records of each stream. What is beyond it is
	// counted in a record of its own. Default 100; at least 1.
	LinesPerSecond int `hcl:"lines_per_second,optional"`
}

// DefaultLinesPerSecond is the default of Config.LinesPerSecond.
const DefaultLinesPerSecond = 100

// ErrNoGuard says that the program cannot guard processes, since its main does
// not call Guard.
var ErrNoGuard = errors.New("process: main must call process.Guard first")

// Driver makes the lives of one command. It is a restart.Driver. A life costs one
// more process, of about 1 MB that it does not share with the engine, and three
// goroutines.
type Driver struct {
	config  Config
	command command.Command
}

// New returns a driver, a *probe.FieldError that names the wrong field, or
// ErrNoGuard. Whether program, directory and user exist is found out by each
// life.
func New(c Config) (*Driver, error) {
	if !hooked.Load() {
		return nil, ErrNoGuard
	}
	run := command.Command{Words: slices.Clone(c.Command), Env: maps.Clone(c.Env), Dir: c.Dir, User: c.User}
	if err := run.Check(); err != nil {
		return nil, err
	}
	if c.LinesPerSecond < 0 {
		return nil, &probe.FieldError{Field: "lines_per_second", Problem: "must be 1 or more"}
	}
	if c.LinesPerSecond == 0 {
		c.LinesPerSecond = DefaultLinesPerSecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("target", c.Target)
	return &Driver{config: c, command: run}, nil
}
