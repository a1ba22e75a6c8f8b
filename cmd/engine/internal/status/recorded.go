package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
)

// Recorded asks a running engine for the outcomes that it remembers. Register completes it.
type Recorded struct{ connection connection }

// Register adds the flags that say how to reach the engine.
func (r *Recorded) Register(c *cobra.Command) { r.connection.register(c) }

// RecordedProbe is a probe of a running engine with its outcomes.
type RecordedProbe struct {
	ID       string
	Rule     probe.Rule // without the initial delay
	Outcomes []probe.OutcomeRun
}

// Probe returns the probe of a target that a KIND or KIND/NAME selects. Without one, the target must have
// only one probe that is not a startup probe.
func (r *Recorded) Probe(ctx context.Context, target, selected string) (p RecordedProbe, err error) {
	return ask(ctx, r.connection, func(ctx context.Context, client *api.Client) (RecordedProbe, error) {
		t, err := client.Target(ctx, target)
		if err != nil {
			return p, err
		}
		chosen, err := chooseProbe(t, selected)
		if err != nil {
			return p, err
		}
		h, err := client.History(ctx, target)
		if err != nil {
			return p, err
		}
		p.ID, p.Rule = chosen.ID, ruleOf(chosen)
		i := slices.IndexFunc(h.Outcomes, func(of api.Outcomes) bool { return of.Probe == chosen.ID })
		if i < 0 {
			return p, nil
		}
		if p.Outcomes, err = probe.ParseOutcomes(h.Outcomes[i].Outcomes); err != nil {
			return p, fmt.Errorf("outcomes of probe %s: %w", chosen.ID, err)
		}
		return p, nil
	})
}

// chooseProbe returns the probe of a target that is selected.
func chooseProbe(t api.Target, selected string) (api.Probe, error) {
	var fit []api.Probe
	var names []string
	for _, p := range t.Probes {
		name := strings.TrimPrefix(p.ID, t.Name+":")
		names = append(names, name)
		if selected == name { // one without a name may stand beside others of its kind
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

// ruleOf returns the rule of a probe of the API.
func ruleOf(p api.Probe) probe.Rule {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Round(time.Microsecond) }
	return probe.Rule{
		Kind: p.Kind, Policy: p.Rule.Policy, SuccessThreshold: p.Rule.SuccessThreshold, FailureThreshold: p.Rule.FailureThreshold,
		Period: seconds(p.Rule.PeriodSeconds), Timeout: seconds(p.Rule.TimeoutSeconds),
	}
}
