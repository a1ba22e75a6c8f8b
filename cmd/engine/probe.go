package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

const probeName = "probe"

// Exit codes of sonde probe.
const (
	exitSuccess   = 0
	exitWarning   = 1
	exitFailure   = 2
	exitUnknown   = 3
	exitNoAttempt = 64 // EX_USAGE in sysexits(3): no attempt was made
)

// probeCommand is sonde probe. Its exit code is that of the worst outcome.
func probeCommand() *cobra.Command {
	var in inputs
	var asJSON bool
	c := &cobra.Command{
		Use:   probeName + " CONFIG TARGET [KIND[/NAME]]",
		Short: "Make one attempt, exactly as a running engine would",
		Long: "Probe makes one attempt with each probe of a target, or with those of one kind (startup, readiness\n" +
			"or liveness), or with one of that kind, and shows what it found and where the time went.\n" +
			"It starts no process and restarts nothing.\n\n" +
			"The exit code is that of the worst outcome: 0 success, 1 warning, 3 unknown, 2 failure, in this\n" +
			"order. It is 64 when no attempt was made: the configuration is wrong, or has no such target.",
		Example: "  sonde probe config.hcl shop/web liveness\n  sonde probe config.hcl 'web[\"a\"]' readiness/db --json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return errors.New("a CONFIG and a TARGET are needed, and at most one KIND")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			reports, err := attempts(c, &in, args)
			if err != nil {
				return err
			}
			if err := show(c, reports, asJSON); err != nil {
				return err
			}
			return worst(reports)
		},
	}
	in.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "write a list of results as JSON")
	return c
}

// attempts makes the attempts that the arguments ask for, one after another.
func attempts(c *cobra.Command, in *inputs, args []string) ([]report, error) {
	p := newPlugins(c.Context(), waitForAll, warnings(c))
	defer p.end()
	loaded, err := in.loadOrTell(c, args[:1], p, exitNoAttempt)
	if err != nil {
		return nil, err
	}
	ids, err := choose(loaded, args[1], args[2:])
	if err != nil {
		return nil, &exitError{exitNoAttempt, err}
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var reports []report
	for _, id := range ids {
		reports = append(reports, once(ctx, id, loaded))
	}
	return reports, nil
}

func once(ctx context.Context, id probe.ID, c *config.Config) report {
	p := c.Set[id]
	p.Target.Name, p.Rule.Kind = id.Target, id.Kind
	if p.Rule.Compatibility == probe.Mended {
		p.Rule.Compatibility = c.Engine.Compatibility
	}
	return report{id, engine.Once(ctx, p)}
}

// choose returns the probes that the arguments mean, in order.
func choose(c *config.Config, target string, which []string) ([]probe.ID, error) {
	if _, found := c.Targets[target]; !found {
		return nil, fmt.Errorf("there is no target %q%s", target, didYouMean(target, targets(c)))
	}
	var all, chosen []probe.ID
	for id := range c.Set {
		if id.Target == target {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, probe.ID.Compare)
	for _, id := range all {
		if len(which) == 0 || matches(id, which[0]) {
			chosen = append(chosen, id)
		}
	}
	if len(chosen) == 0 {
		return nil, noProbe(target, which, all)
	}
	return chosen, nil
}

// matches reports whether an argument such as "readiness" or "readiness/db"
// means a probe.
func matches(id probe.ID, which string) bool {
	kind, name, named := strings.Cut(which, "/")
	return id.Kind.String() == kind && (!named || id.Name == name)
}

func noProbe(target string, which []string, all []probe.ID) error {
	if len(which) == 0 || len(all) == 0 {
		return fmt.Errorf("target %q has no probes", target)
	}
	var has []string
	for _, id := range all {
		has = append(has, strings.TrimPrefix(id.String(), target+":"))
	}
	return fmt.Errorf("target %q has no probe %q, it has %s", target, which[0], strings.Join(has, ", "))
}

func targets(c *config.Config) []string {
	var names []string
	for name := range c.Targets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// report is what one attempt found.
type report struct {
	id     probe.ID
	result probe.Result
}

// show writes the reports.
func show(c *cobra.Command, reports []report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(reports)
	}
	for _, r := range reports {
		if _, err := fmt.Fprint(c.OutOrStdout(), r); err != nil {
			return err
		}
	}
	return nil
}

// worst returns the exit code of the worst outcome as an error, or nil. A
// failure is worse than an attempt that could not be made.
func worst(reports []report) error {
	order := []probe.Outcome{probe.Success, probe.Warning, probe.Unknown, probe.Failure}
	codes := []int{exitSuccess, exitWarning, exitUnknown, exitFailure}
	most := 0
	for _, r := range reports {
		most = max(most, slices.Index(order, r.result.Outcome))
	}
	if most == 0 {
		return nil
	}
	return told(codes[most])
}
