package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// readBounded reads a regular file of at most so many bytes.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s", name)
	case err != nil:
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is longer than the %v that are allowed", filepath.Base(name), config.Bytes(most))
	}
	return b, err
}

// sum returns the SHA-256 of bytes as hexadecimal digits.
func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// configures reports whether a module checks settings by itself.
func configures(module []byte) bool {
	o, err := outlineOf(module)
	return err == nil && slices.Contains(o.Exports, abi.ExportConfigure)
}

func fieldError(name, format string, a ...any) error {
	return &probe.FieldError{Field: name, Problem: fmt.Sprintf(format, a...)}
}
