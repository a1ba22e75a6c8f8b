package command

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/quota"
	"github.com/sonde-probe/sonde/internal/reexec"
)

// guard is the engine's handle of a command guard: this program, started once more, as the parent of commands and the subreaper of
// their descendants. The guard kills all of them when its socket is closed, for example because the engine exits.
type guard struct {
	control int // the socket
	pid     int
	user    int          // effective user ID of the engine when the guard started
	dir     string       // working directory of the engine when the guard started; "" if it had none
	ready   func()       // releases the processes and threads that quota has reserved for the guard
	runs    atomic.Int64 // the ID of the latest run
	users   int          // its runs, plus one while it is guards.current; guards.currentMu guards it
	retired bool         // guards.currentMu guards it
	own     bool         // for a single command, which may leave processes
	nonce   uint32       // in the tags of its commands, see rlimitLocks

	silent atomic.Int64 // since when it has not responded, by the monotonic clock; 0 if it has responded
}

// guardSet are the guards of this process. Most commands use the current one.
type guardSet struct {
	currentMu sync.Mutex // guards the fields below, and users and retired of each guard
	current   *guard     // nil before the first command
	retired   int        // number of guards that were replaced and have not exited
}

var guards guardSet

// silence is how long a guard may be silent before another one replaces it. On a starved machine, a guard responds late.
const silence = 5 * time.Second

// maxRetired is the maximum number of guards that were replaced and have not exited: each of them is starting a program on a disk
// that hangs.
const maxRetired = 4

// errSilent is the error for a guard that does not respond.
var errSilent = fmt.Errorf("the process that starts commands does not answer: %w", syscall.EAGAIN)

// errGuardEnded is the error for a guard that was killed.
var errGuardEnded = fmt.Errorf("the process that starts commands was killed: %w", syscall.EAGAIN)

// acquireGuard returns the current guard, or a new one for a single command if own is set. The caller must release it.
func acquireGuard(own bool) (*guard, error) {
	guards.currentMu.Lock()
	defer guards.currentMu.Unlock()
	if g := guards.current; g != nil && !own {
		if g.isUsable() {
			g.users++
			return g, nil
		}
		if guards.retired == maxRetired {
			return nil, errSilent
		}
		guards.current, g.retired = nil, true
		guards.retired++
		g.releaseLocked()
	}
	g, err := startGuard()
	if err != nil {
		return nil, err
	}
	g.users, g.own = 1, own
	if !own {
		guards.current = g
		g.users++
	}
	return g, nil
}

// isUsable reports whether the guard can start another command: it has not exited and is not silent, and its user and directory are
// still those of the engine.
func (g *guard) isUsable() bool {
	if since := g.silent.Load(); since != 0 && monotonic()-time.Duration(since) >= silence || g.waitUntil(unix.POLLHUP, 0) {
		return false
	}
	dir, _ := syscall.Getwd()
	return g.user == os.Geteuid() && g.dir == dir
}

// hasAnswered records that the guard has sent a report.
func (g *guard) hasAnswered() {
	g.ready()
	if g.silent.Load() != 0 {
		g.silent.Store(0)
	}
}

// isSilent records that the guard has not responded in time, and resumes it in case it was stopped.
func (g *guard) isSilent() {
	g.silent.CompareAndSwap(0, int64(monotonic()))
	_ = syscall.Kill(g.pid, syscall.SIGCONT)
}

// waitUntil waits for an event on the socket, for at most timeout milliseconds, and reports whether it occurred.
func (g *guard) waitUntil(event int16, timeout int) bool {
	polled := []unix.PollFd{{Fd: int32(g.control), Events: event}}
	_, _ = unix.Poll(polled, timeout)
	return polled[0].Revents&event != 0
}

// release releases the guard after a command has exited.
func (g *guard) release() {
	guards.currentMu.Lock()
	defer guards.currentMu.Unlock()
	g.releaseLocked()
}

// releaseLocked closes the guard when nothing uses it any more. Its goroutine exits together with the guard. If the guard was
// killed, the kernel has killed its commands, but not their descendants.
func (g *guard) releaseLocked() {
	if g.users--; g.users > 0 {
		return
	}
	closeFD(g.control)
	go func() {
		if status, err := reap(g.pid, nil); status != 0 || err != nil && !g.own {
			endTagged(uint64(g.nonce))
		}
		g.ready()
		if g.retired {
			guards.currentMu.Lock()
			defer guards.currentMu.Unlock()
			guards.retired--
		}
	}()
}

