package status

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// pauseCommand returns the command sonde pause.
func pauseCommand() *cobra.Command {
	return pausing(api.OperationPause, &cobra.Command{
		Use:   "pause TARGET",
		Short: "Pause a target of a running engine, so that nothing is done about it",
		Long: "Pause makes the engine do nothing about a target because of its probes, which go on: it is not restarted\n" +
			"when they fail, it is not in trouble, and gateways drain it. A process that exits is started again; sonde\n" +
			"stop is for what is to stay down. The pause ends after --for, or by sonde unpause. It lasts over reloads and,\n" +
			"if the engine block sets state, over restarts of the engine. Removing the target from the configuration\n" +
			"ends it. What fails when it ends is acted on then.\n\n" +
			"With --group it pauses the targets that are members of a group now. In a cluster any engine can be asked: the\n" +
			"pause holds in all, and stays when a target moves.\n\n" + controlHelp,
		Example: "  sonde pause shop/web --for 1h --reason 'new disk'\n  sonde pause --group shop --for 30m",
	})
}

// unpauseCommand returns the command sonde unpause.
func unpauseCommand() *cobra.Command {
	return pausing(api.OperationUnpause, &cobra.Command{
		Use:     "unpause TARGET",
		Short:   "End the pause of a target",
		Long:    "Unpause ends what sonde pause has begun. With --group it does so for the members of a group.\n\n" + controlHelp,
		Example: "  sonde unpause shop/web\n  sonde unpause --group shop",
	})
}

// pausing completes a command that pauses or unpauses targets.
func pausing(o api.Operation, c *cobra.Command) *cobra.Command {
	var f connection
	p := api.PauseRequest{Operation: o}
	c.Args = cli.Args(0, 1, "one TARGET or --group is required")
	c.RunE = func(c *cobra.Command, args []string) error {
		if (len(args) == 1) == (p.Group != "") {
			return cli.UsageError("one TARGET or --group is required")
		}
		if c.Flags().Changed("for") && (p.For < time.Second || p.For > api.MaxPause) {
			return cli.UsageError("--for is %v: write how long, from 1s to %gh", p.For, api.MaxPause.Hours())
		}
		if len(args) == 1 {
			p.Target = args[0]
		}
		p.By = userName()
		done, err := withController(c, f, func(ctx context.Context, client *api.Client) (api.Paused, error) {
			return client.Pause(ctx, p)
		})
		if err != nil {
			return err
		}
		warnOfLocal(c, done)
		warnUnlessSaved(c, done.Saved)
		_, err = fmt.Fprintln(c.OutOrStdout(), pausedText(done))
		return err
	}
	f.register(c)
	c.Flags().StringVar(&p.Group, "group", "", "all members of a `group`, instead of one TARGET")
	if o == api.OperationPause {
		cli.DurationVar(c.Flags(), &p.For, "for", 0, "`duration` of the pause, such as 30m, 1h or 2d (default: until sonde unpause)")
		c.Flags().StringVar(&p.Reason, "reason", "", "`text` for people: sonde status, the history and the log show it")
	}
	return c
}

// warnOfLocal warns an operator if only this engine pauses the targets.
func warnOfLocal(c *cobra.Command, done api.Paused) {
	if done.Local > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "warning: etcd does not respond: %s paused by this engine only, for at most 15 minutes; pause again when etcd is reachable\n",
			cli.Plural(done.Local, "target"))
	}
}

// warnUnlessSaved warns an operator if the operation is not saved in the state file.
func warnUnlessSaved(c *cobra.Command, saved bool) {
	if !saved {
		fmt.Fprintln(c.ErrOrStderr(), "warning: not saved in a state file: a restarted engine will not remember it")
	}
}

// pausedText returns the result of a request.
func pausedText(done api.Paused) string {
	what := done.Target
	if done.Group != "" {
		what = fmt.Sprintf("group %s, %s", done.Group, cli.Plural(done.Targets, "target"))
	}
	switch {
	case done.Operation == api.OperationUnpause && done.Changed == 0:
		return what + ": was not paused"
	case done.Operation == api.OperationUnpause:
		return what + ": no longer paused"
	case done.Until.IsZero():
		return what + ": paused until sonde unpause"
	}
	return fmt.Sprintf("%s: paused until %s", what, local(done.Until))
}
