package process

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// Limits of an instance.
const (
	maxOutput    = 4 << 10                // bytes; as MaxContainerTerminationMessageLength in k8s.io/kubernetes/pkg/kubelet/container
	drain        = 200 * time.Millisecond // for output pipes that another process holds open after the end
	orderTimeout = 5 * time.Second        // for a guard that does not read
	killTimeout  = 5 * time.Second        // for a command to die when ctx is done
)

// Run runs the command, and returns when it and all its descendants have exited.
// It calls began with the instance's ID once the process has started: the process ID
// and a random suffix, "4711-k5zq2m7xwa". A duration received from end terminates the
// process with that grace period.
//
// If the process does not exit after SIGKILL, Run returns five seconds after ctx is
// done. The process's guard, a process that watches it for the engine, continues to try
// to kill it.
func (d *Driver) Run(ctx context.Context, began func(id string), end <-chan time.Duration) restart.Exit {
	i, err := d.start(ctx)
	if err != nil {
		return restart.Exit{Code: -1, Err: err}
	}
	defer i.close()
	return i.watch(ctx, began, end)
}

// instance is the engine's side of one run of a command.
type instance struct {
	log     *slog.Logger
	guard   guardProcess
	tail    *command.Tail
	streams [2]*lineLogger

	lifeline lifeline // closing it makes the guard kill the command, unless it outlives the engine
	orders   *json.Encoder
	reports  <-chan report // closed when the guard has ended

	pid     int // the command's process ID; 0 before it runs
	cgroup  cgroup
	force   *time.Timer      // fires when the grace period is over
	endBy   time.Time        // when the grace period is over; zero without a request to end
	abandon <-chan time.Time // fires when a process cannot be killed
}

// lifeline carries orders to a guard.
type lifeline interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// guardProcess is a guard: a child, or one that an earlier engine has started.
type guardProcess interface {
	pid() int
	wait() string // returns how it has exited, when its output was read
}

// childGuard is a guard that this engine has started.
type childGuard struct{ *exec.Cmd }

func (g childGuard) pid() int { return g.Process.Pid }

func (g childGuard) wait() string {
	_ = g.Wait()
	return g.ProcessState.String()
}

// start starts a guard and has it start the command. If an earlier engine has left an
// instance of the target running, start takes it over, or ends it first.
func (d *Driver) start(ctx context.Context) (*instance, error) {
	if i, err := d.takeOver(ctx); i != nil || err != nil {
		return i, err
	}
	plan, err := d.command.Plan()
	if err != nil {
		return nil, err
	}
	if plan.Dir, err = filepath.Abs(plan.Dir); err != nil { // the guard's own directory is another
		return nil, err
	}
	if d.config.Adopt {
		return d.startAdoptable(plan)
	}
	i := d.newInstance()
	if err := i.startGuard(d.config.Target, i.streams[0], i.streams[1]); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	i.order(order{Start: &start{Plan: plan, Cgroup: !d.config.NoCgroup}})
	return i, nil
}

func (d *Driver) newInstance() *instance {
	i := &instance{log: d.config.Log, tail: &command.Tail{Max: maxOutput}, force: time.NewTimer(0)}
	i.force.Stop()
	for n, name := range []string{"stdout", "stderr"} {
		i.streams[n] = &lineLogger{log: d.config.Log.With("stream", name), tail: i.tail, perSecond: d.config.LinesPerSecond}
	}
	return i
}

// startGuard starts a guard, with the outputs that its command inherits; nil discards.
func (i *instance) startGuard(target string, stdout, stderr io.Writer) error {
	orders, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	defer orders.Close()
	reports, reportsWriter, err := os.Pipe()
	if err != nil {
		return errors.Join(err, lifeline.Close())
	}
	defer reportsWriter.Close()
	guard := guardCommand(target)
	guard.Stdout, guard.Stderr = stdout, stderr
	guard.ExtraFiles = []*os.File{orders, reportsWriter} // ordersFile, reportsFile
	if err := guard.Start(); err != nil {
		return errors.Join(err, lifeline.Close(), reports.Close())
	}
	i.guard = childGuard{guard}
	i.lifeline, i.orders, i.reports = lifeline, json.NewEncoder(lifeline), readReports(reports)
	return nil
}

// guardCommand returns the command of a guard: this program. It has a session of its
// own, so that no signal of a terminal reaches it. It needs only one thread and a
// small heap, and must not wait a second before it ends under the race detector.
func guardCommand(target string) *exec.Cmd {
	return &exec.Cmd{
		Path:        executable(),
		Args:        []string{guardName, target},
		Env:         []string{"GOMAXPROCS=1", "GOGC=20", "GORACE=atexit_sleep_ms=0"},
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   drain,
	}
}

