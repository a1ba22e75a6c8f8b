package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/quota"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// Limits of an instance.
const (
	maxOutput    = 4 << 10                // bytes; as MaxContainerTerminationMessageLength in k8s.io/kubernetes/pkg/kubelet/container
	drain        = 200 * time.Millisecond // for output pipes that another process holds open after the exit
	orderTimeout = 5 * time.Second        // for a guard to read an order
	killTimeout  = 5 * time.Second        // for a command to die when ctx is done
)

// Run runs the command, and returns when it and all its descendants have exited.
// It calls began with the instance's ID once the process has started: the process ID
// and a random suffix, "4711-k5zq2m7xwa". A duration received from end terminates the
// process with that grace period.
//
// If the process does not exit after SIGKILL, Run returns five seconds after ctx is done. The guard, a process that
// watches the command for the engine, keeps trying to kill it.
func (d *Driver) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	i, err := d.start(ctx, end)
	if err != nil {
		return restart.Exit{Code: -1, Err: err}
	}
	defer i.close()
	defer i.releaseRoom()
	return i.watch(ctx, began, end)
}

// errEnded is the error of a Run that was asked to terminate its instance before it had started a command.
var errEnded = errors.New("asked to end before the command was started")

// instance is the engine's side of one run of a command.
type instance struct {
	*guardConn
	driver  *Driver
	log     *slog.Logger
	tail    *command.Output
	output  output
	streams [2]stream

	releaseRoom func()           // releases the reservation for a guard and its command, once both are running
	tree        guard.Tree       // zero before the command runs
	asked       bool             // a request to end was received
	preStop     *preStop         // the step before the signal; nil if none is running
	abandon     <-chan time.Time // fires when a process cannot be killed
	overdue     <-chan time.Time // fires when the guard should have killed the command
	gaveUp      bool             // it was not killed in time

	notAdopted bool // it ends with the engine, although Config.Adopt is set
	released   bool // it is notAdopted, and was asked to exit when the engine stopped

	stop func() restart.StopSettings // settings of the driver, or of an earlier engine's instance that is being terminated

	notifier *notifier // nil if the processes have no socket for notifications
	starting string    // its ID while it is running but has not reported that it is ready
	notReady error     // why it was terminated: it never reported that it is ready
}

// start starts a guard and orders it to start the command. If an earlier engine left an instance of the target running,
// start takes it over, or terminates it first. If a request to terminate arrives meanwhile, start returns an error and
// starts no command.
func (d *Driver) start(ctx context.Context, end <-chan time.Duration) (_ *instance, err error) {
	env, envErr := d.environment() // needed for a surviving instance as well, to redact its secrets
	suffix := strings.ToLower(rand.Text()[:10])
	if i, err := d.takeOver(ctx, end); i != nil || err != nil {
		return i, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case _, open := <-end:
		if open {
			return nil, errEnded
		}
	default:
	}
	i := d.newInstance()
	run := d.command
	run.Env = env
	if i.notifier, err = d.listen(&run, suffix); err != nil {
		return nil, fmt.Errorf("%w: notify: %w", restart.ErrShortage, err)
	}
	defer func() {
		if err != nil {
			i.notifier.close()
		}
	}()
	plan, err := command.Plan{}, envErr
	if err == nil {
		plan, err = run.Plan()
	}
	if shortage.Is(err) || errors.Is(err, command.ErrLookup) {
		return nil, fmt.Errorf("%w: %w", restart.ErrShortage, err)
	}
	if err != nil {
		return nil, err
	}
	if plan.Dir, err = filepath.Abs(plan.Dir); err != nil { // the guard has another working directory
		return nil, err
	}
	start := guard.Start{
		Plan: plan, Suffix: suffix, Cgroup: !d.config.NoCgroup, Socket: i.notifier.socketPath(),
		Umask: d.config.Umask.mask(), Nice: d.config.Nice, Rlimits: d.config.rlimits(),
	}
	if d.config.Adopt {
		if start.Adopt, err = d.adopt(); err != nil {
			return nil, fmt.Errorf("%w: %w", restart.ErrShortage, err)
		}
	}
	releaseRoom, err := quota.Processes.Reserve(guard.Tasks)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", restart.ErrShortage, err)
	}
	i.releaseRoom = releaseRoom
	if i.guardConn, err = startGuard(d.config.Target, start, i.streams); err != nil {
		releaseRoom()
		return nil, fmt.Errorf("%w: guard: %w", restart.ErrShortage, err)
	}
	return i, nil
}

func (d *Driver) newInstance() *instance {
	i := &instance{
		driver: d, log: d.config.Logger, tail: &command.Output{Max: maxOutput, Last: true}, output: d.output,
		stop: d.stopSettings, releaseRoom: func() {},
	}
	for n, name := range []string{"stdout", "stderr"} {
		i.streams[n] = d.output.stream(name, i.tail)
	}
	return i
}

// close disconnects from the instance. The next reader of its output continues where this one stops.
func (i *instance) close() {
	i.endPreStop()
	i.finishOutputs(0)
	i.endStreams()
	i.guardConn.close()
	i.notifier.close()
}

// endStreams writes all output that was read.
func (i *instance) endStreams() {
	for _, s := range i.streams {
		s.end()
	}
	i.output.flush()
}

