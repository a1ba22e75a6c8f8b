package simulate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/status"
	"github.com/sonde-probe/sonde/probe"
)

// advising holds the flags of sonde tune.
type advising struct {
	recorded    recorder
	falseAlarms string
	detect      time.Duration
	output      string
}

func tuneCommand() *cobra.Command {
	var f advising
	c := &cobra.Command{
		Use:   "tune TARGET [KIND[/NAME]]",
		Short: "Propose thresholds for a probe of a running engine, by its recorded outcomes",
		Long: "Tune estimates from the outcomes that a running engine remembers of a probe which share of attempts\n" +
			"fails although the target is well, and whether failures come in bursts. Then it shows which failure\n" +
			"thresholds find an outage in time and have few enough false alarms, and whether the policy \"evidence\"\n" +
			"does. A run of failures that lasts as long as --detect is an outage; shorter ones are noise.\n\n" +
			"A setting is proposed only if it keeps both bounds also at the upper end of the interval in which the\n" +
			"share is, with a confidence of 95 %. If the history is too short for that, tune says how long it must be.\n" +
			"Nothing is changed.",
		Example: "  sonde tune shop/web --false-alarms 1/year --detect 30s\n  sonde tune shop/web readiness/db --false-alarms 2/month --detect 2m -o json",
		Args:    cli.Args(1, 2, "TARGET is required, and KIND/NAME may follow"),
		RunE:    func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.recorded = status.Recorded(c)
	c.Flags().StringVar(&f.falseAlarms, "false-alarms", "1/year", "`number` of false alarms at most, in an hour, day, week, month or year")
	cli.DurationVar(c.Flags(), &f.detect, "detect", time.Minute, "`time` within which an outage must be found")
	cli.OutputVar(c.Flags(), &f.output)
	return c
}

func (f *advising) run(c *cobra.Command, args []string) error {
	rate, err := parseRate(f.falseAlarms)
	if err != nil {
		return err
	}
	if f.detect <= 0 || f.detect > probe.MaxDuration {
		return cli.UsageError("--detect %v is not from 1ms to %s", f.detect, probe.FormatDuration(probe.MaxDuration))
	}
	selected := ""
	if len(args) == 2 {
		selected = args[1]
	}
	id, rule, outcomes, err := f.recorded(c.Context(), args[0], selected)
	if err != nil {
		return err
	}
	t, err := tune(rule, outcomes, goal{FalseAlarms: rate, Detect: f.detect})
	switch {
	case err != nil:
		return err
	case f.output == "json":
		return cli.WriteJSON(c.OutOrStdout(), t)
	}
	return f.show(c.OutOrStdout(), id, rule, t)
}

// units are the units of a rate of false alarms, in seconds.
var units = map[string]float64{"hour": 3600, "day": 86400, "week": 7 * 86400, "month": 365.25 * 86400 / 12, "year": 365.25 * 86400}

// parseRate parses a rate such as "1/year", and returns it per second.
func parseRate(text string) (float64, error) {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(number, 64)
	if seconds, known := units[unit]; err == nil && known && n > 0 && n <= 1e6 {
		return n / seconds, nil
	}
	return 0, cli.UsageError("--false-alarms %q is not a rate: write 1/year, 2/month, 1/week, 0.5/day or 1/hour", text)
}

// show writes the results as text.
func (f *advising) show(w io.Writer, id string, r probe.Rule, t tuned) error {
	e := t.Noise
	outages := "outages"
	if e.Outages == 1 {
		outages = "outage"
	}
	fmt.Fprintf(w, "%s: %d attempts are remembered; %d failed, apart from %d %s.\n", id, e.Attempts, e.Failures, e.Outages, outages)
	fmt.Fprintf(w, "Of the attempts at the target while it is well, %s fail (95 %%: %s to %s).\n", percentage(e.Share.Estimate), percentage(e.Share.Low), percentage(e.Share.High))
	switch {
	case e.Bursts:
		fmt.Fprintf(w, "Failures come in bursts of %s in a row (95 %%: %s to %s).\n", rounded(e.Burst.Estimate), rounded(e.Burst.Low), rounded(e.Burst.High))
	case e.Follow.High > 0.3:
		fmt.Fprintf(w, "They are too few to say whether they come in bursts: that they are independent is assumed.\n")
	default:
		fmt.Fprintf(w, "They are independent of each other as far as these show.\n")
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tOUTAGE FOUND AFTER\tFALSE ALARM ONCE IN\tAT LEAST\tALARMS REMEMBERED\tKEEPS BOTH BOUNDS")
	for _, s := range t.Settings {
		name, likely, keeps := s.Setting, "none seen", "no"
		if s.Configured {
			name += " (in use)"
		}
		if s.FalseAlarmSeconds > 0 {
			likely = lasting(s.FalseAlarmSeconds)
		}
		if s.Keeps {
			keeps = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", name, lasting(s.DetectSeconds), likely, lasting(s.AtLeastSeconds), s.Alarms, keeps)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", f.advice(r, t))
	return err
}

// advice returns the proposed configuration, or why there is none.
func (f *advising) advice(r probe.Rule, t tuned) string {
	goal := fmt.Sprintf("at most %s false alarms and outages found within %v", f.falseAlarms, f.detect)
	switch {
	case t.AttemptsNeeded > 0:
		return fmt.Sprintf("The history is too short for %s. If the noise goes on as it is, about %d attempts are needed, %s.", goal, t.AttemptsNeeded, lasting(float64(t.AttemptsNeeded)*r.Period.Seconds()))
	case len(t.Proposals) == 0:
		return fmt.Sprintf("The noise is too high for %s at a period of %v: allow more time or more false alarms, make the period shorter, or look for the cause of the failures.", goal, r.Period)
	}
	var write []string
	for _, name := range t.Proposals {
		text := `policy = "evidence"`
		if threshold, isRuns := strings.CutPrefix(name, "runs "); isRuns {
			failures, _, _ := strings.Cut(threshold, "/")
			text = "failure_threshold = " + failures
		}
		write = append(write, text)
	}
	return fmt.Sprintf("For %s write %s.", goal, strings.Join(write, " or "))
}

// percentage formats a share with two significant digits: 0.58%.
func percentage(share float64) string {
	digits := 0
	if share > 0 && share < 1 {
		digits = max(0, 1-int(math.Floor(math.Log10(100*share))))
	}
	return strconv.FormatFloat(100*share, 'f', digits, 64) + "%"
}