// readReports returns a guard's reports as they arrive. The channel has room for all
// of them, two at most, so that the goroutine ends with the guard.
func readReports(from io.ReadCloser) <-chan report {
	reports := make(chan report, 2)
	go func() {
		defer close(reports)
		defer from.Close()
		for d := json.NewDecoder(from); ; {
			var r report
			if d.Decode(&r) != nil {
				return
			}
			reports <- r
		}
	}()
	return reports
}

func (i *instance) watch(ctx context.Context, began func(id string), end <-chan time.Duration) restart.Exit {
	done := ctx.Done()
	for {
		select {
		case r, alive := <-i.reports:
			switch {
			case !alive:
				return i.guardKilled()
			case r.Error != "":
				return i.exit(-1, errors.New(r.Error))
			case r.Ended:
				return i.exit(r.Code, nil)
			}
			i.pid, i.cgroup = r.Pid, r.Cgroup
			began(cmp.Or(r.ID, newID(r.Pid)))
		case grace, open := <-end:
			if !open {
				end = nil
				continue
			}
			i.endWithin(grace)
		case <-i.force.C:
			i.order(order{Signal: kill})
		case <-done:
			if context.Cause(ctx) == restart.ErrReleased {
				return restart.Exit{Err: restart.ErrReleased}
			}
			done = nil
			i.order(order{Signal: kill})
			i.abandon = time.After(killTimeout)
		case <-i.abandon:
			return i.giveUp()
		}
	}
}

// newID returns the ID of an instance that has started.
func newID(pid int) string { return instanceID(pid, newSuffix()) }

func newSuffix() string { return strings.ToLower(rand.Text()[:10]) }

func instanceID(pid int, suffix string) string { return strconv.Itoa(pid) + "-" + suffix }

// endWithin sends SIGTERM to the command, and sets the time of its kill. A later
// call can only make that earlier, or repeat a kill that had no effect.
func (i *instance) endWithin(grace time.Duration) {
	by := time.Now().Add(max(grace, 0))
	first := i.endBy.IsZero()
	if first {
		i.order(order{Signal: terminate})
	}
	if first || by.Before(i.endBy) {
		i.endBy = by
	}
	i.force.Reset(max(time.Until(i.endBy), 0))
}

// order sends an order to the guard. A guard that does not read has exited, which
// closes its reports, or was stopped (SIGSTOP), and will find the lifeline closed.
func (i *instance) order(o order) {
	_ = i.lifeline.SetWriteDeadline(time.Now().Add(orderTimeout))
	if err := i.orders.Encode(o); err != nil && !errors.Is(err, syscall.EPIPE) {
		i.log.Warn("signal not delivered: the guard process does not respond", "signal", o.Signal, "guard_pid", i.guard.pid(), "pid", i.pid, "error", err)
	}
}

// exit waits for a guard that has sent its last report.
func (i *instance) exit(code int, err error) restart.Exit {
	_ = i.guard.wait() // its reports say more than its status
	for _, stream := range i.streams {
		stream.end()
	}
	return restart.Exit{Code: code, Err: err, Output: probe.CleanText(i.tail.String(), maxOutput)}
}

// guardKilled kills an instance whose guard was killed before the command exited.
// The kernel then kills the command; this kills its process group and its cgroup.
func (i *instance) guardKilled() restart.Exit {
	if i.pid == 0 {
		how := i.guard.wait()
		return i.exit(-1, fmt.Errorf("guard ended before it started the command: %s", how))
	}
	command.KillGroup(i.pid)
	i.cgroup.kill()
	i.cgroup.remove()
	i.log.Warn("guard process was killed, killing the command it guarded", "guard_pid", i.guard.pid(), "pid", i.pid)
	return i.exit(128+int(syscall.SIGKILL), nil)
}

// giveUp returns before the exit of a command that has not exited after SIGKILL. Its
// guard goes on killing it, because close breaks the lifeline.
func (i *instance) giveUp() restart.Exit {
	i.log.Error("process did not exit after SIGKILL, its guard process keeps trying to kill it", "guard_pid", i.guard.pid(), "pid", i.pid)
	go i.guard.wait() // the one goroutine that may outlive Run
	return restart.Exit{Code: 128 + int(syscall.SIGKILL), Output: probe.CleanText(i.tail.String(), maxOutput)}
}

func (i *instance) close() {
	i.force.Stop()
	if g, ok := i.guard.(interface{ detach() }); ok {
		g.detach()
	}
	_ = i.lifeline.Close()
}

// executable returns the file of this program, even when it was replaced after the
// start.
func executable() string {
	const proc = "/proc/self/exe"
	if _, err := os.Stat(proc); err == nil {
		return proc
	}
	path, _ := os.Executable()
	return cmp.Or(path, os.Args[0])
}
