package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// History returns sonde history.
func History() *cobra.Command {
	var f flags
	output := ""
	c := &cobra.Command{
		Use:   "history TARGET",
		Short: "Show what has happened to a target of a running engine",
		Long: "History shows the latest transitions of a target, the oldest first: verdicts that turned, with the\n" +
			"attempts and the reason, and instances that started or ended, with their exit status and last output.\n" +
			"A target that has been well since its start has none. With a state file the history outlives the engine.",
		Example: "  sonde history shop/web\n  sonde history shop/web -o json",
		Args:    cli.Args(1, 1, "one TARGET is required"),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("unknown output %q: use text or json", output)
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return showHistory(ctx, c.OutOrStdout(), f, args[0], output == "json")
		},
	}
	f.connection(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	return c
}

func showHistory(ctx context.Context, w io.Writer, f flags, target string, asJSON bool) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	h, err := client.History(ctx, target)
	switch {
	case err != nil:
		return viewer{client: client}.advise(err)
	case asJSON:
		return cli.WriteJSON(w, h)
	}
	_, err = io.WriteString(w, cmp.Or(sentences(h), "nothing has happened to the target that the engine remembers\n"))
	return err
}

// sentences returns the transitions as text, with a line for each.
func sentences(h httpapi.History) string {
	var s strings.Builder
	for _, t := range h.Transitions {
		fmt.Fprintf(&s, "%s  %s\n", t.At.Local().Format(time.DateTime), cli.OneLine(t.Text, probe.MaxDetail))
	}
	return s.String()
}
