package status

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
)

// explainCommand returns sonde explain.
func explainCommand() *cobra.Command {
	return ofTarget(&cobra.Command{
		Use:   "explain TARGET",
		Short: "Say why a target of a running engine is or is not ready",
		Long: "Explain says in sentences what state a target is in and since when, what becomes of its instance, and\n" +
			"for each probe, those that fail first, what its attempts add up to, how the last one went, and when\n" +
			"the next one is due, or what it waits for.",
		Example: "  sonde explain shop/web\n  sonde explain shop/web -o json",
	}, (*api.Client).Target, func(ctx context.Context, client *api.Client, t api.Target) string {
		var s strings.Builder
		for _, text := range t.Explanation {
			fmt.Fprintln(&s, probe.OneLine(text, 2*probe.MaxDetail))
		}
		if stats, err := client.Stats(ctx); err == nil {
			s.WriteString(engineLines(stats))
		}
		return s.String()
	})
}
