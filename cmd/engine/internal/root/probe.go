package root

import (
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
)

// probeCommand returns sonde probe. Its exit code is that of the worst outcome.
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

// attempt makes the attempts that the arguments ask for, one after another.
func attempt(c *cobra.Command, in *handlers.Inputs, args []string) ([]cli.Report, error) {
	p := handlers.NewPlugins(c.Context(), handlers.WaitForAll, handlers.Warnings(c))
	defer p.Close()
	loaded, diags := in.Load(args[:1], p)
	if err := cli.ShowDiagnostics(c, diags, cli.ExitNoAttempt); err != nil {
		return nil, err
	}
	ids, err := choose(loaded, args[1], args[2:])
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

// choose returns the probes that the arguments select, sorted.
func choose(c *config.Config, target string, which []string) ([]probe.ID, error) {
	targets, err := chooseTargets(slices.Sorted(maps.Keys(c.Targets)), target)
	if err != nil {
		return nil, err
	}
	var all, chosen []probe.ID
	for id := range c.Set {
		if _, found := slices.BinarySearch(targets, id.Target); found {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, probe.ID.Compare)
	kind, name, named := strings.Cut(strings.Join(which, ""), "/") // "readiness" or "readiness/db"
	for _, id := range all {
		if len(which) == 0 || id.Kind.String() == kind && (!named || id.Name == name) {
			chosen = append(chosen, id)
		}
	}
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case len(targets) > 1:
		return nil, fmt.Errorf("%d targets match %q, none of them has a probe%s", len(targets), target, quoted(which))
	}
	return nil, noProbe(targets[0], which, all)
}

// chooseTargets returns those of the known targets, which are sorted, that have a name or
// match its wildcards.
func chooseTargets(known []string, name string) ([]string, error) {
	if slices.Contains(known, name) {
		return []string{name}, nil
	}
	if !probe.IsGlob(name) {
		return nil, noTarget(name, known)
	}
	selector, err := probe.NewSelector([]string{name}, nil)
	if err != nil {
		return nil, err
	}
	matching := slices.DeleteFunc(known, func(target string) bool { return !selector.Matches(target, nil) })
	if len(matching) == 0 {
		return nil, fmt.Errorf("no target matches %q", name)
	}
	return matching, nil
}

// quoted returns a space and the argument, if there is one.
func quoted(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return fmt.Sprintf(" %q", args[0])
}

// maxExamples bounds the names in an error that has examples of them.
const maxExamples = 3

// noTarget returns the error about a name that is none of the known targets.
func noTarget(target string, known []string) error {
	if i := strings.LastIndex(target, ":"); i >= 0 && slices.Contains(known, target[:i]) { // an ID from the output, such as web:liveness
		return fmt.Errorf("there is no target %q; target and probe are two arguments: %s %s", target, target[:i], target[i+1:])
	}
	var elements []string
	for _, name := range known {
		if strings.HasPrefix(name, target+"[") {
			elements = append(elements, name)
		}
	}
	if n := len(elements); n > 0 {
		examples, more := elements, ""
		if n > maxExamples {
			examples, more = elements[:maxExamples], ", …"
		}
		return fmt.Errorf("there is no target %q, but %d that for_each made of it: %s%s; name one of them, or all: '%s[*]'",
			target, n, strings.Join(examples, ", "), more, target)
	}
	return fmt.Errorf("there is no target %q%s", target, cli.DidYouMean(target, known))
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
