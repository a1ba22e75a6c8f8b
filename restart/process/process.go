// Package process runs a command as a child process, and terminates it together
// with all its descendants.
//
// Between the engine and each instance of a command there is a guard: the engine's own program, started again, whose
// only task is to watch the command. The guard is the subreaper of the command's descendants (PR_SET_CHILD_SUBREAPER),
// and a socket connects it to the engine. When the command exits, when the engine orders it, or when the socket is
// closed because the engine has exited in any way, the guard kills all descendants, even those with sessions of their
// own. This needs neither root nor cgroups. Where the guard can create a cgroup, it runs the command in it: killing a
// cgroup is faster, and works even when the guard was killed.
//
// With Config.Adopt the guard outlives the engine, however the engine ends, and so does the command. The guard then
// holds the command's outputs and listens on a socket in a private directory: the next engine attaches to it and
// resumes the same instance. While there is no engine, the guard writes the outputs to the log file, or discards them
// and counts the lines, and keeps the exit status.
//
// Systems other than Linux have no subreapers: there, only the command's process group is killed.
//
// A program that imports this package is its own guard: started under the name sonde-guard, it runs as one, before
// main.
//
// DESIGN.md lists the invariants that no single function shows.
//
// Files: instance.go runs an instance by its guard, prestop.go runs the step before its stop signal, conn.go is the
// connection to the guard; notify.go interprets the notifications of a process, and notify_linux.go receives them;
// adopt_linux.go finds guards that have outlived their engine, directory_linux.go the directory where they are found;
// log.go selects where the command's output goes, and output.go writes it there. The guard is package guard.
package process

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// Config configures a Driver: the command, and where its output goes.
//
// The command's environment has PATH, LANG, LC_ALL and TZ from the engine's environment, and HOME, USER and LOGNAME of
// the user that the command runs as. Variables in Env are added to these and override them. On Linux, NOTIFY_SOCKET
// names the instance's socket for sd_notify(3), except with Adopt. Nothing else of the engine's environment is passed
// on, since it may hold secrets.
type Config struct {
	Target string // the target's name, for log records and the process list

	Command  []string          `hcl:"command" doc:"program and its arguments. A program without a slash is searched in the PATH of the process. $(NAME) in a word is replaced by the variable NAME of env, and $$ by $. There is no shell unless the command names one"`
	Env      map[string]string `hcl:"env,optional" doc:"environment variables of the process, beside PATH, LANG, LC_ALL and TZ of the engine, and HOME, USER and LOGNAME of the user. Probes by exec have them too" default:"empty"`
	Dir      string            `hcl:"dir,optional,path" doc:"working directory" default:"that of the engine"`
	User     string            `hcl:"user,optional" doc:"user who runs the process: a name, a number, or user:group" default:"that of the engine"`
	EnvFile  string            `hcl:"env_file,optional,path" doc:"file with more environment variables, as lines NAME=value, of 64 KiB at most; a relative path starts at the working directory of the engine; env overrides them. It is read when the process starts, which fails without it: a change of the file needs sonde restart. All of its values are sensitive. Probes by exec do not have them" default:"none" json:",omitempty"`
	Umask    Umask             `hcl:"umask,optional" doc:"permissions that files do not get which the process creates, in octal: \"0027\"" default:"that of the engine" json:",omitzero"`
	Nice     *int              `hcl:"nice,optional" doc:"scheduling priority of the process, as nice(1) shows it. Only root may set one below that of the engine. Linux only" default:"that of the engine" min:"-20" max:"19" json:",omitempty"`
	Rlimits  map[string]string `hcl:"rlimits,optional" doc:"resource limits of the process, by their names in limits.conf(5): as, core, cpu, data, fsize, memlock, nofile, nproc and stack, in bytes (\"64MiB\"), seconds or numbers, or \"unlimited\". One value is the soft and the hard limit; \"1024:4096\" has both. Only root may raise a hard limit. Linux only" default:"those of the engine" json:",omitempty"`
	NoCgroup bool              `hcl:"no_cgroup,optional" doc:"does not give each instance a control group below that of the engine" default:"false"`

	// Adopt makes instances outlive the engine: they keep running when it stops or is killed, and the next engine with
	// the same AdoptDir takes them over. An instance that is started while nothing can be written to AdoptDir ends with
	// the engine. Linux only. Default: false, instances end with the engine.
	Adopt bool `hcl:"adopt,optional" doc:"lets the process go on when the engine stops or is killed; the next engine with the same state file takes it over. Needs state in the engine block. Linux only" default:"false"`

	// AdoptDir is the directory with the files of instances that outlive the engine; required with Adopt. It is created
	// with mode 0700, and should be in memory: see OpenDirectory. A driver without Adopt terminates the instance of its
	// target that it finds there. Default: none.
	AdoptDir string

	// Survivor is the instance of the target that an earlier engine left running in AdoptDir, for Resume: see
	// readSurvivors. Default: none.
	Survivor Survivor

	Notify       bool          `hcl:"notify,optional" doc:"the process says that it is ready, by READY=1 of sd_notify(3): it counts as started then, and not as soon as it runs. Linux only" default:"false" json:",omitempty"`
	ReadyTimeout time.Duration `hcl:"ready_timeout,optional,nonzero" doc:"how long after its start the process of a notify may take until READY=1; then it has failed to start, and is terminated" default:"1m30s" min:"1s" max:"8784h" json:",omitempty"`
	Watchdog     time.Duration `hcl:"watchdog,optional,nonzero" doc:"how often the process says that it works, by WATCHDOG=1 of sd_notify(3): it has the time as WATCHDOG_USEC. Without one for this long, or with WATCHDOG=trigger, it is restarted as if a liveness probe failed. Linux only" default:"none" min:"1s" max:"8784h" json:",omitempty"`

	Log *Log `hcl:"log,block" doc:"where the lines of the output go, instead of the engine's log. A change of this block restarts the process: the guard of one with adopt writes to the file, too"`

	// Logger gets a record for each line of output if Log is nil: the line, with the attributes target and stream
	// (stdout or stderr). Default: none.
	Logger *slog.Logger `json:"-"`

	// Sensitive is called with the values of EnvFile before the command is started, so that they can be redacted in its
	// output. Default: they are not redacted.
	Sensitive func(values []string) `json:"-"`

	// Outputs records how many lines of output were dropped, and why the log file cannot be written. Default: both are
	// only logged.
	Outputs *Outputs `json:"-"`

	LinesPerSecond int `hcl:"lines_per_second,optional,nonzero" doc:"lines of each output stream that are records of the engine's log in a second; the log counts those that were dropped" default:"100" min:"1"`
}

