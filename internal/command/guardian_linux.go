package command

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/quota"
)

// guardName is the argv[0] of a command guard.
const guardName = "sonde-command-guard"

// controlFile is the descriptor of a guard's socket.
const controlFile = 3

// guardTasks is the number of processes and threads of a guard: those of the Go runtime, and idleThreads, since the runtime aborts
// a guard if a further thread is refused.
const (
	idleThreads = 3
	guardTasks  = 7 + idleThreads
)

func init() {
	if len(os.Args) != 2 || os.Args[0] != guardName {
		return
	}
	runtime.LockOSThread() // it is the parent of all commands: see Attr
	CloseInherited(controlFile)
	syscall.CloseOnExec(controlFile)
	quota.MakeThreads(idleThreads)
	// Caught, not ignored, because commands would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	if err := serveEngine(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveEngine runs a guard until its engine has exited. The argument identifies the guard.
func serveEngine(self string) error {
	nonce, err := number(self)
	if err != nil {
		return err
	}
	g, err := newGuardian(uint64(nonce))
	if err != nil {
		return err
	}
	return g.serve()
}

// guardian is a guard. A single goroutine does all its work.
type guardian struct {
	epoll  int
	byPid  map[int]*guarded // the commands that have not exited
	byFD   map[int]*guarded
	byRun  map[int64]*guarded
	ending bool // the engine has exited
	orphans
	text [maxOrder + headerSize]byte
}

// guarded is a command of a guardian.
type guarded struct {
	run        int64
	reports    int // a descriptor
	pid, pidfd int
	tag        uint64 // see rlimitLocks
	mayDetach  bool   // see Plan
	killed     bool
	tooMany    bool // it was killed because it had too many processes

	killedAt time.Time     // by order; zero if its wait does not count
	waited   time.Duration // how long its first thread had waited until then
}

func newGuardian(nonce uint64) (*guardian, error) {
	if err := BecomeSubreaper(); err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	g := &guardian{epoll: epoll, byPid: map[int]*guarded{}, byFD: map[int]*guarded{}, byRun: map[int64]*guarded{}, orphans: newOrphans(nonce)}
	return g, g.watch(controlFile)
}

func (g *guardian) watch(fd int) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
}

// lookEvery is how often a guard checks the running commands, and the processes that were killed.
const lookEvery = 100 * time.Millisecond

// serve starts and kills commands until the engine has exited and no process is left.
func (g *guardian) serve() error {
	events := make([]unix.EpollEvent, 64)
	looked, pause := time.Now(), time.Duration(-1)
	for !g.ending || len(g.byPid) > 0 || g.left {
		wasLeft := g.left
		n, err := g.poll(events, pause)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("epoll_wait", err)
		}
		for _, e := range events[:max(n, 0)] {
			g.handle(int(e.Fd))
		}
		if now := time.Now(); now.Sub(looked) >= lookEvery || wasLeft && now.Sub(looked) >= pause {
			looked = now
			g.look()
		}
		switch {
		case g.left && !wasLeft:
			pause = time.Millisecond
		case g.left:
			pause = min(2*pause, lookEvery)
		case len(g.byPid) > 0:
			pause = lookEvery
		default:
			pause = -1
		}
	}
	return nil
}

