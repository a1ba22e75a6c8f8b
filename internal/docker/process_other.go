//go:build !linux

package docker

import (
	"errors"
	"syscall"
	"time"
)

// Process is a process of a container.
type Process struct{}

// Errors that only occur on Linux.
var (
	errExited  = errors.New("has exited")
	errForeign = errors.New("is not a process of the container")
)

var errNoPidfd = errors.New("this system has no pidfd; on Linux the engine signals it")

func openProcess(int, string, time.Time) (*Process, error) { return nil, errNoPidfd }
func (*Process) started() (time.Time, bool)                { return time.Time{}, false }
func (*Process) Close()                                    {}
func (*Process) Signal(syscall.Signal) error               { return errNoPidfd }
func (*Process) killTree() error                           { return errNoPidfd }

// SignalToStop is not used on this system.
func (Container) SignalToStop() syscall.Signal { return syscall.SIGTERM }
