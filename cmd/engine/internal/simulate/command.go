// Package simulate implements sonde simulate and sonde tune. They show the transitions that a rule finds in given outcomes, and
// how good the rule is under noise, by the measures of Chen, Toueg and Aguilera, "On the Quality of Service of Failure
// Detectors" (2002). All decisions are made by verdict.Step.
//
//	command.go  sonde simulate
//	advise.go   sonde tune
//	play.go     given outcomes
//	chain.go    mean times under noise, exact
//	quality.go  the measures, for a rule and alternatives
//	rise.go     the measures of warn_on_rise
//	estimate.go the noise in recorded outcomes, with confidence intervals
//	tune.go     the thresholds that keep false alarms and detection within bounds
package simulate

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/cmd/engine/internal/status"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
)

// simulation holds the flags of sonde simulate.
type simulation struct {
	inputs   handlers.Inputs
	outcomes string
	file     string
	noise    string
	burst    float64
	history  bool
	recorded recorder
	partial  []string
	output   string
}

// recorder queries a running engine for a probe of a target: see status.Recorded.
type recorder func(ctx context.Context, target, selected string) (id string, r probe.Rule, outcomes []probe.OutcomeRun, err error)

// Commands returns the commands sonde simulate and sonde tune.
func Commands() []*cobra.Command { return []*cobra.Command{simulateCommand(), tuneCommand()} }