func (i *instance) watch(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	done := ctx.Done()
	for {
		select {
		case r, alive := <-i.reports:
			switch {
			case !alive:
				return i.guardKilled(ctx)
			case r.Error != "":
				i.kill()
				err := errors.New(r.Error)
				if r.Shortage {
					err = fmt.Errorf("%w: guard: %w", restart.ErrShortage, err)
				}
				return i.exit(-1, err)
			case r.Ended:
				if r.Killed {
					i.log.Warn("process did not exit within its grace period, killed", "pid", i.tree.Pid)
				}
				i.kill()
				if i.released {
					return i.exit(-1, restart.ErrReleased)
				}
				if i.notReady != nil {
					return i.exit(-1, i.notReady)
				}
				exit := i.exit(r.Code, nil)
				exit.Signal = unix.SignalName(r.Signal)
				return exit
			}
			if i.hasStarted(r); i.starting == "" {
				began(restart.Begun{ID: r.ID})
			}
		case what := <-i.notifier.received():
			i.note(what, began)
		case grace, open := <-end:
			if !open {
				end = nil
				continue
			}
			i.requestEnd(max(grace, 0))
		case err := <-i.preStopDone():
			i.afterPreStop(err)
		case <-done:
			done = nil
			released := context.Cause(ctx) == restart.ErrReleased
			if i.released = released && i.notAdopted; i.released {
				grace := i.stop().GracePeriod
				i.log.Info("terminating instance: the next engine could not find it", "grace_period", grace)
				i.requestEnd(grace)
				continue
			}
			if released {
				return restart.Exit{Err: restart.ErrReleased}
			}
			i.order(guard.Order{Signal: guard.Kill})
			i.abandon = time.After(i.driver.killTimeout)
		case <-i.overdue:
			i.resume() // it may have been stopped after the order
			i.overdue = time.After(i.driver.killTimeout)
		case <-i.abandon:
			return i.giveUp()
		}
	}
}

// hasStarted records the report that the command is running.
func (i *instance) hasStarted(r guard.Report) {
	i.tree, i.notAdopted = r.Tree, r.NotAdopted != ""
	i.closeStderr()
	i.releaseRoom()
	i.output.droppedWithoutEngine(r.Dropped)
	i.attend(r.ID)
	if i.notAdopted {
		i.log.Warn("process ends with the engine despite adopt: the guard cannot write to its directory", "pid", r.Pid, "error", r.NotAdopted)
	}
}

// terminate orders the guard to ask the command to exit, by the signal that was set last.
func (i *instance) terminate(grace time.Duration) {
	i.order(guard.Order{Signal: guard.Terminate, Grace: grace, StopSignal: syscall.Signal(i.stop().Signal)})
	i.overdue = time.After(grace + i.driver.killTimeout)
}

// order sends an order to end the command. It first continues a guard that was stopped (SIGSTOP): otherwise the guard
// would never read the order, and nobody could end the command.
func (i *instance) order(o guard.Order) {
	i.resume()
	if err := i.send(o); err != nil && !hasEnded(err) {
		i.log.Warn("signal not delivered: the guard process does not respond", "signal", o.Signal, "guard_pid", i.guardPid, "pid", i.tree.Pid, "error", err)
	}
}

// exit waits for the guard to exit, and returns the Exit of the instance.
func (i *instance) exit(code int, err error) restart.Exit {
	i.wait() // its status is ignored, since its reports say more
	i.endStreams()
	return restart.Exit{Code: code, Err: err, Output: probe.CleanText(i.tail.String(), maxOutput)}
}

// killed returns the Exit of a command that the engine killed.
func killed(output string) restart.Exit {
	return restart.Exit{Code: 128 + int(syscall.SIGKILL), Signal: unix.SignalName(syscall.SIGKILL), Output: output}
}

// guardKilled kills an instance whose guard was killed before the command exited, and returns when the instance is
// dead. The kernel kills the command itself; guardKilled kills the rest of its process group and its cgroup. When ctx
// is done, it gives up as if the guard were alive: at once if the instance is released, otherwise after killTimeout.
func (i *instance) guardKilled(ctx context.Context) restart.Exit {
	if i.tree.Pid == 0 {
		how := i.wait()
		if said := i.complaint(); said != "" {
			how += ": " + said
		}
		return i.exit(-1, fmt.Errorf("%w: guard ended before it started the command: %s", restart.ErrShortage, how))
	}
	i.log.Warn("guard process was killed, killing the command it guarded", "guard_pid", i.guardPid, "pid", i.tree.Pid)
	killing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		if context.Cause(ctx) == restart.ErrReleased {
			giveUp()
			return
		}
		time.AfterFunc(i.driver.killTimeout, giveUp)
	})()
	if i.tree.KillOrphans(killing) {
		return killed(i.exit(0, nil).Output)
	}
	if context.Cause(ctx) == restart.ErrReleased {
		return restart.Exit{Err: restart.ErrReleased}
	}
	i.gaveUp = true
	i.log.Error("process did not exit after SIGKILL, and its guard process was killed: end it by hand", "pid", i.tree.Pid)
	return killed(i.exit(0, nil).Output)
}

// giveUp returns although the command has not exited after SIGKILL. The guard keeps killing it, because close closes
// the connection.
func (i *instance) giveUp() restart.Exit {
	i.gaveUp = true
	i.resume()
	i.log.Error("process did not exit after SIGKILL, its guard process keeps trying to kill it", "guard_pid", i.guardPid, "pid", i.tree.Pid)
	go i.reap() // the only goroutine that may outlive Run
	return killed(probe.CleanText(i.tail.String(), maxOutput))
}
