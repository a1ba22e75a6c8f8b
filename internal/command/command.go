// Package command runs commands, kills the processes that they leave behind, and limits their output. Exec
// probes, restart commands, notifications and gateways run their commands with it. Supervised processes use only its
// Plan, attributes and signals: they have their own guard, restart/process/internal/guard.
//
// On Linux, a guard starts the commands: this program, started again under the name sonde-command-guard. The guard
// works in the initialization of this package. It is the subreaper of the processes that commands start. It kills them
// when their command has exited, or when its socket shows that this program has exited.
//
//	command.go          Command, its checks, and its Plan
//	expand.go           references $(NAME) to variables
//	env.go              the environment, and the program in PATH
//	user.go             the user and the group
//	missing.go          which of program, directory and user do not exist
//	buffer.go           the first or the last bytes of an output
//	run.go              Run and its result
//	run_linux.go        Run on Linux: one thread waits in poll(2)
//	wait_linux.go       waits for the guard, the output and the context of a command: has the guard kill it at its timeout
//	guard_linux.go      the guard, as this program sees it
//	guardian_linux.go   the guard itself: starts commands, kills them, and kills the processes that they leave behind
//	orphans_linux.go    finds processes that commands leave behind, and commands with too many processes
//	pipes_linux.go      opens the descriptors of a command
//	cancel_linux.go     turns the end of a context into a descriptor
//	kill.go             the system calls that signal a process group, and a command that has left its group
//	delay_linux.go      how long a command has waited for a processor
//	portable.go         Run on other systems: os/exec and goroutines
//	attr_*.go           attributes of the new process
//	inherited_linux.go  closes descriptors that this process should not have
package command

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

// Command is a command as written in a configuration.
type Command struct {
	Words []string          // the program and its arguments; $(NAME) stands for a variable of Env
	Env   map[string]string // in addition to the base environment
	Dir   string            // working directory; default: the engine's
	User  string            // "name", "uid", "user:group" or "uid:gid"; default: the engine's user
}

// Check validates the text of a command. It returns probe.FieldErrors with every invalid field, or nil. It does not check whether
// the program, the directory and the user exist, which may change before the command is run.
func (c Command) Check() error {
	var wrong probe.FieldErrors
	if len(c.Words) == 0 || c.Words[0] == "" {
		wrong.Add("command", "must begin with the name of a program")
	}
	for i, word := range c.Words {
		if strings.Contains(word, "\x00") {
			wrong.Add("command", "has a NUL byte in word %d", i+1)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			wrong.Add("env", "has the name %q; a name must not be empty or contain = or NUL", name)
		}
		if strings.Contains(c.Env[name], "\x00") {
			wrong.Add("env", "has a NUL byte in the value of %s", name)
		}
	}
	if strings.Contains(c.Dir, "\x00") {
		wrong.Add("dir", "has a NUL byte")
	}
	if strings.Contains(c.User, "\x00") {
		wrong.Add("user", "has a NUL byte")
	}
	return wrong.Err()
}

// Plan is a command whose program, directory and user have been looked up. It is plain data, which can be sent to another process.
type Plan struct {
	Path       string   // file of the program; relative to Dir unless it begins with a slash
	Words      []string // the program and its arguments, expanded
	Env        []string // the complete environment, NAME=value, sorted by name
	Dir        string
	Credential *syscall.Credential // nil: the engine's user

	// MayDetach lets a command with exit status 0 leave descendants running that have left its process group (setsid), such as a
	// service that it has started. Otherwise, on Linux, Run kills them.
	MayDetach bool

	// Stdin is the standard input of the command. A command need not read it. Default: none.
	Stdin []byte
}

// Plan expands the words, builds the environment, and looks up the program, the directory and the user. An error is that of Check
// or of a lookup.
func (c Command) Plan() (Plan, error) {
	if err := c.Check(); err != nil {
		return Plan{}, err
	}
	acct, err := lookupUser(c.User)
	if err != nil {
		return Plan{}, err
	}
	if err := checkDir(c.Dir); err != nil {
		return Plan{}, err
	}
	env := environment(acct, c.Env)
	words := make([]string, len(c.Words))
	for i, word := range c.Words {
		words[i] = Expand(word, c.Env)
	}
	path, err := lookupProgram(words[0], env["PATH"], os.Stat)
	if err != nil {
		return Plan{}, err
	}
	return Plan{Path: path, Words: words, Env: assignments(env), Dir: c.Dir, Credential: acct.credential}, nil
}

// checkDir returns an error that names a missing directory. The error of the kernel would name the program.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("dir: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("dir: %s is not a directory", dir)
	}
	return nil
}
