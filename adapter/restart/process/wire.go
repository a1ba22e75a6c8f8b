package process

import "github.com/sonde-probe/sonde/internal/command"

// The engine and a guard speak JSON over two pipes: orders go down the lifeline,
// reports come up. Both are the same program, so that there is nothing to keep
// compatible.

// order is what the engine tells a guard. The first one has Start, the others
// have Signal.
type order struct {
	Start  *start `json:",omitempty"`
	Signal signal `json:",omitempty"`
}

// start says what to run.
type start struct {
	Plan   command.Plan
	Cgroup bool // make a cgroup for it, if that can be done
}

// signal is how to end what runs.
type signal string

const (
	politely signal = "term" // ask the command's process group
	byForce  signal = "kill" // kill everything
)

// report is what a guard tells the engine: that the command could not be
// started (Error, the last report), that it runs (Pid), or that it has ended and
// nothing is left of it (Ended, the last report).
type report struct {
	Error  string `json:",omitempty"`
	Pid    int    `json:",omitempty"` // of the command; its process group has the same number
	Cgroup cgroup `json:",omitempty"` // empty when it has none
	Ended  bool   `json:",omitempty"`
	Code   int    `json:",omitempty"` // as in restart.Exit
}

// The descriptors of a guard, beside the command's standard three.
const (
	ordersFile  = 3
	reportsFile = 4
)
