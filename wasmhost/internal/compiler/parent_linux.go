package compiler

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/quota"
	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// Available is true: Compile can be used.
const Available = true

// maxDelay bounds the running time of a child, as a multiple of its limit of processor time: it has
// a low priority and may be stopped.
var maxDelay time.Duration = 10

// turn is held by the running compilation: two at a time would have to share the available memory.
var turn = semaphore.NewWeighted(1)

// Compile compiles a module with RuntimeConfig, and returns a memory file with its code for
// NewCache. It waits for other compilations to finish. When ctx is done it kills its child, and
// returns the error of ctx. Other errors are about the module, such as a *limitError, or wrap
// ErrUnavailable. It is safe for concurrent use by multiple goroutines.
func Compile(ctx context.Context, module []byte, limits Limits) (code *os.File, err error) {
	if err := turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer turn.Release(1)
	if limits, err = limits.forModule(len(module)).within(memoryLeft()); err != nil {
		return nil, err
	}
	if code, err = files.NewMemory("sonde-code"); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	if err = runChild(ctx, module, code, limits); err == nil {
		_, err = code.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = code.Close() // frees memory only
		return nil, err
	}
	return code, nil
}

// runChild starts a child that compiles a module, waits for it to write the code and exit, and
// returns its error.
func runChild(ctx context.Context, module []byte, code *os.File, limits Limits) error {
	workers := runtime.GOMAXPROCS(0)      // probes need the processors too, and have a higher priority
	threads := 2*workers + runtimeThreads // each worker may have a second thread in a system call
	if err := acquireProcess(ctx, threads); err != nil {
		return err
	}
	defer quota.Processes.ReleaseThreads(threads)
	defer quota.Processes.Ended()
	// The kernel kills the child when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	within, cancel := context.WithTimeout(ctx, maxDelay*limits.CPU)
	defer cancel()
	c := exec.CommandContext(within, reexec.Executable)
	c.Args = []string{childName, strconv.FormatInt(limits.Memory, 10), strconv.FormatInt(int64(limits.CPU/time.Second), 10)}
	c.Env = reexec.Env("GOTRACEBACK=none", "GOMAXPROCS="+strconv.Itoa(workers))
	c.Dir = "/"
	c.SysProcAttr = command.Attr(nil)
	stderr := &command.Output{Max: maxMessage}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(module), code, stderr
	err := c.Start()
	quota.Processes.Started(err)
	if err != nil {
		return cmp.Or(ctx.Err(), startError(err))
	}
	switch err = c.Wait(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return fmt.Errorf("%w: it did not end within %v", ErrUnavailable, maxDelay*limits.CPU)
	case err == nil:
		return nil
	}
	message, wasGranted := strings.CutPrefix(stderr.String(), granted)
	return judge(c.ProcessState, err, message, wasGranted, limits)
}

// Threads of a child in addition to those that compile.
const (
	runtimeThreads = 10 // of the Go runtime, including idle ones
	idleThreads    = 3  // idle ones that a compilation may need
)

// processWait bounds the wait for a process quota, since other compilations wait meanwhile.
const processWait = time.Second

// acquireProcess reserves quota for a child with its threads.
func acquireProcess(ctx context.Context, threads int) error {
	within, cancel := context.WithTimeout(ctx, processWait)
	defer cancel()
	_, err := quota.Processes.AcquireThreads(within, threads)
	switch {
	case ctx.Err() != nil && err != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return nil
}

// startError returns the error of a child that could not be started.
func startError(err error) error {
	if shortage.IsFork(err) {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: cannot start this program as a child: permit that, or set compile.in_process: %v", ErrUnavailable, err)
}

// maxMessage is the maximum length of a child's error that is read, in bytes.
const maxMessage = 4 << 10

// judge returns the error of a child that failed. granted reports whether the machine could provide
// the memory of the limit when the child started. Resources that the machine lacks are not the
// module's fault.
func judge(s *os.ProcessState, err error, message string, granted bool, limits Limits) error {
	first, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	status, _ := s.Sys().(syscall.WaitStatus)
	switch {
	case status.ExitStatus() == exitTime, status.Signal() == syscall.SIGKILL && s.UserTime()+s.SystemTime() >= limits.CPU:
		return cpuExceeded(limits)
	case status.Signaled():
		return fmt.Errorf("%w: it was killed by the signal %v: the machine may lack memory", ErrUnavailable, status.Signal())
	case status.ExitStatus() == exitInvalid:
		return fmt.Errorf("compile: %s", message)
	case status.ExitStatus() == exitSystem:
		return fmt.Errorf("%w: %s", ErrUnavailable, message)
	case status.ExitStatus() == exitMemory, outOfMemory(message):
		if granted && isAvailable(uint64(limits.Memory)*memoryOverhead) { // other processes may have used it meanwhile
			return memoryExceeded(limits)
		}
		return fmt.Errorf("%w: this machine cannot provide %v of memory: raise RLIMIT_AS and RLIMIT_DATA, or change vm.overcommit_memory",
			ErrUnavailable, bytesize.Size(limits.Memory))
	case outOfThreads(message):
		return fmt.Errorf("%w: %s: raise the limit of processes and threads", ErrUnavailable, first)
	case first == "" && err != nil:
		first = err.Error()
	}
	return fmt.Errorf("compile: compiler crashed: %s: build the module with another version of its compiler", first)
}

// outOfMemory reports whether the Go runtime, wazero or the race detector could not allocate
// memory.
func outOfMemory(message string) bool {
	return strings.Contains(message, "out of memory") || strings.Contains(message, "cannot allocate memory") ||
		strings.Contains(message, "failed to allocate")
}

// outOfThreads reports whether the Go runtime could not start a thread. A child has all its
// threads before its memory is limited.
func outOfThreads(message string) bool {
	return strings.Contains(message, "failed to create new OS thread") || strings.Contains(message, "pthread_create failed")
}
