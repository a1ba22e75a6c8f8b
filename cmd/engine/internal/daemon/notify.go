package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	ossignal "os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// isFailing requests that the service manager end the service and handle it by its Restart= (systemd 243 or later).
const isFailing = "WATCHDOG=trigger"

// Notify returns the command sonde notify.
func Notify() *cobra.Command {
	in := handlers.Inputs{NoCluster: true, RunsTargets: true}
	var paths []string
	var target string
	c := &cobra.Command{
		Use:   "notify [--config FILE] [--target NAME] -- COMMAND [ARG...]",
		Short: "Run a command, and tell systemd by probes whether it is ready and alive",
		Long: "Notify runs a command that knows nothing of systemd as a service of Type=notify, with the probes of a target.\n" +
			"It sends READY=1 once the startup and readiness probes pass, STATUS= with the reason while one fails, WATCHDOG=1\n" +
			"while no startup or liveness probe fails, and WATCHDOG=trigger when one does: then systemd ends the service, and\n" +
			"restarts it by its Restart=. Without a service manager, notify ends the command itself: by SIGTERM, and by SIGKILL\n" +
			"after the grace period.\n\n" +
			"Signals are passed on to the command. The exit code is that of the command: 128 plus the number of the signal that\n" +
			"has killed it, or notify ends by the same signal. Set KillMode=mixed in the unit, so that systemd signals notify only.\n\n" +
			"FILE is a file or a directory, and can be repeated; default " + handlers.DefaultConfig + ". NAME can be left out if it has one target. The\n" +
			"target has no process, container, unit or restart block, and an address, such as 127.0.0.1.",
		Example: "  sonde notify --config /etc/app.hcl -- /usr/bin/app --port 8080",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError("COMMAND is required: sonde notify -- COMMAND [ARG...]")
			}
			return runNotified(c, &in, paths, target, args)
		},
	}
	c.Flags().SetInterspersed(false)
	in.Register(c)
	c.Flags().StringArrayVar(&paths, "config", nil, "read the probes from a `file` or directory; can be repeated")
	c.Flags().StringVar(&target, "target", "", "`name` of the target that the command is")
	return c
}

// notified is a command whose probes decide the notifications to a service manager.
type notified struct {
	manager serviceManager
	engine  *engine.Engine
	target  string
	grace   time.Duration // from SIGTERM to SIGKILL, without a service manager
	command *exec.Cmd
	log     *slog.Logger

	told    string // the last STATUS= that was sent
	isReady bool   // READY=1 was sent
	failed  bool   // its end was requested
}

// runNotified runs a command until it exits.
func runNotified(c *cobra.Command, in *handlers.Inputs, paths []string, target string, args []string) error {
	queue := cli.NewLogQueue(c.ErrOrStderr())
	defer queue.Close(flushTimeout)
	level := &slog.LevelVar{}
	logger := (&flags{}).logger(queue, level)
	plugins := handlers.NewPlugins(c.Context(), handlers.WaitForNone, logger)
	defer plugins.Close()
	loaded, diags := in.Load(c, paths, plugins)
	if err := cli.ShowDiagnostics(c, diags, cli.ExitFailed); err != nil {
		return err
	}
	queue.Secrets.Add(loaded.Secrets)
	target, err := chooseNotified(loaded, target)
	if err != nil {
		return &cli.ExitError{Code: cli.ExitFailed, Err: err}
	}
	n := &notified{target: target, log: logger(loaded.Engine), command: exec.Command(args[0], args[1:]...)}
	if n.manager, err = openServiceManager(); err != nil {
		n.log.Warn("the service manager is not notified", "error", err)
	}
	unit, _ := loaded.Targets[target].Settings.(restart.Unit)
	n.grace = cmp.Or(unit.TerminationGracePeriod, restart.DefaultTerminationGracePeriod)
	n.engine = engine.New(engine.Config{
		Concurrency: loaded.Engine.Concurrency, Compatibility: loaded.Engine.Compatibility, NoIsolationCheck: loaded.Engine.NoIsolationCheck, Redact: queue.Secrets.Text, Logger: n.log,
	})
	set := maps.Clone(loaded.Set)
	maps.DeleteFunc(set, func(id probe.ID, _ probe.Probe) bool { return id.Target != target })
	if _, err := n.engine.Apply(set); err != nil {
		return err
	}
	return n.run(context.WithoutCancel(c.Context()))
}

// chooseNotified returns the target that the command represents.
func chooseNotified(c *config.Config, name string) (string, error) {
	names := slices.Sorted(maps.Keys(c.Targets))
	switch _, exists := c.Targets[name]; {
	case name == "" && len(names) != 1:
		return "", fmt.Errorf("the configuration has %d targets: select one with --target", len(names))
	case name == "":
		name = names[0]
	case !exists:
		return "", fmt.Errorf("the configuration has no target %q; its targets: %s", name, strings.Join(names, ", "))
	}
	hasProbe := false
	for id := range c.Set {
		hasProbe = hasProbe || id.Target == name
	}
	if !hasProbe {
		return "", fmt.Errorf("target %q has no probe: add one, such as probe \"readiness\" { tcp { port = 8080 } }", name)
	}
	if c.Targets[name].Driver != nil {
		return "", fmt.Errorf("target %q has a process, container, unit or restart block: remove it, since sonde notify runs the command", name)
	}
	return name, nil
}