func simulateCommand() *cobra.Command {
	var f simulation
	c := &cobra.Command{
		Use:   "simulate CONFIG TARGET KIND[/NAME]",
		Short: "Show what a probe would decide, and how well, beside other settings",
		Long: "Simulate makes no attempt. With --outcomes it plays outcomes at the regular times of a probe, and shows\n" +
			"each transition and restart: S is a success, W a warning, F a failure, U an attempt that could not be made.\n\n" +
			"With --noise it shows how good the rule of the probe is at a target that is well, but for that share of\n" +
			"attempts that fail: when an outage is found, how often a mistake is made and for how long, and the share\n" +
			"of time in which the target passes. --burst makes failures come in a row, with that mean length. The\n" +
			"figures are exact means.\n\n" +
			"With --history it plays the outcomes that a running engine remembers of its probe, by the rule in\n" +
			"CONFIG.\n\n" +
			"Both are shown beside failure thresholds of 1, 2, 3 and 5 and the policy \"evidence\".",
		Example: "  sonde simulate config.hcl shop/web readiness --noise 0.5%\n  sonde simulate config.hcl shop/web readiness --noise 0.5% --burst 3 -o json\n  sonde simulate config.hcl shop/web liveness --outcomes SSSFFSFFF\n  sonde simulate config.hcl shop/web readiness --history",
		Args:    cli.Args(3, 3, "CONFIG, TARGET and KIND are required"),
		RunE:    func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.inputs.Register(c)
	c.Flags().StringVar(&f.outcomes, "outcomes", "", "play these `outcomes`, letters S, W, F and U; S3 is SSS")
	c.Flags().StringVar(&f.file, "outcomes-file", "", "play the outcomes in a `file`, with comments after #")
	c.Flags().StringVar(&f.noise, "noise", "", "the `share` of attempts that fail at a target that is well: 0.5%")
	c.Flags().Float64Var(&f.burst, "burst", 0, "mean `number` of failures in a row of the noise (default: each attempt fails independently)")
	c.Flags().BoolVar(&f.history, "history", false, "play the outcomes that the running engine at --address remembers")
	f.recorded = status.Recorded(c)
	c.Flags().StringSliceVar(&f.partial, "partial", []string{"30%", "20%"}, "find targets of which this `share` of attempts fails; may be given several times")
	cli.OutputVar(c.Flags(), &f.output)
	return c
}

func (f *simulation) run(c *cobra.Command, args []string) error {
	given := slices.DeleteFunc([]bool{f.outcomes != "", f.file != "", f.noise != "", f.history}, func(isGiven bool) bool { return !isGiven })
	if len(given) != 1 {
		return cli.UsageError("give one of --outcomes, --outcomes-file, --history and --noise")
	}
	p, managed, err := f.probe(c, args)
	if err != nil {
		return err
	}
	if f.noise != "" {
		return f.compare(c.OutOrStdout(), p, managed)
	}
	outcomes, err := f.given(c.Context(), args)
	if err != nil {
		return err
	}
	return f.play(c.OutOrStdout(), p, managed, outcomes)
}

// probe returns the rule of the probe selected by the arguments, and whether the engine restarts its target.
func (f *simulation) probe(c *cobra.Command, args []string) (r probe.Rule, managed bool, err error) {
	p := handlers.NewPlugins(c.Context(), handlers.WaitForAll, handlers.Warnings(c))
	defer p.Close()
	loaded, diags := f.inputs.Load(c, args[:1], p)
	if err := cli.ShowDiagnostics(c, diags, 1); err != nil {
		return r, false, err
	}
	ids, err := handlers.Choose(loaded, args[1], args[2:])
	switch {
	case err != nil:
		return r, false, err
	case len(ids) > 1:
		return r, false, fmt.Errorf("%d probes match; name one of them: %s", len(ids), ids[0].InTarget())
	}
	r = loaded.Set[ids[0]].Rule
	r.Kind = ids[0].Kind
	if r.Compatibility == probe.Mended {
		r.Compatibility = loaded.Engine.Compatibility
	}
	return r, loaded.Targets[ids[0].Target].Driver != nil, nil
}

// maxOutcomesFile limits the size of the file of --outcomes-file, in bytes.
const maxOutcomesFile = 4 << 20

// given returns the outcomes to play.
func (f *simulation) given(ctx context.Context, args []string) ([]probe.Outcome, error) {
	text := f.outcomes
	switch {
	case f.history:
		_, _, outcomes, err := f.recorded(ctx, args[1], args[2])
		if err != nil {
			return nil, err
		}
		text = probe.FormatOutcomes(outcomes)
	case f.file != "":
		b, err := files.Read(f.file, maxOutcomesFile)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	return parseOutcomes(text)
}

// play shows the transitions of the probe for given outcomes, next to those of alternative rules.
func (f *simulation) play(w io.Writer, r probe.Rule, managed bool, outcomes []probe.Outcome) error {
	all := playAll(r, managed, outcomes)
	if f.output == "json" {
		return cli.WriteJSON(w, all)
	}
	for _, t := range all[0].Transitions {
		restarts := ""
		if t.Restarts {
			restarts = ", and the instance is restarted"
		}
		fmt.Fprintf(w, "attempt %d, after %v: %v%s\n", t.Attempt, time.Duration(t.Attempt-1)*r.Period, t.Verdict, restarts)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tTRANSITIONS\tRESTARTS\tFAILING AFTER")
	for _, p := range all {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d of %d attempts\n", p.Setting, len(p.Transitions), p.Restarts, p.Failing, p.Attempts)
	}
	return table.Flush()
}

// compare shows the quality of the rule under noise, next to that of alternative rules.
func (f *simulation) compare(w io.Writer, r probe.Rule, managed bool) error {
	n := noise{Burst: f.burst}
	var err error
	if n.Failures, err = percentOf("--noise", f.noise); err != nil {
		return err
	}
	if err := n.check(); err != nil {
		return cli.UsageError("%w", err)
	}
	var shares []float64
	for _, text := range f.partial {
		one, err := percentOf("--partial", text)
		if err != nil {
			return err
		}
		shares = append(shares, one)
	}
	all, err := compare(r, n, shares)
	switch {
	case err != nil:
		return err
	case f.output == "json":
		return cli.WriteJSON(w, all)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "SETTING\tOUTAGE FOUND AFTER")
	for _, text := range f.partial {
		fmt.Fprintf(table, "\t%s FAIL, FOUND AFTER\tPASSES AGAIN AFTER", text)
	}
	fmt.Fprintln(table, "\tMISTAKE ONCE IN\tFOR\tAVAILABILITY")
	for _, q := range all {
		fmt.Fprintf(table, "%s\t%d attempts, %v", q.Setting, q.DetectAttempts, lasting(q.DetectSeconds))
		for _, p := range q.Partial {
			fmt.Fprintf(table, "\t%s attempts\t%s attempts", rounded(p.DetectAttempts), rounded(p.PassesAfter))
		}
		fmt.Fprintf(table, "\t%s attempts, %s\t%s\t%s\n", rounded(q.MistakeEvery), lasting(q.MistakeSeconds), lasting(q.DurationSeconds), nines(q.Availability))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if all[0].Rise != nil {
		if err := all[0].Rise.write(w, r); err != nil {
			return err
		}
	}
	if managed && r.Kind == probe.Liveness {
		_, err = fmt.Fprintln(w, "\nEach mistake restarts the target: it then lasts as long as the restart.")
	}
	return err
}

// percentOf parses a percentage, such as "0.5%", and returns it as a share.
func percentOf(flag, text string) (float64, error) {
	number, isPercentage := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !isPercentage || !(percent > 0 && percent < 100) {
		return 0, cli.UsageError("%s %q is not a percentage above 0%% and below 100%%: write 0.5%%", flag, text)
	}
	return percent / 100, nil
}

// rounded formats a number with about three significant digits, and with a word for millions and billions: 23, 1950, 8.04
// million.
func rounded(n float64) string {
	switch {
	case n >= 1e12:
		return fmt.Sprintf("%.3g", n)
	case n >= 1e9:
		return strconv.FormatFloat(n/1e9, 'f', 2, 64) + " billion"
	case n >= 1e6:
		return strconv.FormatFloat(n/1e6, 'f', 2, 64) + " million"
	case n >= 100:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64)
}

// lasting formats a time with a suitable unit: 31s, 4.2h, 2.5 years.
func lasting(seconds float64) string {
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{365.25 * 86400, " years"}, {86400, " days"}, {3600, "h"}, {60, "m"}} {
		if seconds >= 2*unit.seconds {
			return rounded(seconds/unit.seconds) + unit.name
		}
	}
	return strconv.FormatFloat(math.Round(seconds*100)/100, 'f', -1, 64) + "s"
}

// nines formats a share with all its leading nines and two further digits.
func nines(share float64) string {
	digits := 2
	if miss := 1 - share; miss > 0 {
		digits = min(12, max(0, int(math.Ceil(-math.Log10(miss)))-2)+2)
	}
	return strconv.FormatFloat(100*share, 'f', digits, 64) + "%"
}
