package root

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
)

// probeCommand returns the command sonde probe. The exit code is that of the worst outcome.
func probeCommand() *cobra.Command {
	var in handlers.Inputs
	var asJSON bool
	c := &cobra.Command{
		Use:   "probe CONFIG TARGET [KIND[/NAME]]",
		Short: "Make one attempt, exactly as a running engine would",
		Long: "Probe makes one attempt with each probe of a target, with each of one kind (startup, readiness or\n" +
			"liveness), or with the named one of that kind. It shows the result and the timings. It starts no\n" +
			"process and restarts nothing.\n\n" +
			"In TARGET, * stands for any text and ? for one character. Targets are attempted one after another.\n\n" +
			"The exit code is that of the worst outcome: 0 success, 1 warning, 3 unknown, 2 failure, in this\n" +
			"order. It is 64 when no attempt was made: the configuration is invalid, or has no such target.",
		Example: "  sonde probe config.hcl shop/web liveness\n  sonde probe config.hcl 'web[*]'\n  sonde probe config.hcl 'web[\"a\"]' readiness/db --json",
		Args:    cli.Args(2, 3, "CONFIG and TARGET are required, and at most one KIND"),
		RunE: func(c *cobra.Command, args []string) error {
			reports, err := attempt(c, &in, args)
			if err != nil {
				return err
			}
			return cli.Show(c.OutOrStdout(), reports, asJSON)
		},
	}
	cli.MarkAttempts(c)
	in.Register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "write a list of results as JSON")
	return c
}

// attempt makes the attempts selected by the arguments, one after another.
func attempt(c *cobra.Command, in *handlers.Inputs, args []string) ([]cli.Report, error) {
	p := handlers.NewPlugins(c.Context(), handlers.WaitForAll, handlers.Warnings(c))
	defer p.Close()
	loaded, diags := in.Load(c, args[:1], p)
	if err := cli.ShowDiagnostics(c, diags, cli.ExitNoAttempt); err != nil {
		return nil, err
	}
	ids, err := handlers.Choose(loaded, args[1], args[2:])
	if err != nil {
		return nil, &cli.ExitError{Code: cli.ExitNoAttempt, Err: err}
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var secrets redact.Redactor
	secrets.Add(loaded.Secrets)
	var reports []cli.Report
	for _, id := range ids {
		p := loaded.Set[id]
		p.Target.Name, p.Rule.Kind = id.Target, id.Kind
		if p.Rule.Compatibility == probe.Mended {
			p.Rule.Compatibility = loaded.Engine.Compatibility
		}
		res := engine.Once(ctx, p)
		res.Detail = secrets.Text(res.Detail)
		reports = append(reports, cli.Report{ID: id, Result: res})
	}
	return reports, nil
}
