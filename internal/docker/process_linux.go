package docker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/command"
)

// Process is a process of a container. A signal to it never reaches another process that has got its number later.
type Process struct {
	pid int
	fd  int
}

// startSlack is the tolerance for the start time of a process, compared to the time that the runtime reports.
const startSlack = 2 * time.Second

// errExited means that there is no such process: it has exited, or the runtime runs in another PID namespace.
var errExited = errors.New("has exited")

var errForeign = errors.New("is not a process of the container in this PID namespace: the runtime runs in another one, or on another machine")

// openProcess opens the process with the ID that the runtime reports, if it belongs to the container: its control group
// has the ID of the container or, without control groups, it is in another PID namespace and was started at the time
// began.
func openProcess(pid int, container string, began time.Time) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errExited
	}
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	p := &Process{pid: pid, fd: fd}
	isOf, isZombie := p.isOf(container, began), p.isZombie() // a zombie has no control group; checked in this order
	switch {
	case isZombie:
		err = errExited
	case !isOf:
		err = errForeign
	default:
		return p, nil
	}
	p.Close()
	return nil, err
}

// Close closes the descriptor of the process.
func (p *Process) Close() { _ = unix.Close(p.fd) }

// isOf reports whether the process belongs to the container.
func (p *Process) isOf(container string, began time.Time) bool {
	groups, _ := os.ReadFile(p.file("cgroup"))
	if len(container) >= 12 && bytes.Contains(groups, []byte(container)) {
		return true
	}
	own, err := os.Readlink("/proc/self/ns/pid")
	its, err2 := os.Readlink(p.file("ns/pid"))
	started, ok := p.started()
	return err == nil && err2 == nil && own != its && ok && started.After(began.Add(-startSlack)) && started.Before(began.Add(startSlack))
}

// isZombie reports whether the process has exited and was not reaped yet.
func (p *Process) isZombie() bool {
	stat, err := os.ReadFile(p.file("stat"))
	fields := command.StatFields(stat)
	return err != nil || len(fields) == 0 || fields[0][0] == 'Z' || fields[0][0] == 'X'
}

// started returns the start time of the process.
func (p *Process) started() (t time.Time, ok bool) {
	stat, _ := os.ReadFile(p.file("stat"))
	fields := command.StatFields(stat)
	const startTime = 22 - 3 // of proc_pid_stat(5), counted from the state
	if len(fields) <= startTime {
		return t, false
	}
	ticks, err := strconv.ParseInt(string(fields[startTime]), 10, 64)
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return t, false
	}
	const perSecond = 100 // USER_HZ
	age := time.Duration(now.Nano()) - time.Duration(ticks)*time.Second/perSecond
	return time.Now().Add(-age), true
}

func (p *Process) file(name string) string { return fmt.Sprintf("/proc/%d/%s", p.pid, name) }

// Signal sends a signal. It returns no error if the process has exited.
func (p *Process) Signal(s syscall.Signal) error {
	err := unix.PidfdSendSignal(p.fd, s, nil, 0)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return os.NewSyscallError("pidfd_send_signal", err)
}

// maxTree is the maximum number of descendants that killTree finds.
const maxTree = 10_000

// killTree kills the process and its descendants. It stops them first, so that none of them starts another one in the
// meantime.
func (p *Process) killTree() error {
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	tree := []*Process{p}
	for n := 0; n < len(tree) && n < maxTree; n++ {
		for _, pid := range command.Children(tree[n].pid) {
			if child := childOf(tree[n].pid, pid); child != nil {
				tree = append(tree, child)
			}
		}
	}
	var first error
	for _, member := range tree {
		if err := member.Signal(unix.SIGKILL); first == nil {
			first = err
		}
		if member != p {
			member.Close()
		}
	}
	return first
}

// childOf stops a child and returns it, or nil if it has exited.
func childOf(parent, pid int) *Process {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	child := &Process{pid: pid, fd: fd}
	stat, _ := os.ReadFile(child.file("stat"))
	fields := command.StatFields(stat)
	if len(fields) < 2 || string(fields[1]) != strconv.Itoa(parent) || child.Signal(unix.SIGSTOP) != nil {
		child.Close()
		return nil
	}
	return child
}

// SignalToStop returns the stop signal of the container; SIGTERM by default.
func (c Container) SignalToStop() syscall.Signal {
	const last = 64 // SIGRTMAX
	if n, err := strconv.Atoi(c.StopSignal); err == nil && n > 0 && n <= last {
		return syscall.Signal(n)
	}
	if s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(c.StopSignal), "SIG")); s != 0 {
		return s
	}
	return syscall.SIGTERM
}
