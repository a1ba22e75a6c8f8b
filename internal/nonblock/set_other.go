//go:build !linux

package nonblock

import (
	"errors"
	"time"
)

// Set is a set of descriptors to wait for. It is not available on this system.
type Set struct{}

// NewSet returns errors.ErrUnsupported.
func NewSet() (*Set, error) { return nil, errors.ErrUnsupported }

// Add returns errors.ErrUnsupported.
func (*Set) Add(fd int, key uint32) error { return errors.ErrUnsupported }

func (*Set) addEnd(fd int, key uint32) error { return errors.ErrUnsupported }

// Wait returns errors.ErrUnsupported.
func (*Set) Wait(time.Duration, func(key uint32)) error { return errors.ErrUnsupported }

// Wake does nothing.
func (*Set) Wake() {}

// Close does nothing.
func (*Set) Close() error { return nil }

// CloseDescriptor does nothing.
func CloseDescriptor(fd int) error { return nil }

func unread(fd int) int { return 0 }

func hasEnded(fd int) bool { return false }
