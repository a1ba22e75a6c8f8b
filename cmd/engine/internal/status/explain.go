package status

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// explainCommand returns the command sonde explain.
func explainCommand() *cobra.Command {
	return ofTarget(&cobra.Command{
		Use:   "explain TARGET",
		Short: "Say why a target of a running engine is or is not ready",
		Long: "Explain writes sentences about the state of a target, its instance and its probes, those that fail\n" +
			"first: how far a probe is from another verdict, how the last attempt went, and when the next one is due.",
		Example: "  sonde explain shop/web\n  sonde explain shop/web -o json",
	}, (*api.Client).Target, func(ctx context.Context, on cli.Screen, client *api.Client, t api.Target) string {
		text := explanation(on, t)
		if stats, err := client.Stats(ctx); err == nil {
			text += engineLines(on, stats)
		}
		return text
	})
}

// explanation returns the sentences about a target. The state and the names of its probes are coloured.
func explanation(on cli.Screen, t api.Target) string {
	colors := map[string]cli.Color{}
	for _, p := range t.Probes {
		colors[strings.TrimPrefix(p.ID, p.Target+":")] = probeColor(p)
	}
	var s strings.Builder
	for i, text := range t.Explanation {
		text = on.Wrap(probe.OneLine(text, 2*probe.MaxDetail), indent)
		subject, rest, _ := strings.Cut(text, " ")
		if color := colors[subject]; i > 0 && color != "" {
			text = on.Paint(color, subject) + " " + rest
		} else if state, meaning, hasMeaning := strings.Cut(text, ": "); i == 0 && hasMeaning {
			text = on.Paint(stateColor(t.State), state) + ": " + meaning
		}
		s.WriteString(text + "\n")
	}
	return s.String()
}
