package plugindev

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/tck"
)

func testCommand() *cobra.Command {
	var t trial
	var shallow bool
	c := &cobra.Command{
		Use:   "test FILE [HOST:PORT]",
		Short: "Check that a plugin keeps the rules for plugins",
		Long: "Test makes attempts against a healthy server, HOST:PORT, and against faulty servers of its own, which\n" +
			"refuse or close connections, send nothing, send random bytes, or never stop sending. Through a proxy,\n" +
			"it also delays, truncates and slows the answers of the healthy server.\n\n" +
			"Test sets the setting named port. FILE is a module, or a script: NAME.star. The exit code is 1 when a check fails.",
		Example: "  sonde plugin test redis.wasm 127.0.0.1:6379 --set password=secret",
		Args:    cli.Args(1, 2, "FILE is required, and at most one HOST:PORT"),
		RunE: func(c *cobra.Command, args []string) error {
			return runTest(c, &t, args, shallow)
		},
	}
	t.flags(c)
	c.Flags().BoolVar(&shallow, "shallow", false, "the plugin checks connections only: any answer may be a success")
	return c
}

func runTest(c *cobra.Command, t *trial, args []string, shallow bool) error {
	ctx, end, err := t.begin(c, args)
	if err != nil {
		return err
	}
	defer end()
	kit := tck.Config{
		Plugin: t.host, Address: t.address, Port: t.port, Timeout: t.timeout, Shallow: shallow,
		Report: func(done tck.Check) { writeCheck(c.OutOrStdout(), done) },
	}
	if m, err := abi.ReadManifest(t.host.Module); err == nil { // tck.Run reports any other error
		if kit.Settings, err = t.values(m.Settings); err != nil {
			return err
		}
	}
	if t.script != nil { // so that a broken script causes one error instead of one for each rule
		p, h, _, err := t.open(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(h.Close(), p.Close(ctx)); err != nil {
			return err
		}
	}
	checks, err := tck.Run(ctx, kit)
	if err != nil {
		return err
	}
	return tallyChecks(c.OutOrStdout(), checks)
}

func writeCheck(w io.Writer, c tck.Check) {
	switch {
	case c.Skipped != "":
		fmt.Fprintf(w, "skip  %s: %s\n", c.Name, c.Skipped)
	case c.Err != nil:
		fmt.Fprintf(w, "FAIL  %s\n      %s\n", c.Name, probe.OneLine(c.Err.Error(), 1000))
	default:
		fmt.Fprintf(w, "ok    %s (%v)\n", c.Name, cli.Round(c.Took))
	}
}

func tallyChecks(w io.Writer, checks []tck.Check) error {
	failed, skipped := 0, 0
	for _, c := range checks {
		if c.Err != nil {
			failed++
		}
		if c.Skipped != "" {
			skipped++
		}
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", len(checks)-failed-skipped, failed, skipped)
	if failed > 0 {
		return cli.ErrReported(cli.ExitFailed)
	}
	return nil
}
