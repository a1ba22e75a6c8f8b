//go:build !linux

package compiler

import (
	"context"
	"errors"
	"os"
)

// Available reports that Compile cannot be used: modules are compiled in this process.
const Available = false

// Compile returns an error: see Available.
func Compile(context.Context, []byte, Limits) (*os.File, error) {
	return nil, errors.New("modules are compiled by children on Linux only")
}