// defaultLinesPerSecond is the default of Config.LinesPerSecond.
const defaultLinesPerSecond = 100

// Driver runs the instances of one command. It is a restart.Driver. An instance costs four goroutines and the guard
// process, which has ten threads and about 1.4 MB that it does not share with the engine. If the system lacks resources
// for them, Run returns restart.ErrShortage.
type Driver struct {
	config  Config
	command command.Command
	digest  string
	output  output

	findInterval time.Duration // see guard.Adopt
	linger       time.Duration // see guard.Adopt
	killTimeout  time.Duration // see const killTimeout

	stop      atomic.Pointer[restart.StopSettings] // from the latest SetStop; nil before the first
	setNotice func(restart.Notice)                 // from the latest SetNotice
}

// findInterval is the interval at which a guard without an engine checks that its files still exist.
const findInterval = time.Minute

// linger is the time that a guard keeps the exit status of an instance for the next engine.
const linger = 24 * time.Hour

// Check validates the configuration without side effects. It returns one or more *probe.FieldError, joined, or nil.
func (c Config) Check() error {
	wrong := limits.Check(c, "")
	c.Log.check(&wrong)
	c.checkNotify(&wrong)
	if strings.Contains(c.EnvFile, "\x00") {
		wrong.Add("env_file", "has a NUL byte")
	}
	c.checkAttributes(&wrong)
	if c.Adopt && !guard.IsSubreaper {
		wrong.Add("adopt", "needs Linux")
	}
	return errors.Join(command.Command{Words: c.Command, Env: c.Env, Dir: c.Dir, User: c.User}.Check(), wrong.Err())
}

// New returns a driver, or a *probe.FieldError that names the invalid field. Run checks whether the program, the
// directory and the user exist.
func New(c Config) (*Driver, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Adopt && c.AdoptDir == "" {
		return nil, probe.FieldErrorf("adopt", "needs a directory, AdoptDir")
	}
	return newDriver(c), nil
}

// Attributes returns the scheduling priority and the resource limits of instances; nil means those of the engine.
func (d *Driver) Attributes() (nice *int, rlimits map[string]string) {
	return d.config.Nice, d.config.Rlimits
}

func newDriver(c Config) *Driver {
	run := command.Command{Words: slices.Clone(c.Command), Env: maps.Clone(c.Env), Dir: c.Dir, User: c.User}
	c.LinesPerSecond = cmp.Or(c.LinesPerSecond, defaultLinesPerSecond)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler)).With("target", c.Target)
	return &Driver{config: c, command: run, digest: c.digest(), output: newOutput(c), findInterval: findInterval, linger: linger, killTimeout: killTimeout, setNotice: func(restart.Notice) {}}
}

// digest identifies the configuration of the command: an instance with the same digest needs no restart.
func (c Config) digest() string {
	text, _ := json.Marshal([]any{c.Command, c.Env, c.Dir, c.User, c.NoCgroup, c.Log, c.EnvFile, c.Umask, c.Nice, c.Rlimits}) // never fails
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
