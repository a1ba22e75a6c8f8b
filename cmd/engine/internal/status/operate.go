package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// restartCommand returns the command sonde restart.
func restartCommand() *cobra.Command {
	return operation(api.OperationRestart, &cobra.Command{
		Use:   "restart TARGET...",
		Short: "Restart targets of a running engine",
		Long: "Restart terminates the instance of a target within its grace period, and starts the next one at once,\n" +
			"whatever back-off, restart_policy, restart_budget and hold_restarts say. For a target with a restart block\n" +
			"it runs the command. It starts a target that was stopped, that waits for its back-off or for other targets, or that\n" +
			"has ended. Restart waits until another instance runs, or cannot, and then restarts the next TARGET.\n\n" + controlHelp,
		Example: "  sonde restart shop/web",
	})
}

// stopCommand returns the command sonde stop.
func stopCommand() *cobra.Command {
	return operation(api.OperationStop, &cobra.Command{
		Use:   "stop TARGET...",
		Short: "Stop targets of a running engine",
		Long: "Stop terminates the instance of a target within its grace period, and waits until it has terminated. The\n" +
			"target stays stopped until sonde start or sonde restart: also over reloads and, if the engine block sets\n" +
			"state, over restarts of the engine. It is not in trouble then. Removing it from the configuration ends that.\n\n" + controlHelp,
		Example: "  sonde stop shop/web",
	})
}

// startCommand returns the command sonde start.
func startCommand() *cobra.Command {
	return operation(api.OperationStart, &cobra.Command{
		Use:     "start TARGET...",
		Short:   "Start targets that were stopped by sonde stop",
		Long:    "Start starts a target that was stopped by sonde stop, and waits until it runs.\n\n" + controlHelp,
		Example: "  sonde start shop/web",
	})
}

// operation completes a command that operates on targets, one after the other.
func operation(o api.Operation, c *cobra.Command) *cobra.Command {
	var f connection
	noWait := false
	c.Args = cli.Args(1, maxOperated, fmt.Sprintf("a TARGET is required, or up to %d", maxOperated))
	c.RunE = func(c *cobra.Command, targets []string) error {
		_, err := withController(c, f, func(ctx context.Context, client *api.Client) (struct{}, error) {
			for _, target := range targets {
				progress := cli.StartProgress(c.ErrOrStderr(), "waiting for "+probe.OneLine(target, probe.MaxTargetName))
				text, err := operate(ctx, c, client, target, o, !noWait)
				progress.Stop()
				if err != nil {
					return struct{}{}, adviseName(err, target)
				}
				fmt.Fprintln(c.OutOrStdout(), text)
			}
			return struct{}{}, nil
		})
		return err
	}
	f.register(c)
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until the instance has terminated or the next one runs")
	return c
}

// maxOperated is the maximum number of targets of one command.
const maxOperated = 1000

// adviseName adds a remedy to the error about an unknown target if its name looks like a pattern.
func adviseName(err error, target string) error {
	refused, answered := errors.AsType[*api.Error](err)
	if !answered || refused.Status != http.StatusNotFound || !strings.ContainsAny(target, "*?") {
		return err
	}
	return fmt.Errorf("%w; patterns are not supported here: name each target; sonde status %s lists them", err, command.Quote(target))
}

// operate performs an operation on a target and returns a line with the result. If wait is true, it waits until the target has
// reached the requested state.
func operate(ctx context.Context, c *cobra.Command, client *api.Client, target string, o api.Operation, wait bool) (string, error) {
	before, err := client.Target(ctx, target)
	if err != nil {
		return "", err
	}
	done, err := client.Operate(ctx, target, o, userName())
	if err != nil {
		return "", err
	}
	if o != api.OperationRestart { // a restart need not be saved for the next engine
		warnUnlessSaved(c, done.Saved)
	}
	text := fmt.Sprintf("%s requested", o)
	switch {
	case !done.Changed:
		text = map[api.Operation]string{api.OperationStop: "stopped already", api.OperationStart: "was not stopped"}[o]
	case wait:
		if text, err = awaitOperation(ctx, client, done, before); err != nil {
			return "", err
		}
	}
	return done.Target + ": " + text, nil
}

// userName returns the name of the user who runs this program; under sudo, the name of the invoking user.
func userName() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	u, err := user.Current()
	if err != nil {
		return fmt.Sprintf("user %d", os.Getuid())
	}
	return cmp.Or(u.Username, u.Uid)
}

// operationInterval is the interval at which a target is polled during an operation. If a newer instance runs at undoneLooks
// polls in a row while its target is being stopped, somebody else has started it: an instance that was already about to start
// is terminated sooner.
const (
	operationInterval = 100 * time.Millisecond
	undoneLooks       = 20
)

// awaitOperation waits until a target has reached the requested state, and returns a text about the result. before is the
// target before the operation.
func awaitOperation(ctx context.Context, client *api.Client, done api.Operated, before api.Target) (string, error) {
	undone := 0
	for {
		now, err := client.Target(ctx, done.Target)
		if err != nil {
			return "", err
		}
		if undone++; !isUndone(done, now.Instance, before.Instance) {
			undone = 0
		}
		if undone == undoneLooks {
			return "", fmt.Errorf("instance %s has started meanwhile: somebody has started the target again", now.Instance.ID)
		}
		if text, err := outcome(done.Operation, now.Instance, before.Instance); text != "" || err != nil {
			return text, err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(operationInterval):
		}
	}
}

// isUndone reports whether an instance runs that was started after the target was stopped.
func isUndone(done api.Operated, now, before api.Instance) bool {
	return done.Operation == api.OperationStop && now.Phase == probe.Running && now.ID != before.ID && now.Since.After(done.At)
}

// outcome returns the result of an operation, "" if it is not known yet, or an error if the operation has failed.
func outcome(o api.Operation, now, before api.Instance) (string, error) {
	if o == api.OperationStop {
		if now.Reason == probe.ReasonOperatorStop && now.Phase != probe.Running { // it keeps running until it has terminated
			return "stopped", nil
		}
		return "", nil
	}
	switch {
	case now.Reason == probe.ReasonOperatorStop && (now.Detail != before.Detail || !now.Since.Equal(before.Since)):
		return "", fmt.Errorf("the target was stopped meanwhile: %s", now.Detail)
	case now.Since.Equal(before.Since) && now.ID == before.ID && now.Detail != before.Detail && now.Reason != probe.ReasonOperatorRestart:
		return "", errors.New(now.Detail) // the instance keeps running, since it could not be terminated
	case now.Since.Equal(before.Since):
	case now.Reason == probe.ReasonStartAfter:
		return now.Detail, nil
	case now.Reason == probe.ReasonNoStart:
		return "", fmt.Errorf("the instance cannot be started: %s", now.Detail)
	case now.ID == before.ID:
	case now.Phase == probe.Running:
		return "runs, instance " + now.ID, nil
	case now.Phase == probe.Gone || now.Phase == probe.Ended:
		return fmt.Sprintf("instance %s has started, and ended: %s", now.ID, now.Detail), nil
	}
	return "", nil
}
