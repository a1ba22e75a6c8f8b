// Package compiler compiles modules in child processes with limited memory and time.
//
// A hostile module can make the compiler use far more of both than its size suggests, and wazero's
// compiler cannot be cancelled. Therefore a child process compiles, and writes the code to a memory
// file, from which wazero in this process reads it.
//
// A program that imports this package is its own child program: started with the name
// sonde-compiler it compiles before main runs, in the same way as the guards of package
// restart/process.
//
// # Files
//
//	compiler.go     Limits, and the errors of Compile
//	code.go         NewCache: passing code to and from wazero
//	parent_linux.go Compile: starts a child, and interprets its exit
//	memory_linux.go the memory that is available to a child
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
	Memory int64         // bytes of private memory, in addition to the child's memory at its start
	CPU    time.Duration // processor time, summed over all processors, in whole seconds

	// group is the file of a control group's limit, such as /sys/fs/cgroup/memory.max, if Memory
	// was reduced to half of the memory left below that limit.
	group string
}

// The limits grow with the size of the module. The largest Go plugin, of 20 MB, takes 0.4 GiB and 9
// s; one of 3 MB takes 0.2 GiB.
const (
	minMemory     = 256 << 20
	memoryPerByte = 32
	minCPU        = 30 * time.Second
	cpuPerByte    = 8 * time.Microsecond
)

// forModule returns l with defaults for a module of size bytes.
func (l Limits) forModule(size int) Limits {
	l.Memory = cmp.Or(l.Memory, minMemory+int64(size)*memoryPerByte)
	l.CPU = cmp.Or(l.CPU, (minCPU + time.Duration(size)*cpuPerByte).Truncate(time.Second))
	return l
}

// RuntimeConfig returns the configuration with which modules are compiled and run. Cached code is
// found only under the same configuration.
func RuntimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().WithDebugInfoEnabled(false).WithCoreFeatures(api.CoreFeaturesV2)
}

// limitError means that compiling a module exceeds a limit.
type limitError struct{ limit, remedy string }

func (e *limitError) Error() string {
	return "compile: module needs more than " + e.limit + ": " + e.remedy
}

const remedySmaller = "compile the module with optimization, or split it"

// memoryExceeded returns the error for a module that needs more memory than its limit. If the limit
// comes from a control group, the error is ErrUnavailable, because a later compilation may have more.
func memoryExceeded(l Limits) error {
	size := bytesize.Size(l.Memory).String() + " of memory"
	if l.group != "" {
		return fmt.Errorf("%w: the module needs more than %s, half of the memory left below the limit %s: raise the limit, or %s",
			ErrUnavailable, size, l.group, remedySmaller)
	}
	return &limitError{size, "raise compile.memory, or " + remedySmaller}
}

func cpuExceeded(l Limits) error {
	return &limitError{fmt.Sprintf("%v of processor time", l.CPU), "raise compile.time, or " + remedySmaller}
}

// ErrUnavailable is wrapped by errors of Compile that are not the module's fault: this machine
// lacks processes, threads, memory or time, or does not permit a child. A later compilation may
// succeed.
var ErrUnavailable = errors.New("compiler cannot run now")
