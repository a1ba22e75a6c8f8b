// Package reexec starts this program again under another name, for work that needs a process of its own: guards of
// processes, and the compiler of plugins.
package reexec

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
)

// Executable is the path of this program's file, which stays valid even if the file is replaced after the start.
// Without /proc, the path is determined at the start, before the working directory can change.
var Executable = find("/proc/self/exe", os.Args[0])

// find returns proc if it exists, or else the file of the running program, which was started as name.
func find(proc, name string) string {
	if _, err := os.Stat(proc); err == nil {
		return proc
	}
	if path, err := os.Executable(); err == nil {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		path = name
	}
	absolute, _ := filepath.Abs(path) // "" without a working directory
	return cmp.Or(absolute, path)
}

// Env returns the environment of such a process: the given settings of the Go runtime, and nothing of this process's
// environment, which may have secrets. The added setting keeps the race detector from waiting for a second at exit.
func Env(settings ...string) []string { return append(settings, "GORACE=atexit_sleep_ms=0") }
