package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
)

// historyCommand returns sonde history.
func historyCommand() *cobra.Command {
	return ofTarget(&cobra.Command{
		Use:   "history TARGET",
		Short: "Show what has happened to a target of a running engine",
		Long: "History shows the latest transitions of a target, the oldest first: verdicts that turned, with the\n" +
			"attempts and the reason, and instances that started or ended, with their exit status and last output.\n" +
			"A target that has been well since its start has none. With a state file the history outlives the engine.",
		Example: "  sonde history shop/web\n  sonde history shop/web -o json",
	}, (*api.Client).History, historyText)
}

// historyText returns the transitions as text, with a line for each.
func historyText(_ context.Context, _ *api.Client, h api.History) string {
	var s strings.Builder
	if h.Owner != "" {
		fmt.Fprintf(&s, "the engine %s probes the target and has its history: ask that one, by --address\n", probe.OneLine(h.Owner, probe.MaxGroupName))
	}
	for _, t := range h.Transitions {
		fmt.Fprintf(&s, "%s  %s\n", t.At.Local().Format(time.DateTime), probe.OneLine(t.Text, probe.MaxDetail))
	}
	if s.Len() == 0 {
		return "nothing has happened to the target that the engine remembers\n"
	}
	return s.String()
}
