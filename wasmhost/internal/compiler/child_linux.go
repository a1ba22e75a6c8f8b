package compiler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/quota"
)

// childName is the argv[0] of a child. Its arguments are the limits of memory, in bytes, and of processor
// time, in seconds. It reads the module from standard input and writes the code to standard output.
const childName = "sonde-compiler"

// granted is the first output of a child on standard error if the machine can provide the memory of
// the limit.
const granted = "granted\n"

// The exit codes of a child that writes its error to standard error. The Go runtime exits with 2.
const (
	exitInvalid = 3 // the module cannot be compiled
	exitSystem  = 4 // the code cannot be written, or a limit cannot be set
	exitMemory  = 5 // wazero could not map memory
	exitTime    = 6 // the limit of processor time is exceeded
)

func init() {
	if len(os.Args) == 0 || os.Args[0] != childName {
		return
	}
	command.CloseInherited(syscall.Stderr)
	err := run(os.Args[1:])
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprint(os.Stderr, err)
	os.Exit(exitCode(err))
}

// exitCode returns the exit code for an error of run. Errors about the module have no errno.
func exitCode(err error) int {
	var number syscall.Errno
	switch {
	case errors.Is(err, syscall.ENOMEM) && !errors.Is(err, errOutput):
		return exitMemory
	case errors.As(err, &number):
		return exitSystem
	}
	return exitInvalid
}

// run compiles the module on standard input.
func run(args []string) error {
	if len(args) != 2 {
		return errors.New("is started by Sonde only")
	}
	memory, memoryErr := strconv.ParseInt(args[0], 10, 64)
	seconds, secondsErr := strconv.ParseUint(args[1], 10, 64)
	if err := errors.Join(memoryErr, secondsErr); err != nil {
		return err
	}
	exitAtTimeLimit()
	quota.MakeThreads(runtime.GOMAXPROCS(0) + idleThreads) // before memory is limited: see outOfThreads
	if err := confine(uint64(memory)*memoryOverhead, seconds); err != nil {
		return err
	}
	debug.SetMemoryLimit(memory / 4 * 3) // collect garbage more often before reaching the limit
	module, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return compile(module)
}

// exitAtTimeLimit makes this process exit when the kernel signals that it has exceeded the soft
// limit of processor time.
func exitAtTimeLimit() {
	exceeded := make(chan os.Signal, 1)
	signal.Notify(exceeded, syscall.SIGXCPU)
	go func() {
		<-exceeded
		os.Exit(exitTime)
	}()
}

// confine limits this process to memory bytes in addition to its memory at the start, and to
// seconds of processor time. It writes granted if the machine can provide the memory. RLIMIT_DATA
// counts private writable memory; unlike RLIMIT_AS it does not count the address space that the Go
// runtime reserves.
func confine(memory, seconds uint64) error {
	// When memory runs out the kernel should kill this process rather than the engine, and on a
	// busy machine it should prefer the engine. Both are best effort: the limits hold without them.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	_ = syscall.Setpriority(syscall.PRIO_PGRP, 0, lowPriority)
	isGranted := isAvailable(memory)
	for resource, limit := range map[int]syscall.Rlimit{
		syscall.RLIMIT_DATA:  {Cur: ownMemory() + memory, Max: ownMemory() + memory},
		syscall.RLIMIT_CPU:   {Cur: seconds, Max: 2 * seconds}, // at Max the kernel kills it
		syscall.RLIMIT_FSIZE: {Cur: memory, Max: memory},
		syscall.RLIMIT_CORE:  {},
	} {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(resource, &now); err == nil && now.Max < limit.Max { // raising it is not permitted
			limit = syscall.Rlimit{Cur: min(limit.Cur, now.Max), Max: now.Max}
			isGranted = isGranted && resource != syscall.RLIMIT_DATA
		}
		if err := syscall.Setrlimit(resource, &limit); err != nil {
			return fmt.Errorf("limit resource %d to %d: %w", resource, limit.Max, err)
		}
	}
	if isGranted {
		_, _ = os.Stderr.WriteString(granted)
	}
	return nil
}

// isAvailable reports whether this process can allocate an amount of memory: RLIMIT_AS and the
// accounting of vm.overcommit_memory may deny it.
func isAvailable(memory uint64) bool {
	if memory > math.MaxInt {
		return false
	}
	all, err := syscall.Mmap(-1, 0, int(memory), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	return err == nil && syscall.Munmap(all) == nil
}

// ownMemory returns the memory that RLIMIT_DATA counts now, in bytes: that of the Go runtime, and
// far more under the race detector.
func ownMemory() uint64 {
	text, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(text), "VmData:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseUint(fields[0], 10, 64)
	return kib << 10
}

// lowPriority is a nice value that gives a process a third of the usual share of a busy machine.
// With a tenth, a module that takes three seconds to compile took minutes next to four busy
// programs.
const lowPriority = 5

// compile compiles a module with all processors of this process. With several goroutines a panic in
// wazero crashes the process, which here is only the child.
func compile(module []byte) error {
	cache, err := NewCache(nil, os.Stdout)
	if err != nil {
		return err
	}
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	_, err = wazero.NewRuntimeWithConfig(ctx, RuntimeConfig().WithCompilationCache(cache)).CompileModule(ctx, module)
	return err
}
