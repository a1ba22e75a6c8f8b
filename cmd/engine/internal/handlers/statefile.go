package handlers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
)

// processesEnding is what the name of a state file's directory of processes ends with.
const processesEnding = ".processes"

// ProcessDir returns the name for process.OpenDirectory of an engine with a state file, or ""
// without one. It is beside the file that a symbolic link names.
func ProcessDir(state string) string {
	if state == "" {
		return ""
	}
	target, err := files.FollowLinks(state, func(string) error { return nil })
	if err != nil { // a circle of links, which cannot be opened
		target = state
	}
	return target + processesEnding
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