// poll waits for events; with a negative timeout, indefinitely. For the first 50 ms, the Go runtime is not told that this thread
// waits: its reaction would cost a tenth of a short command.
func (g *guardian) poll(events []unix.EpollEvent, timeout time.Duration) (int, error) {
	const short = 50
	ms := int(timeout / time.Millisecond)
	if timeout < 0 {
		ms = -1
	}
	first := short
	if ms >= 0 {
		first = min(short, ms)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(g.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(first), 0, 0)
	switch {
	case errno != 0:
		return 0, errno
	case n > 0 || first == ms:
		return int(n), nil
	}
	return unix.EpollWait(g.epoll, events, max(ms-first, -1))
}

// handle handles an event on a descriptor.
func (g *guardian) handle(fd int) {
	if c := g.byFD[fd]; c != nil {
		g.exited(c)
		return
	}
	for fd == controlFile && g.receive() {
	}
}

// receive executes an order, and reports whether there was one.
func (g *guardian) receive() bool {
	var rights [64]byte // for five descriptors
	n, nrights, _, _, err := unix.Recvmsg(controlFile, g.text[:], rights[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	switch {
	case err != nil:
		return err == unix.EINTR
	case n < headerSize:
		g.end()
		return false
	}
	var fds []int // empty if this process has too many open: then the reports of the run end at once
	if messages, err := unix.ParseSocketControlMessage(rights[:nrights]); err == nil && len(messages) == 1 {
		fds, _ = unix.ParseUnixRights(&messages[0])
	}
	h := decodeHeader(g.text[:])
	switch {
	case h.kind == orderKill:
		g.kill(g.byRun[h.value])
	case len(fds) >= startFiles:
		g.start(h.value, g.text[headerSize:n], fds)
		fds = fds[1:]
	}
	for _, fd := range fds {
		closeFD(fd)
	}
	return true
}

// end kills all commands, since the engine has exited.
func (g *guardian) end() {
	g.ending = true
	_ = unix.EpollCtl(g.epoll, unix.EPOLL_CTL_DEL, controlFile, nil)
	for _, c := range g.byPid {
		c.kill()
	}
	g.sweep(g.byPid)
}

// start starts a command. The run takes over fds[0], the descriptor for reports.
func (g *guardian) start(run int64, text []byte, fds []int) {
	c := &guarded{run: run, reports: fds[0], pidfd: -1}
	if err := g.spawn(c, text, fds); err != nil {
		errno := unix.EINVAL
		_ = errors.As(err, &errno)
		c.report(reportFailed, int64(errno), 0)
		closeFD(c.reports)
		return
	}
	if len(g.byPid) == 0 {
		g.setCalm()
	}
	g.byPid[c.pid], g.byFD[c.pidfd], g.byRun[c.run] = c, c, c
}

func (g *guardian) spawn(c *guarded, text []byte, fds []int) (err error) {
	if len(fds) > startFiles {
		file := os.NewFile(uintptr(fds[startFiles]), "order")
		fds[startFiles] = -1
		defer file.Close()
		if text, err = io.ReadAll(io.NewSectionReader(file, 0, math.MaxInt64)); err != nil {
			return err
		}
	}
	p, err := decodePlan(string(text))
	if err != nil {
		return err
	}
	c.tag, c.mayDetach = g.tagNext(), p.MayDetach
	attr := Attr(p.Credential)
	attr.PidFD = &c.pidfd
	startedAt := monotonic()
	c.pid, err = syscall.ForkExec(p.Path, p.Words, &syscall.ProcAttr{
		Dir: p.Dir, Env: p.Env, Sys: attr, Files: []uintptr{uintptr(fds[1]), uintptr(fds[2]), uintptr(fds[3])},
	})
	if err != nil {
		return err
	}
	if err = g.watch(c.pidfd); err != nil {
		KillGroup(c.pid)
		_, _ = reap(c.pid, nil)
		closeFD(c.pidfd)
		return err
	}
	c.report(reportStarted, int64(startedAt), 0)
	return nil
}

// report sends a report. A write error is ignored: the engine has exited.
func (c *guarded) report(kind byte, value int64, lost time.Duration) {
	_, _ = unix.Write(c.reports, header{kind, value, lost}.encode())
}

func (c *guarded) kill() {
	c.killed = true
	Signal(c.pid, syscall.SIGKILL)
}

// kill kills a command by order, unless it has exited.
func (g *guardian) kill(c *guarded) {
	if c == nil {
		return
	}
	var delays delayReader
	lost := delays.treeDelay(c.pid)
	var errno unix.Errno
	if errors.As(delays.short, &errno) {
		c.report(reportUnmeasured, int64(errno), 0)
	} else {
		c.report(reportKilled, 0, lost)
	}
	if !delays.byItself {
		c.killedAt, c.waited = time.Now(), delays.times(c.task()).waited
	}
	c.kill()
}

// exited handles the exit of a command. It kills the rest of its process group, and its other descendants, whose parent is now this
// process.
func (g *guardian) exited(c *guarded) {
	KillGroup(c.pid)
	var delays delayReader
	var usage syscall.Rusage
	last := delays.times(c.task())
	status, _ := reap(c.pid, &usage)
	delete(g.byPid, c.pid)
	delete(g.byFD, c.pidfd)
	delete(g.byRun, c.run)
	closeFD(c.pidfd)
	isDetached := c.mayDetach && status == 0 // even if it was to be killed meanwhile
	if !isDetached {
		g.sweep(g.byPid)
	}
	kind := byte(reportExited)
	if c.tooMany {
		kind = reportTooMany
	}
	c.report(kind, int64(status), c.lostAtExit(last, &usage))
	closeFD(c.reports)
	if isDetached {
		os.Exit(0) // its descendants continue without a guard
	}
}

// lostAtExit returns how long a command that has exited could not run, minus the time that was reported when it was killed. A
// command that was killed by order can only lose more while its first thread waits for a processor to exit.
func (c *guarded) lostAtExit(last taskTimes, usage *syscall.Rusage) time.Duration {
	switch {
	case !c.killedAt.IsZero():
		return max(0, last.waited-c.waited-time.Since(c.killedAt))
	case c.killed:
		return 0
	}
	return last.lost(time.Duration(usage.Utime.Nano() + usage.Stime.Nano()))
}

// task returns the /proc directory of its first thread.
func (c *guarded) task() string { return "/proc/" + strconv.Itoa(c.pid) }

// look kills commands that nobody waits for any more, a command that has too many processes, and orphans.
func (g *guardian) look() {
	for _, c := range g.byPid {
		polled := []unix.PollFd{{Fd: int32(c.reports)}}
		if n, _ := unix.Poll(polled, 0); n > 0 || c.killed {
			c.kill()
		}
	}
	if c := g.findTooMany(g.byPid); c != nil {
		c.tooMany = true
		c.kill()
	}
	g.sweep(g.byPid)
}
