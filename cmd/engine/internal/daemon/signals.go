package daemon

import (
	"context"
	"os"
	ossignal "os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// signals are the signals that sonde run handles from its start on. Each kind has its own channel, so that many signals of one
// kind cannot cause the loss of another kind.
type signals struct {
	reload chan os.Signal // SIGHUP; capacity 1: one reload reads all changes
	stop   chan os.Signal // SIGTERM and SIGINT; capacity 2: the second one kills
	quit   chan os.Signal // SIGQUIT
	others chan os.Signal // ignored
}

// catchSignals begins to catch signals. SIGPIPE and the others are caught, not ignored, because processes that the engine
// starts would inherit ignored signals. If SIGPIPE were not caught, a closed pipe as standard error would end the program.
func catchSignals() *signals {
	s := &signals{
		reload: make(chan os.Signal, 1),
		stop:   make(chan os.Signal, 2),
		quit:   make(chan os.Signal, 1),
		others: make(chan os.Signal, 1),
	}
	ossignal.Notify(s.reload, syscall.SIGHUP)
	ossignal.Notify(s.stop, syscall.SIGTERM, syscall.SIGINT)
	ossignal.Notify(s.quit, syscall.SIGQUIT)
	ossignal.Notify(s.others, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	return s
}

// release restores the default effects of all signals.
func (s *signals) release() {
	for _, c := range []chan os.Signal{s.reload, s.stop, s.quit, s.others} {
		ossignal.Stop(c)
	}
}

// maxStacks limits the text that writeStacks writes, in bytes.
const maxStacks = 1 << 20

// exitOnQuit exits the program at the first SIGQUIT and logs the stacks of all goroutines. It runs in its own goroutine, since
// SIGQUIT is meant for an engine that hangs. Go's own handling of SIGQUIT would also hang if standard error is not read.
func (s *signals) exitOnQuit(log *cli.LogQueue) {
	go func() {
		quit := <-s.quit
		writeStacks(log)
		log.Close(flushTimeout)
		os.Exit(exitCode(quit))
	}()
}

// writeStacks writes the stacks of all goroutines to the log.
func writeStacks(log *cli.LogQueue) {
	stacks := make([]byte, maxStacks)
	_, _ = log.Write(append(stacks[:runtime.Stack(stacks, true)], '\n'))
}

// exitAt exits the program when it receives a signal, unless run returns first. It is used while the engine stops and no
// processes should be left.
func (d *daemon) exitAt(signal <-chan os.Signal) {
	go func() {
		select {
		case s := <-signal:
			d.exit(s)
		case <-d.ended:
		}
	}()
}

// exit exits the program because the engine has not stopped in time. It does nothing if run has returned.
func (d *daemon) exit(s os.Signal) {
	select {
	case <-d.ended:
		return
	default:
	}
	d.log.Error("the engine did not stop in time, exiting", "signal", s.String())
	d.queue.Close(flushTimeout)
	os.Exit(exitCode(s))
}

// exitCode returns the exit code of a program that was ended by a signal, as in shells.
func exitCode(s os.Signal) int { return 128 + int(s.(syscall.Signal)) }

// killTimeout is how long the engine may take to stop after the second signal. Its parts
// need less: see restart/process and api.Server.Serve.
const killTimeout = 20 * time.Second

// handleSignals handles signals, jobs and changes in the directory of pods until ctx is done. SIGHUP reloads the configuration,
// the first SIGTERM or SIGINT calls shutdown, and the second one kills the processes that still run. It returns an error with
// the exit code of a kill.
func (d *daemon) handleSignals(ctx context.Context, shutdown func()) error {
	ticks, stop := d.targets.pods.Ticks()
	defer stop()
	loads := loader{daemon: d}
	defer loads.stop()
	var pods <-chan podsRead // nil unless they are being read
	var killed error
	for stopping := false; ; {
		reload, jobs := d.signals.reload, d.jobs
		if loads.current != nil && !stopping { // new reloads wait until the current one has finished
			reload, jobs = nil, nil
		}
		select {
		case <-ctx.Done():
			return killed
		case <-ticks:
			if !stopping && pods == nil {
				dir := d.targets.pods.Copy()
				pods = background(func() podsRead { return readPods(dir) })
			}
		case read := <-pods:
			if pods = nil; !stopping {
				d.applyPods(read)
			}
		case r := <-loads.done:
			if stopping {
				loads.discard(r)
				continue
			}
			loads.finish(r)
		case <-reload:
			if !stopping {
				loads.start(ctx, &job{trigger: bySignal})
			}
		case j := <-jobs:
			if stopping {
				j.reply(reply{err: errStopping})
				continue
			}
			loads.start(ctx, j)
		case s := <-d.signals.stop:
			if !stopping {
				d.log.Info("shutting down: waiting for processes to exit within their grace periods; a second signal kills them", "signal", s.String())
				stopping = true
				d.manager.notify(isStopping)
				loads.refuse()
				shutdown()
				continue
			}
			d.log.Warn("second signal received, killing processes", "signal", s.String())
			killed = cli.ErrReported(exitCode(s))
			d.restarts.Kill()
			time.AfterFunc(killTimeout, func() { d.exit(s) })
		}
	}
}
