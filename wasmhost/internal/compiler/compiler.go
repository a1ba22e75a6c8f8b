// Package compiler compiles modules in child processes, whose memory and time are limited.
//
// A module can make its compiler need far more of both than its size tells, and wazero's
// compiler cannot be cancelled. So a child of this process compiles, and writes the code into
// a file in memory, from where wazero reads it in this process.
//
// A program that imports this package is its own child: started with the name sonde-compiler
// it compiles, before its main, as package restart/process does with guards.
//
// # Files
//
//	compiler.go     Limits, and the errors of Compile
//	code.go         NewCache: how code gets into wazero, and out of it
//	parent_linux.go Compile: starts a child, and judges how it has ended
//	memory_linux.go what memory a child may have
//	child_linux.go  the child
//	other.go        systems without such children
package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/internal/bytesize"
)

// Limits bound a compilation. The zero value of a field means the default for the size of the module.
type Limits struct {
	Memory int64         // bytes of private memory, beside what the child has when it starts
	CPU    time.Duration // of all processors together; whole seconds

	// group is the file of a control group's limit, such as /sys/fs/cgroup/memory.max, if Memory
	// is half of what is left below it.
	group string
}

// The limits of a module grow with its size. The largest Go plugin, of 20 MB, takes 0.4 GiB and
// 9 s; one of 3 MB takes 0.2 GiB.
const (
	minMemory     = 256 << 20
	memoryPerByte = 32
	minCPU        = 30 * time.Second
	cpuPerByte    = 8 * time.Microsecond
)

// forModule returns the limits for a module of a size in bytes.
func (l Limits) forModule(size int) Limits {
	l.Memory = cmp.Or(l.Memory, minMemory+int64(size)*memoryPerByte)
	l.CPU = cmp.Or(l.CPU, (minCPU + time.Duration(size)*cpuPerByte).Truncate(time.Second))
	return l
}

// RuntimeConfig is the configuration that modules are compiled and run with. Its code is
// found in a cache by those with the same one only.
func RuntimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().WithDebugInfoEnabled(false).WithCoreFeatures(api.CoreFeaturesV2)
}

// limitError says that a module needs more than its limits to compile.
type limitError struct{ limit, remedy string }

func (e *limitError) Error() string {
	return "compile: takes more than " + e.limit + ": " + e.remedy
}

const remedySmaller = "compile the module with optimization, or split it"

// memoryExceeded returns the error for a module that needs more memory than its limit. If the machine
// has set that, a later compilation may have more.
func memoryExceeded(l Limits) error {
	size := bytesize.Size(l.Memory).String() + " of memory"
	if l.group != "" {
		return fmt.Errorf("%w: the module takes more than %s, half of what is left now below the limit %s: raise it, or %s",
			ErrUnavailable, size, l.group, remedySmaller)
	}
	return &limitError{size, "raise compile.memory, or " + remedySmaller}
}

func cpuExceeded(l Limits) error {
	return &limitError{fmt.Sprintf("%v of processor time", l.CPU), "raise compile.time, or " + remedySmaller}
}

// ErrUnavailable is in an error of Compile that is not the module's fault: this machine lacks
// processes, threads, memory or time, or does not permit a child. A later compilation may succeed.
var ErrUnavailable = errors.New("compiler cannot run now")
