package process

import (
	"time"

	"github.com/sonde-probe/sonde/internal/command"
)

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
	Cgroup bool   // create a cgroup for it, if possible
	Adopt  *adopt `json:",omitempty"` // outlive the engine
}

// adopt is what a guard keeps about an instance that may outlive the engine.
type adopt struct {
	Dir    string // of the socket and the description
	Name   string // of both, without their endings
	Target string
	Digest string // of the configuration, see Config.digest
	Suffix string // of the instance's ID
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
	ID     string `json:",omitempty"` // of the instance, if it may outlive the engine
}

// File descriptors of a guard, after the three standard ones.
const (
	ordersFile  = 3
	reportsFile = 4
)

// Survivor describes an instance that may have outlived its engine.
type Survivor struct {
	Target     string
	ID         string // as it was reported
	Digest     string // of the configuration
	Started    time.Time
	Pid        int
	Guard      int    // process ID of the guard
	GuardStart uint64 // when the guard was started, in clock ticks since boot

	name string // of the files
}
