package command

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipes are the descriptors of a command's standard input, output and error. They are not registered with Go's poller, which would
// cost more than the pipes themselves. A closed descriptor is -1.
type pipes struct {
	command [3]int // the input and the write ends; the last two may be equal
	engine  [2]int // the read ends; the second is -1 if one pipe serves both outputs
}

// openPipes opens a file with the input, and one pipe for both outputs if they are joined, which keeps their order, otherwise two.
func openPipes(input []byte, joined bool) (pipes, error) {
	p := pipes{command: [3]int{-1, -1, -1}, engine: [2]int{-1, -1}}
	err := p.open(input, joined)
	if err != nil {
		p.close()
	}
	return p, err
}

func (p *pipes) open(input []byte, joined bool) (err error) {
	if p.command[0], err = openInput(input); err != nil {
		return err
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

// openInput opens a file with the input of a command: a memory file, or /dev/null. Unlike a pipe, a file does not block the engine
// if the command reads slowly or not at all.
func openInput(input []byte) (fd int, err error) {
	if len(input) == 0 {
		if fd, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return -1, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
		}
		return fd, nil
	}
	if fd, err = unix.MemfdCreate("stdin", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL); err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	for at := 0; at < len(input); {
		n, err := unix.Pwrite(fd, input[at:], int64(at)) // leaves the file offset at the beginning
		if err != nil && err != unix.EINTR {
			closeFD(fd)
			return -1, os.NewSyscallError("pwrite", err)
		}
		at += max(n, 0)
	}
	return fd, nil
}

// pipe opens a pipe with a read end that never blocks, not even if the command opens that end through /proc and reads first.
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

// close closes all open descriptors.
func (p *pipes) close() {
	p.closeCommandEnds()
	for i := range p.engine {
		closeFD(p.engine[i])
		p.engine[i] = -1
	}
}

// closeCommandEnds closes the descriptors that only the command needs. Otherwise the engine would never read the end of the output.
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
