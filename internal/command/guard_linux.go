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

// guard is the engine's end of a command guard, which is this program, started once more: the parent of
// commands, and the subreaper of their descendants. The guard ends all of them when its socket is closed,
// as by the end of the engine.
type guard struct {
	control int // the socket
	pid     int
	user    int          // effective user ID of the engine at its start
	dir     string       // working directory of the engine at its start; "" if it has none
	ready   func()       // releases what quota has reserved for its threads
	runs    atomic.Int64 // the ID of the latest run
	users   int          // its runs, and one more while it is guards.current; guards.currentMu guards it
	retired bool         // guards.currentMu guards it
	own     bool         // of one command, which may leave processes
	nonce   uint32       // in the tags of its commands, see rlimitLocks

	silent atomic.Int64 // since when it has not answered, by the monotonic clock; 0 when it has
}

// guardSet are the guards of this process. Most commands have the current one.
type guardSet struct {
	currentMu sync.Mutex // guards the fields below, and users and retired of each guard
	current   *guard     // nil before the first command
	retired   int        // that were replaced, and have not ended
}

var guards guardSet

// silence is how long a guard may not answer until another one starts commands. On a starved machine it answers late.
const silence = 5 * time.Second

// maxRetired bounds the guards that were replaced and do not end: each starts a program on a disk that
// hangs.
const maxRetired = 4

// errSilent is the error for a guard that does not answer.
var errSilent = fmt.Errorf("the process that starts commands does not answer: %w", syscall.EAGAIN)

// errGuardEnded is the error for a guard that was killed.
var errGuardEnded = fmt.Errorf("the process that starts commands was killed: %w", syscall.EAGAIN)

// acquireGuard returns the guard for a command, or one of its own. It must be released.
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

// isUsable reports whether the guard can start another command: it has not ended, and has the user and the directory of the engine.
func (g *guard) isUsable() bool {
	if since := g.silent.Load(); since != 0 && monotonic()-time.Duration(since) >= silence || g.waitUntil(unix.POLLHUP, 0) {
		return false
	}
	dir, _ := syscall.Getwd()
	return g.user == os.Geteuid() && g.dir == dir
}

// hasAnswered notes that the guard has sent a report.
func (g *guard) hasAnswered() {
	g.ready()
	if g.silent.Load() != 0 {
		g.silent.Store(0)
	}
}

// isSilent notes that the guard has not answered in time, and lets it go on if it was stopped.
func (g *guard) isSilent() {
	g.silent.CompareAndSwap(0, int64(monotonic()))
	_ = syscall.Kill(g.pid, syscall.SIGCONT)
}

// waitUntil waits for an event of the socket, for so many milliseconds.
func (g *guard) waitUntil(event int16, timeout int) bool {
	polled := []unix.PollFd{{Fd: int32(g.control), Events: event}}
	_, _ = unix.Poll(polled, timeout)
	return polled[0].Revents&event != 0
}

// release says that a command of the guard has ended.
func (g *guard) release() {
	guards.currentMu.Lock()
	defer guards.currentMu.Unlock()
	g.releaseLocked()
}

// releaseLocked ends the guard when nothing needs it. The goroutine ends with the guard. If that was killed, the kernel has killed
// its commands, but not what these have started.
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

// startGuard starts a guard.
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

// guardEnv is the environment of a guard, which needs one processor at most and little memory.
// Preemption would interrupt its waiting, see guardian.poll.
var guardEnv = reexec.Env("GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=8MiB", "GODEBUG=asyncpreemptoff=1")

// header is the beginning of a message: of an order that the engine sends to a guard, or of a report that
// a guard sends about a run.
type header struct {
	kind  byte
	value int64
	lost  time.Duration // of a report: for how long the command could not run
}

// headerSize is the size of a header in bytes.
const headerSize = 17

// The orders, with the ID of a run.
const (
	orderStart = 's' // a plan follows, and descriptors come with it: for reports, and the standard input, output and error
	orderLong  = 'l' // the plan is in a file, which is one more descriptor
	orderKill  = 'k'
)

// startFiles is how many descriptors come with an orderStart.
const startFiles = 4

// maxOrder bounds the plan of an orderStart in bytes.
const maxOrder = 32 << 10

// The reports.
const (
	reportStarted    = 's' // the command runs; it was started at this time of the monotonic clock
	reportFailed     = 'f' // the command could not be started, for an errno
	reportKilled     = 'k' // it is killed by order
	reportUnmeasured = 'u' // likewise, but for how long it could not run cannot be read, for an errno
	reportExited     = 'x' // its wait status
	reportTooMany    = 'm' // likewise, and it was killed since it had too many processes
)

func (h header) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{h.kind}, uint64(h.value))
	return binary.LittleEndian.AppendUint64(b, uint64(h.lost))
}

func decodeHeader(b []byte) header {
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	return header{b[0], number(1), time.Duration(number(9))}
}

// readReport reads a report. Without one the guard has ended.
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

// send sends an order. It waits while the guard has not read those before, until ctx is done.
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

// start has the guard start a command. It returns the ID of the run, whose reports come from a pipe.
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

// encode returns the plan as texts that a NUL separates, which none of them has, without Stdin. Without a directory the command
// inherits that of the guard, which its user may not be allowed to enter.
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