// startGuard starts a new guard.
func startGuard() (_ *guard, err error) {
	release, err := quota.Processes.Reserve(guardTasks)
	if err != nil {
		return nil, err
	}
	g := &guard{control: -1, nonce: rand.Uint32N(math.MaxInt32-1) + 1, user: os.Geteuid(), ready: release}
	g.dir, _ = syscall.Getwd()
	defer func() {
		if err != nil {
			release()
			closeFD(g.control)
		}
	}()
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	g.control = sockets[0]
	defer closeFD(sockets[1])
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	g.pid, err = syscall.ForkExec(reexec.Executable, []string{guardName, fmt.Sprint(g.nonce)}, &syscall.ProcAttr{
		Env:   guardEnv,
		Files: []uintptr{null.Fd(), null.Fd(), uintptr(syscall.Stderr), uintptr(sockets[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // no signal of a terminal reaches it
	})
	if err != nil {
		return nil, fmt.Errorf("the process that starts commands: %w", os.NewSyscallError("fork/exec", err))
	}
	return g, nil
}

// guardEnv is the environment of a guard, which needs at most one processor and little memory. Preemption would interrupt its
// waits: see guardian.poll.
var guardEnv = reexec.Env("GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=8MiB", "GODEBUG=asyncpreemptoff=1")

// header is the beginning of a message: of an order from the engine to a guard, or of a report from a guard about a run.
type header struct {
	kind  byte
	value int64
	lost  time.Duration // of a report: how long the command could not run
}

// headerSize is the size of a header in bytes.
const headerSize = 17

// Orders, each with the ID of a run.
const (
	orderStart = 's' // a plan follows; its descriptors are for reports, and for standard input, output and error
	orderLong  = 'l' // the plan is in a file, whose descriptor is passed as well
	orderKill  = 'k'
)

// startFiles is the number of descriptors of an orderStart.
const startFiles = 4

// maxOrder is the maximum length of the plan in an orderStart, in bytes.
const maxOrder = 32 << 10

// Reports.
const (
	reportStarted    = 's' // the command runs; value is its start time on the monotonic clock
	reportFailed     = 'f' // the command could not be started; value is the errno
	reportKilled     = 'k' // the command is being killed by order
	reportUnmeasured = 'u' // like reportKilled, but lost could not be read; value is the errno
	reportExited     = 'x' // the command has exited; value is its wait status
	reportTooMany    = 'm' // like reportExited, after it was killed because it had too many processes
)

func (h header) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{h.kind}, uint64(h.value))
	return binary.LittleEndian.AppendUint64(b, uint64(h.lost))
}

func decodeHeader(b []byte) header {
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	return header{b[0], number(1), time.Duration(number(9))}
}

// readReport reads a report. At the end of the pipe, the guard has exited.
func readReport(fd int) (header, error) {
	var b [headerSize]byte
	for {
		n, err := unix.Read(fd, b[:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return header{}, os.NewSyscallError("read", err)
		case n < headerSize:
			return header{}, errGuardEnded
		default:
			return decodeHeader(b[:]), nil
		}
	}
}

// send sends an order. It waits until the guard has read the previous orders, or ctx is done.
func (g *guard) send(ctx context.Context, h header, text []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	message := append(h.encode(), text...)
	for {
		err := unix.Sendmsg(g.control, message, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EAGAIN && ctx.Err() == nil:
			g.waitUntil(unix.POLLOUT, 10)
		case err == unix.EAGAIN:
			return errSilent
		case err == unix.EPIPE || err == unix.ECONNRESET:
			return errGuardEnded
		case err != unix.EINTR:
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

// start has the guard start a command. It returns the ID of the run, whose reports the guard writes to a pipe.
func (g *guard) start(ctx context.Context, p Plan, reports int, stdio [3]int) (run int64, err error) {
	run = g.runs.Add(1)
	kind, text, fds := byte(orderStart), p.encode(), []int{reports, stdio[0], stdio[1], stdio[2]}
	if len(text) > maxOrder {
		file, err := openInput(text)
		if err != nil {
			return 0, err
		}
		defer closeFD(file)
		kind, text, fds = orderLong, nil, append(fds, file)
	}
	return run, g.send(ctx, header{kind: kind, value: run}, text, fds...)
}

// encode returns the plan, without Stdin, as texts separated by NUL, which no text contains. If Dir is empty, the command inherits
// the guard's directory, which its user might not be allowed to enter.
func (p Plan) encode() []byte {
	var credential string
	if c := p.Credential; c != nil {
		credential = fmt.Sprint(c.Uid, c.Gid, c.Groups)
		credential = strings.Trim(strings.ReplaceAll(credential, "[", ""), "] ")
	}
	parts := append([]string{p.Dir, credential, strconv.FormatBool(p.MayDetach), p.Path, strconv.Itoa(len(p.Words))}, p.Words...)
	return []byte(strings.Join(append(parts, p.Env...), "\x00"))
}

// decodePlan is the inverse of Plan.encode.
func decodePlan(text string) (p Plan, err error) {
	parts := strings.Split(text, "\x00")
	if len(parts) < 5 {
		return p, errors.New("the order to start is incomplete")
	}
	p.Dir, p.MayDetach, p.Path = parts[0], parts[2] == "true", parts[3]
	words, err := strconv.Atoi(parts[4])
	rest := parts[5:]
	if err != nil || words < 0 || words > len(rest) {
		return p, errors.New("the order to start is incomplete")
	}
	p.Words, p.Env = rest[:words], rest[words:]
	var ids []uint32
	for _, field := range strings.Fields(parts[1]) {
		id, err := number(field)
		if err != nil {
			return p, err
		}
		ids = append(ids, id)
	}
	if len(ids) >= 2 {
		p.Credential = &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}
	}
	return p, nil
}
