package handlers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/journal"
	"github.com/sonde-probe/sonde/restart/process"
)

// processesEnding is what the name of a state file's directory of processes ends with.
const processesEnding = ".processes"

// ProcessDir returns the name for process.OpenDirectory of an engine with a state file, or ""
// without one. It is beside the file that a symbolic link names.
func ProcessDir(state string) string {
	if state == "" {
		return ""
	}
	return target(state) + processesEnding
}

// maxLinks bounds how many symbolic links are followed, as Linux does.
const maxLinks = 40

// target returns the path of the file, which need not exist, that a symbolic link names.
func target(path string) string {
	for range maxLinks {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return path
}

// noDirectory returns a warning if the directory of a state file does not exist: an engine
// would not start here. The configuration may be for another machine.
func noDirectory(state string) config.Diagnostics {
	dir := filepath.Dir(state)
	if _, err := os.Stat(dir); state == "" || !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return config.Diagnostics{{
		Severity: config.Warning,
		Summary:  fmt.Sprintf("the directory of the state file %s does not exist", state),
		Hint:     "create it before the engine starts: mkdir -p " + dir,
	}}
}

// publicToken returns a warning if any user of this machine can read the file with the token of the API.
func publicToken(name string) config.Diagnostics {
	info, err := os.Stat(name)
	if name == "" || err != nil || info.Mode().Perm()&0o004 == 0 {
		return nil
	}
	return config.Diagnostics{{
		Severity: config.Warning,
		Summary:  fmt.Sprintf("all users of this machine can read token_file %s, and so reload the engine and stop targets", name),
		Hint:     "close it to others: chmod o= " + name,
	}}
}

// AbandonedState is a state file that no engine uses, although processes run that have outlived its
// engine, which only an engine with that state file finds: the state was moved or removed.
type AbandonedState struct {
	State   string
	Targets []string // whose processes run, sorted
}

// FindAbandonedStates returns those in the directory of an engine's state file, or in the working
// directory if it has none.
func FindAbandonedStates(state string) (found []AbandonedState) {
	state = target(state)
	entries, _ := os.ReadDir(filepath.Dir(state))
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), processesEnding)
		if path := filepath.Join(filepath.Dir(state), name); ok && path != filepath.Clean(state) {
			s := AbandonedState{State: path, Targets: process.RunningIn(path + processesEnding)}
			if len(s.Targets) > 0 && !journal.IsLocked(path) {
				found = append(found, s)
			}
		}
	}
	return found
}

// IsIn reports whether the processes are those of a directory.
func (s AbandonedState) IsIn(directory string) bool {
	path, err := filepath.EvalSymlinks(ProcessDir(s.State))
	return err == nil && path == directory
}

// StateOf returns the state file to which a directory belongs, or "" if it is unknown.
func StateOf(a process.Abandoned) string { return strings.TrimSuffix(a.Name, processesEnding) }

// Check returns an error if the process of a target still runs, abandoned.
func (s AbandonedState) Check(target string) error {
	if !process.IsRunningIn(ProcessDir(s.State), target) || journal.IsLocked(s.State) {
		return nil
	}
	return fmt.Errorf("the target's process runs already, and belongs to the state file %s", s.State)
}

// warnOfAbandoned returns a warning for each state file that is abandoned.
func warnOfAbandoned(state string) (diags config.Diagnostics) {
	for _, s := range FindAbandonedStates(state) {
		diags = append(diags, config.Diagnostic{
			Severity: config.Warning,
			Summary:  fmt.Sprintf("%s with adopt running without an engine: %s", cli.Plural(len(s.Targets), "target"), cli.SomeNames(s.Targets)),
			Hint: fmt.Sprintf("they belong to the state file %[1]s, and no other engine starts them a second time; an engine with that state takes over or "+
				"ends them; to move the state, stop the engine, and move %[1]s and %[2]s", s.State, ProcessDir(s.State)),
		})
	}
	return diags
}
