package compiler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/quota"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// executable is the file of this program, even when it was replaced after the start.
const executable = "/proc/self/exe"

// Available reports whether Compile can be used: on Linux with /proc.
func Available() bool {
	_, err := os.Stat(executable)
	return err == nil
}

// maxChildren bounds the children at the same time, since each may use as much memory as its
// limits allow.
const maxChildren = 2

// children holds an element for each child.
var children = make(chan struct{}, maxChildren)

// maxDelay bounds the time of a child as a multiple of its limit of processor time: it has a
// low priority, and the file system may not answer.
const maxDelay = 10

// Compile compiles a module with RuntimeConfig, and writes its code into dir, as wazero's cache
// has it. It waits while there are maxChildren others. When ctx is done it kills its child, and
// returns the error of ctx. Other errors are about the module, such as a *LimitError, or
// ErrShortage or ErrStore. It is safe for concurrent use by multiple goroutines.
func Compile(ctx context.Context, module []byte, dir string, limits Limits) error {
	select {
	case children <- struct{}{}:
		defer func() { <-children }()
	case <-ctx.Done():
		return ctx.Err()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrStore, err)
	}
	if _, err := quota.Processes.Acquire(ctx); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%w: %v", ErrShortage, err))
	}
	defer quota.Processes.Ended()
	limits.halveShared()
	// The kernel kills the child when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	within, cancel := context.WithTimeout(ctx, maxDelay*limits.CPU)
	defer cancel()
	c := exec.CommandContext(within, executable)
	c.Args = []string{Name, dir, strconv.FormatInt(limits.Memory, 10), strconv.FormatInt(int64(limits.CPU/time.Second), 10)}
	c.Env = childEnv
	c.Dir = "/"
	c.SysProcAttr = command.Attr(nil)
	c.Stdin = bytes.NewReader(module)
	stdout, stderr := &command.Head{Max: len(done) + 1}, &command.Head{Max: maxMessage}
	c.Stdout, c.Stderr = stdout, stderr
	err = c.Start()
	quota.Processes.Started(err)
	if err != nil {
		return startError(err)
	}
	err = c.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return fmt.Errorf("%w: compiler did not end within %v", ErrShortage, maxDelay*limits.CPU)
	case err == nil && stdout.String() == done:
		return nil
	}
	return judge(c.ProcessState, err, stderr.String(), limits)
}

// halveShared lowers the limit of memory to half of what the control groups of this process may
// have: the kernel may end all of a group that exceeds its limit.
func (l *Limits) halveShared() {
	membership, err := cgroup.Current()
	if err != nil {
		return
	}
	dirs, _ := membership.Dirs("memory")
	for _, dir := range dirs {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			if n, ok, err := cgroup.Number(dir, file); err == nil && ok && n/2 < l.Memory {
				l.Memory, l.shared = n/2, true
			}
		}
	}
}

// childEnv is the environment of a child, which needs none: the engine's may hold secrets. It
// must not wait a second before it ends under the race detector.
var childEnv = []string{"GOTRACEBACK=none", "GORACE=atexit_sleep_ms=0"}

// maxMessage bounds what is read of a child's error, in bytes.
const maxMessage = 4 << 10

func startError(err error) error {
	if shortage.IsFork(err) {
		return fmt.Errorf("%w: start the compiler: %v", ErrShortage, err)
	}
	return fmt.Errorf("compile: this program cannot start itself: %w", err)
}

// judge returns the error of a child that has ended without success.
func judge(s *os.ProcessState, err error, message string, limits Limits) error {
	first, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	status, _ := s.Sys().(syscall.WaitStatus)
	switch used := s.UserTime() + s.SystemTime(); {
	case status.Signal() == syscall.SIGKILL && used >= limits.CPU/4*3: // the kernel counts ticks
		return cpuExceeded(limits)
	case status.Signaled():
		return fmt.Errorf("%w: compiler was ended by the signal %v: the machine may lack memory", ErrShortage, status.Signal())
	case status.ExitStatus() == exitMemory:
		return memoryExceeded(limits)
	case status.ExitStatus() == exitInvalid:
		return fmt.Errorf("compile: %s", message)
	case status.ExitStatus() == exitStore:
		return fmt.Errorf("%w: %s", ErrStore, message)
	case outOfMemory(message), outOfThreads(message) && peak(s) >= limits.Memory/2: // a thread needs memory
		return memoryExceeded(limits)
	case outOfThreads(message):
		return fmt.Errorf("%w: %s", ErrShortage, first)
	case first == "" && err != nil:
		first = err.Error()
	}
	return fmt.Errorf("compile: compiler failed: %s", first)
}

// outOfMemory reports whether the Go runtime, wazero or the race detector could not allocate
// memory.
func outOfMemory(message string) bool {
	return strings.Contains(message, "out of memory") || strings.Contains(message, "cannot allocate memory") ||
		strings.Contains(message, "failed to allocate")
}

// outOfThreads reports whether the Go runtime could not start a thread.
func outOfThreads(message string) bool {
	return strings.Contains(message, "failed to create new OS thread") || strings.Contains(message, "pthread_create failed")
}

// peak returns the most memory that a process had at a time.
func peak(s *os.ProcessState) int64 {
	usage, _ := s.SysUsage().(*syscall.Rusage)
	return int64(usage.Maxrss) << 10
}
