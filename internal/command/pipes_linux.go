package command

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipes are the descriptors of a command's standard input and output: what it
// gets of them, and what stays here. None of them is known to Go's poller, which
// would cost more than the pipes themselves. A descriptor that is not open is -1.
type pipes struct {
	theirs [3]int // /dev/null and the ends to write to; the last two may be the same
	ours   [2]int // the ends to read from; the second is -1 when the first serves both
}

// openPipes opens one pipe for both outputs when they are joined, so that their
// order is kept, else two.
func openPipes(joined bool) (pipes, error) {
	p := pipes{theirs: [3]int{-1, -1, -1}, ours: [2]int{-1, -1}}
	err := p.open(joined)
	if err != nil {
		p.close()
	}
	return p, err
}

func (p *pipes) open(joined bool) (err error) {
	if p.theirs[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	if p.ours[0], p.theirs[1], err = pipe(); err != nil {
		return err
	}
	if joined {
		p.theirs[2] = p.theirs[1]
		return nil
	}
	p.ours[1], p.theirs[2], err = pipe()
	return err
}

// pipe opens a pipe whose end to read from never blocks, not even when the command
// opens that end a second time, through /proc, and is quicker to read.
func pipe() (r, w int, err error) {
	ends := [2]int{-1, -1}
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, os.NewSyscallError("pipe2", err)
	}
	if _, err := unix.FcntlInt(uintptr(ends[0]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		shut(ends[0])
		shut(ends[1])
		return -1, -1, os.NewSyscallError("fcntl", err)
	}
	return ends[0], ends[1], nil
}

// close closes all that is open.
func (p *pipes) close() {
	p.closeTheirs()
	for i := range p.ours {
		shut(p.ours[i])
		p.ours[i] = -1
	}
}

// closeTheirs closes what only the command needs: else its output would not end.
func (p *pipes) closeTheirs() {
	if p.theirs[2] == p.theirs[1] {
		p.theirs[2] = -1
	}
	for i := range p.theirs {
		shut(p.theirs[i])
		p.theirs[i] = -1
	}
}

// shut closes a descriptor unless it is -1.
func shut(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
