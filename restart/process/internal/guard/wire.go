package guard

import (
	"runtime"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/logfile"
)

// The engine and a guard exchange JSON over a socket: the engine sends orders, the guard sends reports. A guard that
// outlives its engine may be of an older release than the next engine, so orders with Signal, reports and descriptions
// must stay compatible: fields are only added.

// Order is a message of the engine. The first order to a guard has Start, all others have Signal.
type Order struct {
	Start  *Start        `json:",omitempty"`
	Signal Signal        `json:",omitempty"`
	Grace  time.Duration `json:",omitempty"` // of Terminate

	StopSignal syscall.Signal `json:",omitempty"` // of Terminate; 0 means SIGTERM
}

// Start is the command to run.
type Start struct {
	Plan   command.Plan
	Suffix string // of the instance's ID
	Cgroup bool   // create a cgroup for it, if possible
	Socket string `json:",omitempty"` // socket that the engine created for the instance; the guard removes it at the end
	Adopt  *Adopt `json:",omitempty"` // set if the command outlives the engine

	Umask   *int     `json:",omitempty"` // of the command; nil means that of the engine
	Nice    *int     `json:",omitempty"` // of the command; nil means that of the engine; Linux only
	Rlimits []Rlimit `json:",omitempty"` // limits that differ from the engine's; Linux only
}

// Rlimit is a resource limit of a command, as for setrlimit(2).
type Rlimit struct {
	Name       string // a key of Resources
	Soft, Hard uint64 // Unlimited for no limit
}

// Unlimited is the value of an Rlimit without a limit, RLIM_INFINITY.
const Unlimited = ^uint64(0)

// Resource is a resource that can be limited.
type Resource struct {
	number int // the kernel's number
	Bytes  bool
}

// Adopt has the settings of a guard that outlives its engine: where the next engine finds it, and how it ends.
type Adopt struct {
	Dir    string
	Name   string // of the files, without their endings
	Target string
	Digest string // of the configuration

	// While no engine is attached, the guard checks its files at each Interval. If they were removed, no engine can
	// find the guard, so it ends the command.
	Interval time.Duration

	// Linger is the time that the guard waits for an engine after the command has ended.
	Linger time.Duration

	// Flush is the maximum time that a new engine waits until the lines that the guard has read are written.
	Flush time.Duration

	// Grace is the grace period, and StopSignal the signal, if the command is ended by the guard, or by an engine that
	// finds the command but has no configuration for it.
	Grace      time.Duration
	StopSignal syscall.Signal `json:",omitempty"`

	Log *logfile.Config `json:",omitempty"` // log file of the output while no engine is attached; nil to discard the output
}

// The endings of the two files of a guard that outlives its engine.
const (
	SocketEnding      = ".sock" // the guard accepts one engine at a time
	DescriptionEnding = ".json" // Descriptions, locked (flock) as long as the guard is running
)

// Description describes an instance that may have outlived its engine. The guard writes one to the file before it
// starts the command, and another one, with all fields, afterwards.
type Description struct {
	Target  string
	ID      string        `json:",omitempty"` // as it was reported
	Digest  string        // of the configuration
	Started time.Time     `json:",omitzero"`
	Grace   time.Duration // see Adopt

	StopSignal syscall.Signal `json:",omitempty"` // see Adopt
	Tree
}

// Tree identifies a command and its descendants, so that the remaining processes can be killed if the guard was killed.
type Tree struct {
	Boot   string `json:",omitempty"` // boot ID of the kernel; the numbers below are valid for this boot only
	Guard  int    `json:",omitempty"` // process ID of the guard; its session has the same number
	Pid    int    `json:",omitempty"` // process ID of the command; its process group has the same number; 0 before it runs
	Ticks  uint64 `json:",omitempty"` // when the command was started, in clock ticks since the kernel's start
	Cgroup Cgroup `json:",omitempty"` // empty if it has none
}

// Cgroup is the directory of an instance's cgroup (version 2). The methods of the empty Cgroup do nothing.
type Cgroup string

// IsSubreaper is true if this system has subreapers: otherwise only the process group of a command can be killed.
const IsSubreaper = runtime.GOOS == "linux"

// Signal is the way to end the command.
type Signal string

// The signals.
const (
	Terminate Signal = "term" // StopSignal to the process group, then Kill after Grace; sent again, it can only shorten Grace
	Kill      Signal = "kill" // SIGKILL to all descendants
)

// Report is a message of a guard: the command failed to start (Error, the last report), is running (Pid), or has ended
// with all descendants (Ended, the last report).
type Report struct {
	Error    string `json:",omitempty"`
	Shortage bool   `json:",omitempty"` // of Error: this machine lacks resources, the command is not at fault
	ID       string `json:",omitempty"` // of the instance: Pid and Start.Suffix
	Tree
	Dropped    uint64 `json:",omitempty"` // dropped lines of the output since the last engine
	NotAdopted string `json:",omitempty"` // why the command ends with the engine despite Start.Adopt: its directory accepts no files

	Ended  bool           `json:",omitempty"`
	Code   int            `json:",omitempty"` // as in restart.Exit
	Signal syscall.Signal `json:",omitempty"` // the signal that killed it; 0 if none did
	Killed bool           `json:",omitempty"` // it had not exited at the end of its grace period
}

// Tasks is the number of processes and threads of a guard with its command: five that the Go runtime always has,
// idleThreads, and the command.
const Tasks = 5 + idleThreads + 1

// File descriptors of a guard, after its own three standard ones.
const (
	socketFile = 3 + iota // of the engine
	stdoutFile            // the read end of the command's standard output
	stderrFile
	stdoutEnd // the command's end
	stderrEnd
)

// Descriptor returns the descriptor of a file or connection, and keeps it non-blocking.
func Descriptor(c syscall.Conn) (fd uintptr, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Control(func(n uintptr) { fd = n })
	return fd, err
}
