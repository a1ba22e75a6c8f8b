package handlers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sonde-probe/sonde/adapter/restart/process"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/journal"
)

// processesEnding is what the name of a state file's directory of processes ends with.
const processesEnding = ".processes"

// ProcessDir returns the name for process.OpenDirectory of an engine with a state file, or ""
// without one.
func ProcessDir(state string) string {
	if state == "" {
		return ""
	}
	return state + processesEnding
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

// abandoned returns a warning for each other state file in the directory of an engine's that
// no engine uses, although processes run that outlive the engine and are found by it: the
// engine's state was moved or removed.
func abandoned(state string) (warnings config.Diagnostics) {
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(state), "*"+processesEnding))
	for _, dir := range dirs {
		other := strings.TrimSuffix(dir, processesEnding)
		if other == filepath.Clean(state) || journal.IsLocked(other) {
			continue
		}
		targets := process.RunningIn(dir)
		if len(targets) == 0 {
			continue
		}
		warnings = append(warnings, config.Diagnostic{
			Severity: config.Warning,
			Summary:  fmt.Sprintf("%s with adopt running without an engine: %s", cli.Plural(len(targets), "target"), cli.SomeNames(targets)),
			Hint:     fmt.Sprintf("they belong to the state file %s: an engine with that state takes over or ends them", other),
		})
	}
	return warnings
}
