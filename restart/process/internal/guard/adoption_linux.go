package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/logfile"
)

// adoption lets engines attach, one after another, to a guard whose command outlives its engine. On a nil adoption, the
// methods describe, abandon and remove do nothing.
type adoption struct {
	adopt       Adopt
	dir         *os.File
	description *os.File // locked
	listener    *os.File
	outputs     [2]*logfile.Source // the read ends
	log         *logfile.File      // nil to discard the outputs
	dropped     atomic.Uint64      // dropped lines of the outputs since the last engine
	started     time.Time          // when the command was started; zero before that
}

// openAdoption makes this guard the only one with the name, and opens its socket.
func openAdoption(a Adopt) (_ *adoption, err error) {
	o := &adoption{adopt: a, outputs: [2]*logfile.Source{{File: os.NewFile(stdoutFile, "stdout")}, {File: os.NewFile(stderrFile, "stderr")}}}
	if a.Log != nil {
		o.log = logfile.New(*a.Log, &o.dropped, func(error) {}) // the next engine reports how many lines were dropped
	}
	if o.dir, err = os.Open(a.Dir); err != nil {
		return nil, err
	}
	if o.description, err = lockFile(o.path(DescriptionEnding)); err != nil {
		return nil, err
	}
	if err = o.description.Truncate(0); err != nil { // it may come from a guard that was killed
		o.abandon()
		return nil, err
	}
	if o.listener, err = listen(o.dir, a.Name+SocketEnding); err != nil {
		o.abandon()
		return nil, err
	}
	return o, nil
}

// abandon removes and unlocks the files.
func (a *adoption) abandon() {
	if a == nil {
		return
	}
	a.remove()
	_ = a.description.Close()
	_ = a.listener.Close()
}

func (a *adoption) path(ending string) string { return InDir(a.dir, a.adopt.Name+ending) }

const (
	// lockTries and lockPause limit how long a guard waits for the lock of its name: an engine holds the lock while it
	// removes the files of a killed guard.
	lockTries = 20
	lockPause = 10 * time.Millisecond
)

// lockFile opens and locks a file, and creates it if necessary.
func lockFile(path string) (*os.File, error) {
	for tries := 1; ; tries++ {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		locked, named, err := Lock(f)
		if locked && named {
			return f, nil
		}
		_ = f.Close()
		switch {
		case err != nil:
			return nil, err
		case tries == lockTries:
			return nil, fmt.Errorf("another guard of the target runs: %s is locked", path)
		}
		time.Sleep(lockPause)
	}
}

// Lock locks a file until it is closed, unless another process has locked it. It also reports whether the file still
// has a name.
func Lock(f *os.File) (locked, named bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		return false, false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	locked = err == nil
	named, err = isNamed(f)
	return locked && err == nil, named, err
}

// isNamed reports whether a file still has a name, so that another process can open it.
func isNamed(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	return stat.Nlink > 0, nil
}

