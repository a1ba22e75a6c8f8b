//go:build !unix

package codecache

import (
	"errors"
	"os"
)

// checkPrivate accepts any directory: its owner is not known on this system.
func checkPrivate(string) error { return nil }

// lockDir locks nothing.
func lockDir(string) (*os.File, error) { return nil, errors.ErrUnsupported }
