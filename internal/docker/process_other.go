//go:build !linux

package docker

import (
	"errors"
	"syscall"
	"time"
)

// Process is a process of a container.
type Process struct{}

var errNoPidfd = errors.New("this system has no pidfd; on Linux the engine signals it")

func openProcess(int, string, time.Time) (*Process, error) { return nil, errNoPidfd }
func (*Process) Close()                                    {}
func (*Process) Signal(syscall.Signal) error               { return errNoPidfd }
func (*Process) killTree() error                           { return errNoPidfd }

// SignalToStop is not used here.
func (Container) SignalToStop() syscall.Signal { return syscall.SIGTERM }
