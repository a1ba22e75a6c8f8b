package files

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewMemory returns an empty file in memory. Other processes can access it only by its descriptor, and cannot execute
// it. The name is shown in /proc.
func NewMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf("memfd_create: %w: permit this system call (seccomp)", err)
	case err != nil:
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
