package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
)

// Recorded adds the connection flags to a command. It returns a function that queries the engine for a probe's ID, its rule
// without the initial delay, and its recorded outcomes. selected is KIND or KIND/NAME; if it is empty, the target must have
// exactly one probe that is not a startup probe.
func Recorded(c *cobra.Command) func(ctx context.Context, target, selected string) (id string, r probe.Rule, outcomes []probe.OutcomeRun, err error) {
	var f connection
	f.register(c)
	return func(ctx context.Context, target, selected string) (id string, r probe.Rule, outcomes []probe.OutcomeRun, err error) {
		_, err = ask(ctx, f, func(ctx context.Context, client *api.Client) (none struct{}, err error) {
			t, err := client.Target(ctx, target)
			if err != nil {
				return none, err
			}
			chosen, err := chooseProbe(t, selected)
			if err != nil {
				return none, err
			}
			h, err := client.History(ctx, target)
			if err != nil {
				return none, err
			}
			id, r = chosen.ID, ruleOf(chosen)
			for _, of := range h.Outcomes {
				if of.Probe == id {
					outcomes, err = probe.ParseOutcomes(of.Outcomes)
				}
			}
			if err != nil {
				err = fmt.Errorf("outcomes of probe %s: %w", id, err)
			}
			return none, err
		})
		return id, r, outcomes, err
	}
}

// chooseProbe returns the selected probe of a target.
func chooseProbe(t api.Target, selected string) (api.Probe, error) {
	var fit []api.Probe
	var names []string
	for _, p := range t.Probes {
		name := strings.TrimPrefix(p.ID, t.Name+":")
		names = append(names, name)
		if selected == name { // an exact match: a probe without a name may have named siblings of the same kind
			return p, nil
		}
		if selected == p.Kind.String() || selected == "" && p.Kind != probe.Startup {
			fit = append(fit, p)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(names) == 0:
		return api.Probe{}, errors.New("the target has no probes")
	case len(fit) == 0:
		return api.Probe{}, fmt.Errorf("the target has no probe %q; it has %s", selected, strings.Join(names, ", "))
	}
	return api.Probe{}, fmt.Errorf("several probes match; name one of them: %s", strings.Join(names, ", "))
}

// ruleOf returns the rule of an API probe.
func ruleOf(p api.Probe) probe.Rule {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Round(time.Microsecond) }
	return probe.Rule{
		Kind: p.Kind, Policy: p.Rule.Policy, SuccessThreshold: p.Rule.SuccessThreshold, FailureThreshold: p.Rule.FailureThreshold,
		Period: seconds(p.Rule.PeriodSeconds), Timeout: seconds(p.Rule.TimeoutSeconds),
	}
}
