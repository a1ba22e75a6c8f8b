package guard

import (
	"runtime"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/logfile"
)

// The engine and a guard exchange JSON over a socket: the engine sends orders, the guard
// sends reports. A guard that outlives its engine may be of an older release, so fields
// are only added to orders with Signal, to reports and to descriptions.

// Order is a message of the engine. The first one that a guard gets has Start, the others
// have Signal.
type Order struct {
	Start  *Start        `json:",omitempty"`
	Signal Signal        `json:",omitempty"`
	Grace  time.Duration `json:",omitempty"` // of Terminate

	StopSignal syscall.Signal `json:",omitempty"` // of Terminate; 0 for SIGTERM
}

// Start is the command to run.
type Start struct {
	Plan   command.Plan
	Suffix string // of the instance's ID
	Cgroup bool   // create a cgroup for it, if possible
	Socket string `json:",omitempty"` // that the engine has made for the instance: the guard removes it at the end
	Adopt  *Adopt `json:",omitempty"` // outlive the engine

	Umask   *int     `json:",omitempty"` // of the command; nil for that of the engine
	Nice    *int     `json:",omitempty"` // likewise; Linux only
	Rlimits []Rlimit `json:",omitempty"` // those that are not the engine's; Linux only
}

// Rlimit is a limit of the resources of a command, as setrlimit(2) sets it.
type Rlimit struct {
	Name       string // in Resources
	Soft, Hard uint64 // Unlimited for none
}

// Unlimited is the Rlimit that is none, RLIM_INFINITY.
const Unlimited = ^uint64(0)

// Resource is what can be limited.
type Resource struct {
	number int // the kernel's
	Bytes  bool
}

// Adopt says where the next engine finds a guard that outlives this one.
type Adopt struct {
	Dir    string
	Name   string // of the files, without their endings
	Target string
	Digest string // of the configuration

	// While no engine is attached the guard looks for its files after each Interval. If they
	// were removed no engine can find it, so it ends the command.
	Interval time.Duration

	// Linger is how long the guard waits for an engine after the command has ended.
	Linger time.Duration

	// Flush is how long a new engine waits for the lines that the guard has read.
	Flush time.Duration

	// Grace is the grace period if the guard ends the command, or an engine that finds the
	// command and does not want it. StopSignal is by which the command is asked to exit then.
	Grace      time.Duration
	StopSignal syscall.Signal `json:",omitempty"`

	Log *logfile.Config `json:",omitempty"` // of the output while no engine is attached; nil to discard it
}

// The endings of the two files of a guard that outlives its engine.
const (
	SocketEnding      = ".sock" // the guard accepts one engine at a time
	DescriptionEnding = ".json" // a Description, locked (flock) as long as the guard runs
)

// Description describes an instance that may have outlived its engine. The file has one
// before the command is started, and another one, with all fields, afterwards.
type Description struct {
	Target  string
	ID      string        `json:",omitempty"` // as it was reported
	Digest  string        // of the configuration
	Started time.Time     `json:",omitzero"`
	Grace   time.Duration // see Adopt

	StopSignal syscall.Signal `json:",omitempty"` // see Adopt
	Tree
}

// Tree identifies a command and its descendants, so that what is left of them can be killed
// if their guard was killed.
type Tree struct {
	Boot   string `json:",omitempty"` // the kernel's ID of its start, since which the numbers count
	Guard  int    `json:",omitempty"` // process ID of the guard; its session has the same number
	Pid    int    `json:",omitempty"` // of the command; its process group has the same number; 0 before it runs
	Ticks  uint64 `json:",omitempty"` // when the command was started, in clock ticks since the kernel's start
	Cgroup Cgroup `json:",omitempty"` // empty when it has none
}

// Cgroup is the directory of an instance's cgroup (version 2). The methods of the
// empty cgroup do nothing.
type Cgroup string

// IsSubreaper is whether this system has subreapers: otherwise only the process group of a command can be killed.
const IsSubreaper = runtime.GOOS == "linux"

// Signal is how to end the command.
type Signal string

// The signals.
const (
	Terminate Signal = "term" // StopSignal to the command's process group, and Kill after Grace; again: less Grace
	Kill      Signal = "kill" // SIGKILL to all descendants
)

// Report is a message of a guard: the command failed to start (Error, the last
// report), it runs (Pid), or it has ended with all descendants (Ended, the last
// report).
type Report struct {
	Error    string `json:",omitempty"`
	Shortage bool   `json:",omitempty"` // of Error: this machine lacks resources, the command is not at fault
	ID       string `json:",omitempty"` // of the instance: Pid and Start.Suffix
	Tree
	Dropped    uint64 `json:",omitempty"` // lines of the output, since the last engine
	NotAdopted string `json:",omitempty"` // why it ends with the engine although Start.Adopt is set: its directory takes no files

	Ended  bool           `json:",omitempty"`
	Code   int            `json:",omitempty"` // as in restart.Exit
	Signal syscall.Signal `json:",omitempty"` // that has killed it; 0 if none has
	Killed bool           `json:",omitempty"` // it had not exited at the end of its grace period
}

// Tasks is how many processes and threads a guard with its command has: five that the Go runtime
// has always, idleThreads, and the command.
const Tasks = 5 + idleThreads + 1

// File descriptors of a guard, after its own three standard ones.
const (
	socketFile = 3 + iota // of the engine
	stdoutFile            // the read end of the command's standard output
	stderrFile
	stdoutEnd // the command's end
	stderrEnd
)

// Descriptor returns the descriptor of a file or connection, and leaves it non-blocking.
func Descriptor(c syscall.Conn) (fd uintptr, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Control(func(n uintptr) { fd = n })
	return fd, err
}
