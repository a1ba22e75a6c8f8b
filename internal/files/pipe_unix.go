//go:build unix

package files

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// wait returns when there is data to read, or the end of the file. It uses poll(2), which waits for the first writer of
// a pipe: read(2) returns the end of the file as long as there is none.
func (p *pipe) wait() error {
	polled := []unix.PollFd{{Fd: int32(p.file.Fd()), Events: unix.POLLIN}}
	for {
		left := time.Until(p.deadline)
		if left <= 0 {
			return fmt.Errorf("%s is a pipe or a device that did not end within %v", p.name, pipeTimeout)
		}
		n, err := unix.Poll(polled, int(left.Milliseconds())+1)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("poll", err)
		}
	}
}
