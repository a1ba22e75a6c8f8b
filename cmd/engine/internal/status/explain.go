package status

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// Explain returns sonde explain.
func Explain() *cobra.Command {
	return ofTarget(&cobra.Command{
		Use:   "explain TARGET",
		Short: "Say why a target of a running engine is or is not ready",
		Long: "Explain says in sentences what state a target is in and since when, what becomes of its instance, and\n" +
			"for each probe, those that fail first, what its attempts add up to, how the last one went, and when\n" +
			"the next one is due, or what it waits for.",
		Example: "  sonde explain shop/web\n  sonde explain shop/web -o json",
	}, explain)
}

func explain(ctx context.Context, w io.Writer, f flags, target string, asJSON bool) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	s := viewer{client: client, out: w, target: target}
	page, err := s.page(ctx, 1)
	switch {
	case err != nil:
		return s.advise(err)
	case asJSON:
		return cli.WriteJSON(w, page.Targets[0])
	}
	_, err = io.WriteString(w, explanation(page.Targets[0])+s.trouble(ctx))
	return err
}

// explanation returns the sentences about a target, with a line for each.
func explanation(t api.Target) string {
	var s strings.Builder
	for _, text := range t.Explanation {
		fmt.Fprintln(&s, probe.OneLine(text, 2*probe.MaxDetail))
	}
	return s.String()
}
