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

// Bounds of a life.
const (
	maxLastWords = 4 << 10                // bytes; as MaxContainerTerminationMessageLength in k8s.io/kubernetes/pkg/kubelet/container
	drain        = 200 * time.Millisecond // for output that somebody else holds open after the end
	orderTimeout = 5 * time.Second        // for a guard that does not read
	killTimeout  = 5 * time.Second        // for a command to die when ctx is done
)

// Run makes one life of the command and returns when it and everything it had
// started has ended. The ID is the process ID and a random text: "4711-k5zq2m7xwa".
//
// A process that cannot be killed is waited for as long as ctx lives, and five
// seconds more; then it is left to its guard, which goes on killing.
func (d *Driver) Run(ctx context.Context, began func(id string), end <-chan time.Duration) restart.Exit {
	l, err := d.start()
	if err != nil {
		return restart.Exit{Code: -1, Err: err}
	}
	defer l.close()
	return l.watch(ctx, began, end)
}

// life is one life of a command, seen by the engine.
type life struct {
	log     *slog.Logger
	guard   *exec.Cmd
	words   *command.Tail
	streams [2]*lines

	lifeline *os.File // its end ends the life
	orders   *json.Encoder
	reports  <-chan report // closed when the guard has ended

	pid     int // of the command; 0 before it runs
	cgroup  cgroup
	force   *time.Timer // when the grace period is over
	endBy   time.Time   // likewise; zero when nobody has asked to end
	abandon <-chan time.Time
}

// start starts a guard and has it start the command.
func (d *Driver) start() (*life, error) {
	plan, err := d.command.Plan()
	if err != nil {
		return nil, err
	}
	if plan.Dir, err = filepath.Abs(plan.Dir); err != nil { // the guard's own directory is another
		return nil, err
	}
	l := d.newLife()
	if err := l.startGuard(d.config.Target); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	l.order(order{Start: &start{Plan: plan, Cgroup: !d.config.NoCgroup}})
	return l, nil
}

func (d *Driver) newLife() *life {
	l := &life{log: d.config.Log, words: &command.Tail{Max: maxLastWords}, force: time.NewTimer(0)}
	l.force.Stop()
	for i, name := range []string{"stdout", "stderr"} {
		l.streams[i] = &lines{log: d.config.Log.With("stream", name), words: l.words, perSecond: d.config.LinesPerSecond}
	}
	return l
}

func (l *life) startGuard(target string) error {
	orders, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	defer orders.Close()
	reports, theirs, err := os.Pipe()
	if err != nil {
		return errors.Join(err, lifeline.Close())
	}
	defer theirs.Close()
	l.guard = guardCommand(target)
	l.guard.Stdout, l.guard.Stderr = l.streams[0], l.streams[1]
	l.guard.ExtraFiles = []*os.File{orders, theirs} // ordersFile, reportsFile
	if err := l.guard.Start(); err != nil {
		return errors.Join(err, lifeline.Close(), reports.Close())
	}
	l.lifeline, l.orders, l.reports = lifeline, json.NewEncoder(lifeline), listen(reports)
	return nil
}

// guardCommand is this program again. Its session is its own, so that no
// terminal's signal reaches it. One thread and a small heap are all it needs, and
// under the race detector it must not wait a second before it ends.
func guardCommand(target string) *exec.Cmd {
	return &exec.Cmd{
		Path:        self(),
		Args:        []string{guardName, target},
		Env:         []string{"GOMAXPROCS=1", "GOGC=20", "GORACE=atexit_sleep_ms=0"},
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   drain,
	}
}

// listen returns a guard's reports as they come. There are two of them at most,
// so that the goroutine never outlives the guard.
func listen(from io.ReadCloser) <-chan report {
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

func (l *life) watch(ctx context.Context, began func(id string), end <-chan time.Duration) restart.Exit {
	done := ctx.Done()
	for {
		select {
		case r, alive := <-l.reports:
			switch {
			case !alive:
				return l.lost()
			case r.Error != "":
				return l.exit(-1, errors.New(r.Error))
			case r.Ended:
				return l.exit(r.Code, nil)
			}
			l.pid, l.cgroup = r.Pid, r.Cgroup
			began(newID(r.Pid))
		case grace, open := <-end:
			if !open {
				end = nil
				continue
			}
			l.endWithin(grace)
		case <-l.force.C:
			l.order(order{Signal: byForce})
		case <-done:
			done = nil
			l.order(order{Signal: byForce})
			l.abandon = time.After(killTimeout)
		case <-l.abandon:
			return l.leave()
		}
	}
}

// newID returns an ID for the life that has just begun.
func newID(pid int) string { return strconv.Itoa(pid) + "-" + strings.ToLower(rand.Text()[:10]) }

// endWithin asks the command to end, and sets the time of its kill. A later call
// can only bring that forward, or repeat a kill that did not succeed.
func (l *life) endWithin(grace time.Duration) {
	by := time.Now().Add(max(grace, 0))
	first := l.endBy.IsZero()
	if first {
		l.order(order{Signal: politely})
	}
	if first || by.Before(l.endBy) {
		l.endBy = by
	}
	l.force.Reset(max(time.Until(l.endBy), 0))
}

// order tells the guard what to do. A guard that cannot be told has ended, which
// its reports tell, or is stopped, and sees later that the lifeline is closed.
func (l *life) order(o order) {
	_ = l.lifeline.SetWriteDeadline(time.Now().Add(orderTimeout))
	if err := l.orders.Encode(o); err != nil && !errors.Is(err, syscall.EPIPE) {
		l.log.Warn("the guard takes no orders", "guard", l.guard.Process.Pid, "error", err)
	}
}

// exit takes leave of a guard that has nothing more to do.
func (l *life) exit(code int, err error) restart.Exit {
	_ = l.guard.Wait() // what it had to say it has said
	for _, stream := range l.streams {
		stream.end()
	}
	return restart.Exit{Code: code, Err: err, LastWords: probe.CleanText(l.words.String(), maxLastWords)}
}

// lost ends a life whose guard has ended before the command: somebody has killed
// it. The kernel then kills the command; what that has started is killed as far as
// it can be found.
func (l *life) lost() restart.Exit {
	if l.pid == 0 {
		exit := l.exit(-1, nil)
		exit.Err = fmt.Errorf("guard ended before the command began: %v", l.guard.ProcessState)
		return exit
	}
	command.KillGroup(l.pid)
	l.cgroup.kill()
	l.cgroup.remove()
	l.log.Warn("the guard was killed, so the command is killed too", "guard", l.guard.Process.Pid, "pid", l.pid)
	return l.exit(128+int(syscall.SIGKILL), nil)
}

// leave returns without the end of a command that cannot be killed. Its guard
// goes on trying, since close breaks the lifeline.
func (l *life) leave() restart.Exit {
	l.log.Error("the process cannot be killed, its guard goes on trying", "guard", l.guard.Process.Pid, "pid", l.pid)
	go func() { _ = l.guard.Wait() }() // the one goroutine that may outlive Run
	return restart.Exit{Code: 128 + int(syscall.SIGKILL), LastWords: probe.CleanText(l.words.String(), maxLastWords)}
}

func (l *life) close() {
	l.force.Stop()
	_ = l.lifeline.Close()
}

// self is the file of this program, even when another has been put in its place
// since it was started.
func self() string {
	const proc = "/proc/self/exe"
	if _, err := os.Stat(proc); err == nil {
		return proc
	}
	path, _ := os.Executable()
	return cmp.Or(path, os.Args[0])
}
