// Package command runs a command in a group of its own that dies as a whole,
// and whose output is bounded. It is what exec probes and supervised processes
// share: words, environment, user, and the kill.
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

// Command is a command as a configuration writes it.
type Command struct {
	Words []string          // the program and its arguments; $(NAME) in them stands for a variable of Env
	Env   map[string]string // on top of the base environment
	Dir   string            // where it runs; default: the engine's own directory
	User  string            // "name", "uid", "user:group" or "uid:gid"; default: the engine's own user
}

// Check returns what is wrong with a command's text: probe.FieldErrors with every
// wrong field, or nil. It does not look for the program, the directory and the user,
// which may change before the command is run.
func (c Command) Check() error {
	var wrong probe.FieldErrors
	if len(c.Words) == 0 || c.Words[0] == "" {
		wrong.Add("command", "must name a program")
	}
	for i, word := range c.Words {
		if strings.Contains(word, "\x00") {
			wrong.Add("command", "has a NUL byte in word %d", i+1)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			wrong.Add("env", "has the name %q, a name must not be empty or contain = or NUL", name)
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

// Plan is a command that is ready to start: nothing is left to look up. It is
// plain data, so that it can be handed to another process.
type Plan struct {
	Path       string   // the program's file; relative to Dir unless it begins with a slash
	Words      []string // the program and its arguments, expanded
	Env        []string // the whole environment, NAME=value, sorted by name
	Dir        string
	Credential *syscall.Credential // nil: the engine's own user
}

// Plan expands the words, builds the environment and looks up the program, the
// directory and the user as they are now. The error is Check's, or says what there
// is not.
func (c Command) Plan() (Plan, error) {
	if err := c.Check(); err != nil {
		return Plan{}, err
	}
	who, err := lookUser(c.User)
	if err != nil {
		return Plan{}, err
	}
	if err := checkDir(c.Dir); err != nil {
		return Plan{}, err
	}
	env := environment(who, c.Env)
	words := make([]string, len(c.Words))
	for i, word := range c.Words {
		words[i] = Expand(word, c.Env)
	}
	path, err := lookProgram(words[0], env["PATH"])
	if err != nil {
		return Plan{}, err
	}
	return Plan{Path: path, Words: words, Env: list(env), Dir: c.Dir, Credential: who.credential}, nil
}

// checkDir is there for the message alone: the kernel's does not name the
// directory that is missing, but the program.
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
