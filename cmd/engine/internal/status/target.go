package status

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// ofTarget completes a command that shows one target, as text or JSON.
func ofTarget(c *cobra.Command, show func(ctx context.Context, w io.Writer, f flags, target string, asJSON bool) error) *cobra.Command {
	var f flags
	output := ""
	c.Args = cli.Args(1, 1, "one TARGET is required")
	c.RunE = func(c *cobra.Command, args []string) error {
		if output != "text" && output != "json" {
			return cli.UsageError("unknown output %q: use text or json", output)
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return show(ctx, c.OutOrStdout(), f, args[0], output == "json")
	}
	f.connection(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	return c
}
