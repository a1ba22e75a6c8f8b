package handlers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
)

// processesEnding is the suffix of a state file's directory of processes.
const processesEnding = ".processes"

// ProcessDir returns the name for process.OpenDirectory of an engine with a state file, or "" without a state file. If the
// state file is a symbolic link, the directory is beside the link's target.
func ProcessDir(state string) string {
	if state == "" {
		return ""
	}
	target, err := files.FollowLinks(state, func(string) error { return nil })
	if err != nil { // a cycle of links, which cannot be opened
		target = state
	}
	return target + processesEnding
}

// warnOfEngineFiles returns warnings about files of an engine block with which the engine would not start on this machine. They
// are not errors, since the configuration may be for another machine.
func warnOfEngineFiles(v config.Values) error {
	text := func(name string) string { s, _ := v[name].(string); return s }
	return errors.Join(warnOfState(text("state")), warnOfToken(text("token_file")))
}

func warnOfState(state string) error {
	dir := filepath.Dir(state)
	info, err := os.Stat(dir)
	switch {
	case state == "":
		return nil
	case isDir(state):
		return &probe.FieldError{Field: "state", Problem: fmt.Sprintf("is %q, a directory", state), Hint: fmt.Sprintf("write state = %q", filepath.Join(state, "sonde.state"))}
	case err == nil && info.Mode().Perm()&0o002 != 0:
		return &probe.FieldError{Field: "state", Problem: fmt.Sprintf("is in %s, to which all users of this machine can write, so that the engine would not start", absolute(dir)),
			Hint: "write a file in a directory of the engine's user, or close it to others: chmod o-w " + dir}
	case !errors.Is(err, os.ErrNotExist):
		return nil
	}
	return &probe.FieldError{Field: "state", Problem: fmt.Sprintf("is in %s, which does not exist", absolute(dir)), Hint: "create the directory before the engine starts: mkdir -p " + dir}
}

// isDir reports whether a path is a directory on this machine.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return path != "" && err == nil && info.IsDir()
}

// warnOfToken warns if the file with the API's token is missing or can be read by all users of this machine.
func warnOfToken(name string) error {
	if name == "" {
		return nil
	}
	info, err := os.Stat(absolute(name))
	switch {
	case err != nil:
		return &probe.FieldError{Field: "token_file", Problem: fmt.Sprintf("cannot be read: %v", err),
			Hint: fmt.Sprintf("make it before the engine starts, or ignore this if the engine runs elsewhere: it was looked up on %s", machine())}
	case info.Mode().Perm()&0o004 != 0:
		return &probe.FieldError{Field: "token_file", Problem: "can be read by all users of this machine, who can reload the engine and stop targets then", Hint: "close it to others: chmod o= " + name}
	}
	return nil
}
