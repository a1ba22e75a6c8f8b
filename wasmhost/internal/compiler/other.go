//go:build !linux

package compiler

import (
	"context"
	"errors"
)

// Available reports false: modules are compiled in this process.
func Available() bool { return false }

// Compile returns an error: see Available.
func Compile(context.Context, []byte, string, Limits) error {
	return errors.New("modules are compiled by children on Linux only")
}
