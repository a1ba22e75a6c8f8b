// Package files reads files that a user has named, up to a maximum size, and replaces files.
package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrTooLarge is wrapped in the error for a file above the maximum size.
var ErrTooLarge = errors.New("file is too large")

// pipeTimeout is the maximum time that Read waits for the end of a pipe.
const pipeTimeout = 30 * time.Second

// Read returns the content of a file of at most max bytes. The file may be a pipe, such as a shell's process
// substitution, or a device: Read then returns an error unless it ends within 30 seconds.
func Read(name string, max int64) ([]byte, error) {
	f, info, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Mode().IsRegular() {
		return ReadFrom(f, name, max)
	}
	return ReadFrom(&pipe{f, name, time.Now().Add(pipeTimeout)}, name, max)
}

// ReadRegular is Read for regular files only: it rejects a directory, a device or a pipe
// without waiting for it.
func ReadRegular(name string, max int64) ([]byte, error) {
	f, info, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return ReadFrom(f, name, max)
}

// IsRegular reports whether a regular file with the name exists.
func IsRegular(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// open opens a file without waiting for the writer of a pipe.
func open(name string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if absolute, noDir := filepath.Abs(name); err != nil && noDir == nil {
		err = &os.PathError{Op: "open", Path: absolute, Err: cause(err)} // readers of the error may be in another directory
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// pipe reads a file that is not regular, until a deadline.
type pipe struct {
	file     *os.File
	name     string
	deadline time.Time
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) {
	if err := p.wait(); err != nil {
		return 0, err
	}
	return p.file.Read(b)
}

// ReadFrom returns the rest of r, at most max bytes. The name is for errors.
func ReadFrom(r io.Reader, name string, max int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(b)) > max {
		return nil, fmt.Errorf("%s: %w; the limit is %d bytes", name, ErrTooLarge, max)
	}
	return b, err
}

// IsSame reports whether two calls of Stat found the same file, with the same size and modification time.
func IsSame(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
