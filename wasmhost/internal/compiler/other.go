//go:build !linux

package compiler

import (
	"context"
	"errors"
	"os"
)

// Available is false: Compile cannot be used, and modules are compiled in this process.
const Available = false

// Compile returns an error: see Available.
func Compile(context.Context, []byte, Limits) (*os.File, error) {
	return nil, errors.New("modules are compiled by children on Linux only")
}
