package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// History returns sonde history.
func History() *cobra.Command {
	return ofTarget(&cobra.Command{
		Use:   "history TARGET",
		Short: "Show what has happened to a target of a running engine",
		Long: "History shows the latest transitions of a target, the oldest first: verdicts that turned, with the\n" +
			"attempts and the reason, and instances that started or ended, with their exit status and last output.\n" +
			"A target that has been well since its start has none. With a state file the history outlives the engine.",
		Example: "  sonde history shop/web\n  sonde history shop/web -o json",
	}, showHistory)
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
	if h.Owner != "" {
		if _, err := fmt.Fprintf(w, "the engine %s probes the target and has its history: ask that one, by --address\n", probe.OneLine(h.Owner, probe.MaxGroupName)); err != nil || len(h.Transitions) == 0 {
			return err
		}
	}
	_, err = io.WriteString(w, cmp.Or(sentences(h), "nothing has happened to the target that the engine remembers\n"))
	return err
}

// sentences returns the transitions as text, with a line for each.
func sentences(h api.History) string {
	var s strings.Builder
	for _, t := range h.Transitions {
		fmt.Fprintf(&s, "%s  %s\n", t.At.Local().Format(time.DateTime), probe.OneLine(t.Text, probe.MaxDetail))
	}
	return s.String()
}
