package status

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// reloadCommand returns the command sonde reload.
func reloadCommand() *cobra.Command {
	var f connection
	force, output := false, ""
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make a running engine read its configuration again",
		Long: "Reload makes an engine read its configuration again, as SIGHUP does, and waits until that has ended.\n" +
			"It exits with 0 if the engine has put the configuration into use, also if nothing has changed. It\n" +
			"exits with 1 if the engine has rejected it, for errors or by reload_guard, and goes on with the one\n" +
			"before. --force does not ask reload_guard.\n\n" +
			controlHelp,
		Example: "  sonde reload\n  sonde reload --force --address 127.0.0.1:9000",
		Args:    cli.Args(0, 0, "reload takes no arguments: the engine reads the files that it was started with"),
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := withController(c, f, func(ctx context.Context, client *api.Client) (api.Reload, error) {
				progress := cli.StartProgress(c.ErrOrStderr(), "waiting until the engine has reloaded")
				defer progress.Stop()
				return client.Reload(ctx, force)
			})
			if err != nil {
				return err
			}
			return showReload(c, r, output == "json")
		},
	}
	f.register(c)
	c.Flags().BoolVar(&force, "force", false, "do not ask reload_guard how many targets may be removed or restarted")
	cli.OutputVar(c.Flags(), &output)
	return c
}

// showReload writes the result of a reload. It returns an error if the reload was rejected.
func showReload(c *cobra.Command, r api.Reload, asJSON bool) error {
	text, cure := "", ""
	if r.Error == nil {
		text = paintSigns(cli.ScreenOf(c.OutOrStdout()), reloadText(r))
	} else if r.Guarded {
		cure = "; if this is intended, run sonde reload --force"
	}
	switch err := show(c, r, asJSON, r.Problems, text); {
	case err != nil || r.Error == nil:
		return err
	case asJSON:
		return cli.ErrReported(cli.ExitFailed)
	}
	return fmt.Errorf("configuration rejected, the engine continues with the previous one: %s%s", r.Error.Message, cure)
}

// show writes a value as JSON, or else the configuration's problems and a text.
func show(c *cobra.Command, value any, asJSON bool, problems, text string) error {
	if asJSON {
		return cli.WriteJSON(c.OutOrStdout(), value)
	}
	if problems != "" {
		fmt.Fprintln(c.ErrOrStderr(), strings.TrimRight(problems, "\n")+"\n")
	}
	_, err := io.WriteString(c.OutOrStdout(), text)
	return err
}

// reloadText describes the changes of a reload.
func reloadText(r api.Reload) string {
	text := fmt.Sprintf("configuration applied: %s; probes: %s\n", cli.Plural(r.Targets, "target"), counts(r.Probes))
	if r.Instances != nil {
		text += instancesText(*r.Instances)
	}
	text += blocksText(r.Blocks)
	for _, name := range r.Settings {
		text += fmt.Sprintf("~ engine: %s takes effect when the engine is started again\n", name)
	}
	return text
}

// counts formats the numbers of changed probes.
func counts(c *api.Changes) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%d added, %d updated, %d replaced, %d removed, %d kept", c.Added, c.Updated, c.Replaced, c.Removed, c.Kept)
}