// run starts the command and returns when it exits.
func (n *notified) run(ctx context.Context) error {
	signals := make(chan os.Signal, 16)
	ossignal.Notify(signals) // before the start, so that no signal is lost
	defer ossignal.Stop(signals)
	n.command.Stdin, n.command.Stdout, n.command.Stderr = os.Stdin, os.Stdout, os.Stderr
	n.command.Env = slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID"
	})
	if err := n.command.Start(); errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &cli.ExitError{Code: exitNotFound, Err: err}
	} else if err != nil {
		return &cli.ExitError{Code: exitNotStarted, Err: err}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = n.engine.Run(ctx) })
	running.Go(func() { n.follow(ctx) })
	running.Go(func() { n.pass(ctx, signals) })
	n.engine.Report(probe.Instance{Target: n.target, ID: strconv.Itoa(n.command.Process.Pid), Phase: probe.Running, Since: time.Now(), Managed: true})
	err := n.command.Wait()
	n.manager.notify(isStopping)
	cancel()
	running.Wait()
	return n.exit(err)
}

// Exit codes of a shell for a command that cannot be started or found.
const (
	exitNotStarted = 126
	exitNotFound   = 127
)

// exit returns the error with the exit code of the command. If the command was ended by a signal that systemd treats as a clean
// exit, this program ends itself with the same signal: systemd would treat an exit code as a failure.
func (n *notified) exit(err error) error {
	if err == nil && !n.failed {
		return nil
	}
	ended, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case !isExit && n.failed:
		return cli.ErrReported(cli.ExitFailed)
	case !isExit:
		return &cli.ExitError{Code: cli.ExitFailed, Err: err}
	case ended.Exited():
		return cli.ErrReported(ended.ExitCode())
	}
	status, _ := ended.Sys().(syscall.WaitStatus)
	if s := status.Signal(); !n.failed && (s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP || s == syscall.SIGPIPE) {
		ossignal.Reset(s)
		_ = syscall.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // until the signal arrives
	}
	return cli.ErrReported(exitCode(status.Signal()))
}

// pass forwards signals to the command.
func (n *notified) pass(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			switch s {
			case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE: // meant for this program
				continue
			case syscall.SIGTERM, syscall.SIGINT:
				n.manager.notify(isStopping)
			}
			_ = n.command.Process.Signal(s) // an error means that the command has exited
		}
	}
}

// lookInterval is how often follow polls the doubts of the engine, which are not reported as target changes.
const lookInterval = time.Second

// follow notifies the service manager of the probes' results.
func (n *notified) follow(ctx context.Context) {
	changes := n.engine.SubscribeTargets()
	defer changes.Close()
	interval := lookInterval
	if n.manager.limit > 0 {
		interval = min(interval, n.manager.limit/aliveReports)
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	var alive time.Time // when WATCHDOG=1 was sent
	for {
		for _, more := changes.Poll(); more; _, more = changes.Poll() {
		}
		st, _ := n.engine.Target(n.target)
		n.tell(st)
		if st.Live && n.manager.limit > 0 && time.Since(alive) > interval/2 && n.engine.LoopDelay() <= maxLoopDelay {
			n.manager.notify(isAlive)
			alive = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-changes.Changed():
		case <-ticks.C:
		}
	}
}

// tell sends the notifications for a changed status.
func (n *notified) tell(st engine.TargetStatus) {
	status := "ready"
	if !st.Ready || !st.Live {
		status = strings.TrimSuffix(fmt.Sprintf("%s: %s", strings.ReplaceAll(st.State.String(), "_", " "), cmp.Or(st.Cause.Detail, string(st.Cause.Reason))), ": ")
	}
	if status = "STATUS=" + probe.OneLine(status, probe.MaxDetail); status != n.told {
		n.told = status
		n.manager.notify(status)
	}
	if st.Ready && !n.isReady {
		n.isReady = true
		n.manager.notify(isReady)
	}
	failing := slices.IndexFunc(st.Probes, func(p engine.Status) bool { return p.ID.Kind != probe.Readiness && p.Verdict == probe.Failing })
	if st.Live || n.failed || failing < 0 || n.engine.Doubts(st.Probes[failing].ID) {
		return
	}
	n.failed = true
	n.log.Error("probe failing, ending the service", "target", n.target, "probe", st.Probes[failing].ID.String(), "detail", st.Probes[failing].Result.Detail)
	if n.manager.conn != nil {
		n.manager.notify(isFailing)
		return
	}
	_ = n.command.Process.Signal(syscall.SIGTERM)
	time.AfterFunc(n.grace, func() { _ = n.command.Process.Kill() })
}
