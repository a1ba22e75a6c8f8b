package process

import "github.com/sonde-probe/sonde/internal/command"

// The engine and a guard exchange JSON over two pipes: the engine sends orders over
// the lifeline, the guard sends reports. Both are the same program, so the format
// may change at any time.

// order is a message of the engine. The first one has Start, the others have
// Signal.
type order struct {
	Start  *start `json:",omitempty"`
	Signal signal `json:",omitempty"`
}

// start is the command to run.
type start struct {
	Plan   command.Plan
	Cgroup bool // create a cgroup for it, if possible
}

// signal is how to end the command.
type signal string

const (
	terminate signal = "term" // SIGTERM to the command's process group
	kill      signal = "kill" // SIGKILL to all descendants
)

// report is a message of a guard: the command failed to start (Error, the last
// report), it runs (Pid), or it has ended with all descendants (Ended, the last
// report).
type report struct {
	Error  string `json:",omitempty"`
	Pid    int    `json:",omitempty"` // of the command; its process group has the same number
	Cgroup cgroup `json:",omitempty"` // empty when it has none
	Ended  bool   `json:",omitempty"`
	Code   int    `json:",omitempty"` // as in restart.Exit
}

// File descriptors of a guard, after the three standard ones.
const (
	ordersFile  = 3
	reportsFile = 4
)
