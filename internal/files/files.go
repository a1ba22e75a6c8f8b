// Package files reads files that a user has named, up to a maximum size.
package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrTooLarge is in the error for a file above the maximum size.
var ErrTooLarge = errors.New("file is too large")

// Read returns the content of a file of at most max bytes. The file may be a pipe: Read
// then returns when its writer closes it.
func Read(name string, max int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFrom(f, name, max)
}

// ReadRegular is Read for regular files only: it rejects a directory, a device or a pipe
// without waiting for it.
func ReadRegular(name string, max int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return ReadFrom(f, name, max)
}

// ReadFrom returns what is left of r, at most max bytes. The name is for errors.
func ReadFrom(r io.Reader, name string, max int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(b)) > max {
		return nil, fmt.Errorf("%s: %w, at most %d bytes are allowed", name, ErrTooLarge, max)
	}
	return b, err
}
