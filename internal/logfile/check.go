package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Check returns an error if lines could not be appended to a file now, or if it could not be rotated. It creates nothing.
func Check(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkDir(filepath.Dir(path))
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return symlinkError(path)
	case !info.Mode().IsRegular():
		return irregularError(path)
	}
	if info.Mode().Perm()&0o111 != 0 || isBinary(path) {
		return fmt.Errorf("%s exists and is not a log", path)
	}
	if err := syscall.Access(path, modeWrite); err != nil {
		return fmt.Errorf("%s is not writable for this user: %w", path, err)
	}
	return checkDir(filepath.Dir(path))
}

// isBinary reports whether a file begins with bytes that do not occur in text.
func isBinary(path string) bool {
	const most = 512 // bytes
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, most)
	n, _ := io.ReadFull(f, start)
	return bytes.IndexByte(start[:n], 0) >= 0
}

// checkDir returns an error if files cannot be created or renamed in a directory.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("directory %s does not exist", dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := syscall.Access(dir, modeWrite|modeSearch); err != nil {
		return fmt.Errorf("directory %s is not writable for this user: %w", dir, err)
	}
	return nil
}

// Modes of access(2), from unistd.h.
const (
	modeSearch = 1
	modeWrite  = 2
)

func symlinkError(path string) error {
	return fmt.Errorf("%s is a symbolic link: write the path of the file itself", path)
}

func irregularError(path string) error { return fmt.Errorf("%s is not a regular file", path) }