// listen opens a socket in a directory. It replaces the socket file of a guard that was killed.
func listen(dir *os.File, name string) (*os.File, error) {
	path := InDir(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// InDir returns a path of a file that is short enough for a socket's address, and valid until the directory is closed.
func InDir(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}

// describe appends a description of the command to the file. Without an ID, the command is about to be started.
func (a *adoption) describe(id string, tree Tree) error {
	if a == nil {
		return nil
	}
	if id != "" && a.started.IsZero() {
		a.started = time.Now()
	}
	d := Description{Target: a.adopt.Target, ID: id, Digest: a.adopt.Digest, Started: a.started, Grace: a.adopt.Grace, StopSignal: a.adopt.StopSignal, Tree: tree}
	return json.NewEncoder(a.description).Encode(d) // one write
}

// isRemoved reports whether the description was removed, so that no engine can find the guard. It is false for a
// directory that was only moved: an engine with another state file can find it.
func (a *adoption) isRemoved() bool {
	named, err := isNamed(a.description)
	return err == nil && !named
}

// remove removes the files, unless they were removed already: files that exist now may then belong to another guard.
func (a *adoption) remove() {
	if a != nil && !a.isRemoved() {
		_ = os.Remove(a.path(SocketEnding))
		_ = os.Remove(a.path(DescriptionEnding))
	}
}

// acceptPause is the pause before the next attempt to accept an engine after an error, such as too many open files.
const acceptPause = time.Second

// accept returns the next engine that attaches. It returns false if no engine can find the guard any more, or if none
// has attached within Adopt.Linger after the command ended. While it waits, it reads the outputs, so that the command
// is never blocked.
func (a *adoption) accept(hello Report, ended func() bool) (e engine, ok bool) {
	for {
		socket := a.nextEngine(ended)
		if socket == nil {
			return engine{}, false
		}
		if a.greet(socket, hello) == nil {
			return newEngine(socket), true
		}
		_ = socket.Close()
	}
}

// nextEngine waits for a connection. It returns nil if accept must return false.
func (a *adoption) nextEngine(ended func() bool) *os.File {
	defer a.readOutputs()()
	var since time.Time // when the command was found to have ended
	for !a.isRemoved() {
		if now := time.Now(); !ended() {
		} else if since.IsZero() {
			since = now
		} else if now.Sub(since) >= a.adopt.Linger {
			return nil
		}
		_ = a.listener.SetReadDeadline(time.Now().Add(a.adopt.Interval))
		socket, err := acceptFrom(a.listener)
		if err == nil {
			return socket
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			time.Sleep(acceptPause)
		}
	}
	return nil
}

// acceptFrom waits for a connection to a listener.
func acceptFrom(listener *os.File) (*os.File, error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var acceptErr error
	err = raw.Read(func(from uintptr) (done bool) {
		for {
			fd, _, acceptErr = unix.Accept4(int(from), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if acceptErr != unix.EINTR && acceptErr != unix.ECONNABORTED {
				return acceptErr != unix.EAGAIN
			}
		}
	})
	if err := errors.Join(err, acceptErr); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "engine"), nil
}

// readOutputs reads the outputs until stop is called. It writes them to the log file, or discards them and counts their
// lines.
func (a *adoption) readOutputs() (stop func()) {
	var readers sync.WaitGroup
	for _, output := range a.outputs {
		output.Resume()
		readers.Go(func() { a.readOutput(output) })
	}
	return func() {
		for _, output := range a.outputs {
			output.Stop(0)
		}
		readers.Wait()
		if a.log != nil {
			a.log.Flush(a.adopt.Flush)
		}
	}
}

func (a *adoption) readOutput(output *logfile.Source) {
	if a.log == nil {
		_, _ = io.Copy(logfile.Counter{Dropped: &a.dropped}, output)
		return
	}
	lines := logfile.Lines{File: a.log}
	output.Copy(&lines)
	lines.EndLine()
}

// greet sends the first report and the outputs to an engine, which must run as the same user.
func (a *adoption) greet(engine *os.File, hello Report) (err error) {
	hello.Dropped = a.dropped.Swap(0)
	defer func() {
		if err != nil {
			a.dropped.Add(hello.Dropped)
		}
	}()
	text, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	var fds []int
	for _, output := range a.outputs {
		fd, err := Descriptor(output)
		if err != nil {
			return err
		}
		fds = append(fds, int(fd))
	}
	to, err := Descriptor(engine)
	if err != nil {
		return err
	}
	if _, err := Peer(to); err != nil {
		return err
	}
	return unix.Sendmsg(int(to), append(text, '\n'), unix.UnixRights(fds...), nil, 0)
}

// Peer returns the process ID of the other end of a socket, which must belong to this user.
func Peer(socket uintptr) (pid int, err error) {
	cred, err := unix.GetsockoptUcred(int(socket), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("process %d of user %d is not trusted", cred.Pid, cred.Uid)
	}
	return int(cred.Pid), nil
}
