package command

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipes are the descriptors of a command's standard input, output and error. They are
// not registered with Go's poller, which would cost more than the pipes themselves. A
// descriptor that is not open is -1.
type pipes struct {
	command [3]int // /dev/null and the write ends; the last two may be equal
	engine  [2]int // the read ends; the second is -1 when one pipe serves both outputs
}

// openPipes opens one pipe for both outputs if they are joined, which keeps their order,
// else two.
func openPipes(joined bool) (pipes, error) {
	p := pipes{command: [3]int{-1, -1, -1}, engine: [2]int{-1, -1}}
	err := p.open(joined)
	if err != nil {
		p.close()
	}
	return p, err
}

func (p *pipes) open(joined bool) (err error) {
	if p.command[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	if p.engine[0], p.command[1], err = pipe(); err != nil {
		return err
	}
	if joined {
		p.command[2] = p.command[1]
		return nil
	}
	p.engine[1], p.command[2], err = pipe()
	return err
}

// pipe opens a pipe with a read end that never blocks, not even when the command opens
// that end through /proc and reads first.
func pipe() (r, w int, err error) {
	ends := [2]int{-1, -1}
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, os.NewSyscallError("pipe2", err)
	}
	if _, err := unix.FcntlInt(uintptr(ends[0]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		closeFD(ends[0])
		closeFD(ends[1])
		return -1, -1, os.NewSyscallError("fcntl", err)
	}
	return ends[0], ends[1], nil
}

// close closes all descriptors that are open.
func (p *pipes) close() {
	p.closeCommandEnds()
	for i := range p.engine {
		closeFD(p.engine[i])
		p.engine[i] = -1
	}
}

// closeCommandEnds closes what only the command needs. Its output would not end otherwise.
func (p *pipes) closeCommandEnds() {
	if p.command[2] == p.command[1] {
		p.command[2] = -1
	}
	for i := range p.command {
		closeFD(p.command[i])
		p.command[i] = -1
	}
}

// closeFD closes a descriptor unless it is -1.
func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
