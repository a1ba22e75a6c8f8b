//go:build amd64 || arm64

package watchdog

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

//lint:file-ignore U1000 thread_linux_*.s uses the variables

// What the thread uses. It writes the action only, and startThread the mask.
var (
	beats    uint64 // counts Beat
	limit    uint64 // in short pauses
	exitOnly uint32 // 1: the program is not started again, but ends

	running    *byte  // the file that this process runs, even if another one has its path now
	path       *byte  // its path, where /proc is missing
	argv, envp **byte // of the new program, ending with nil
	name       *byte  // of the thread

	allSignals    uint64              = 1<<64 - 1
	mask          uint64              // the signals that are blocked in this program
	defaultAction [4]uint64           // struct sigaction of the kernel
	ignore        = [4]uint64{sigIgn} // likewise
	action        [4]uint64           // that of a signal

	// The thread sleeps for long while beats come. Once one is missing it sleeps for short
	// times, of which none is much longer than it should be, unless the process does not run.
	longPause  = syscall.Timespec{Sec: 2}
	shortPause = syscall.Timespec{Nsec: int64(pause)}

	stack [4 << 10]byte // of the thread, which calls nothing
)

// sigIgn is SIG_IGN.
const sigIgn = 1

// pause is how long the thread sleeps while a beat is missing.
const pause = 10 * time.Millisecond

// startThread starts the thread with all signals blocked, and returns its ID, or a negative
// error number.
func startThread() int

// maxLimit bounds the limit of Start; 0 for no bound.
var maxLimit time.Duration

// Shorten bounds the limit of Start, in tests whose programs hang.
func Shorten(after time.Duration) { maxLimit = after }

// Start starts the watchdog, once in a program: it starts the program again when no Beat has
// come for the limit, of a second or more, and up to two seconds more.
func Start(after time.Duration) error {
	if maxLimit > 0 {
		after = min(after, maxLimit)
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	var texts [3]*byte
	for i, s := range []string{executable, "/proc/self/exe", "watchdog"} {
		if texts[i], err = syscall.BytePtrFromString(s); err != nil {
			return err
		}
	}
	path, running, name = texts[0], texts[1], texts[2]
	if argv, err = pointers(os.Args); err != nil {
		return err
	}
	if envp, err = pointers(environment(restarts() + 1)); err != nil {
		return err
	}
	limit = uint64(max(after, BeatInterval) / pause)
	if n := startThread(); n < 0 {
		return os.NewSyscallError("clone", syscall.Errno(-n))
	}
	return nil
}

// pointers returns strings as execve takes them.
func pointers(texts []string) (**byte, error) {
	list, err := syscall.SlicePtrFromStrings(texts)
	if err != nil {
		return nil, errors.New("an argument or a variable of the environment has a NUL byte")
	}
	return &list[0], nil
}

// environment returns that of this program, with the number of restarts.
func environment(restarts int) []string {
	env := []string{restartsVariable + "=" + strconv.Itoa(restarts)}
	for _, s := range os.Environ() {
		if !strings.HasPrefix(s, restartsVariable+"=") {
			env = append(env, s)
		}
	}
	return env
}

// Beat says that the program does not hang.
func Beat() { atomic.AddUint64(&beats, 1) }

// ExitOnly makes the watchdog end the program with exit code 1 when it hangs, and not start it
// again, since it was asked to end.
func ExitOnly() { atomic.StoreUint32(&exitOnly, 1) }
