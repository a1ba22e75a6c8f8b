package status

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// historyCommand returns the command sonde history.
func historyCommand() *cobra.Command {
	return ofTarget(&cobra.Command{
		Use:   "history TARGET",
		Short: "Show what has happened to a target of a running engine",
		Long: "History shows the latest transitions of a target, the oldest first: verdicts that turned, with the\n" +
			"attempts and the reason, and instances that started or ended, with their exit status and last output.\n" +
			"A target without trouble since its start has none. With a state file the history outlives the engine.",
		Example: "  sonde history shop/web\n  sonde history shop/web -o json",
	}, (*api.Client).History, historyText)
}

// historyText formats the transitions, one per line.
func historyText(_ context.Context, on cli.Screen, _ *api.Client, h api.History) string {
	var s strings.Builder
	if h.Owner != "" {
		fmt.Fprintln(&s, on.Wrap(fmt.Sprintf("engine %s probes the target and has its history: query it with --address", probe.OneLine(h.Owner, probe.MaxGroupName)), indent))
	}
	for _, t := range h.Transitions {
		at := local(t.At)
		text := on.Wrap(at+"  "+probe.OneLine(t.Text, probe.MaxDetail), strings.Repeat(" ", len(at)+2))
		fmt.Fprintln(&s, at+on.Paint(transitionColor(t), strings.TrimPrefix(text, at)))
	}
	if s.Len() == 0 {
		return "the engine remembers no transition of the target\n"
	}
	return s.String()
}

// transitionColor returns the colour of the new verdict, or else of the target's new state.
func transitionColor(t api.Transition) cli.Color {
	switch {
	case t.Blind || t.Warns:
		return cli.Yellow
	case t.Verdict != nil && *t.Verdict == probe.Failing:
		return cli.Red
	case t.Verdict != nil && *t.Verdict == probe.Passing:
		return cli.Green
	case t.Verdict != nil:
		return ""
	}
	return stateColor(t.State)
}
