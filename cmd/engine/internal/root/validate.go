package root

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart/container"
)

// validateCommand returns the command sonde validate. The exit code is 0 for a valid configuration, else 1. Without a store, a
// configuration with a cluster block is not valid.
func validateCommand(hasStore bool) *cobra.Command {
	in := handlers.Inputs{LookUp: true, NoCluster: !hasStore}
	var asJSON, strict bool
	c := &cobra.Command{
		Use:   "validate [CONFIG...]",
		Short: "Check a configuration and start nothing",
		Long: "Validate checks files, or directories of *.hcl and *.hcl.json files; default " + handlers.DefaultConfig + ".\n" +
			"It shows all errors and warnings, and exits with 1 if there are errors.\n\n" +
			"Programs, directories and users are looked up on this machine: one that does not exist is a warning,\n" +
			"since the configuration may be for another machine. With --strict, warnings are errors.\n\n" +
			"The settings of a plugin are checked against its manifest, and by the plugin itself if it has such a\n" +
			"check, which runs without any grant.\n\n" +
			"Of a container it says who restarts it: its runtime, if the container has a restart policy, or Sonde.",
		Example: "  sonde validate --var env=prod /etc/sonde",
		RunE:    func(c *cobra.Command, paths []string) error { return validate(c, &in, paths, asJSON, strict) },
	}
	in.Register(c)
	in.RegisterCompose(c)
	c.Flags().BoolVar(&asJSON, "json", false, "write the diagnostics as JSON to standard output")
	c.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return c
}

func validate(c *cobra.Command, in *handlers.Inputs, paths []string, asJSON, strict bool) error {
	loaded, diags := in.Load(c, paths, handlers.NewPlugins(c.Context(), handlers.WaitForChecks, handlers.Silent))
	if strict {
		for i := range diags {
			diags[i].IsWarning = false
		}
	}
	if asJSON {
		if err := diags.WriteJSON(c.OutOrStdout()); err != nil || !diags.HasErrors() {
			return err
		}
		return cli.ErrReported(cli.ExitFailed)
	}
	if err := cli.ShowDiagnostics(c, diags, cli.ExitFailed); err != nil {
		return err
	}
	for _, line := range append(deafHints(loaded.Set), restartNotes(c.Context(), loaded.Targets)...) {
		fmt.Fprintln(c.ErrOrStderr(), line)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s: valid, %s, %s\n",
		strings.Join(in.Paths(paths), ", "), cli.Plural(len(loaded.Targets), "target"), cli.Plural(len(loaded.Set), "probe"))
	return err
}

// Limits of restartNotes.
const (
	maxRestartNotes   = 20
	restartNotesLimit = 2 * time.Second // for the responses of all runtimes
)

// restartNotes returns a line for each container about who restarts it. A container's own restart policy takes precedence.
func restartNotes(ctx context.Context, targets map[string]config.Target) (lines []string) {
	ctx, cancel := context.WithTimeout(ctx, restartNotesLimit)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		c, isContainer := targets[name].Driver.(container.Config)
		if !isContainer {
			continue
		}
		if len(lines) == maxRestartNotes {
			return append(lines, "… and more containers")
		}
		lines = append(lines, fmt.Sprintf("container of %s: if a startup or liveness probe fails, %s", name, c.WhoRestarts(ctx)))
	}
	return lines
}

// deafHints returns hints about probes that also pass while the program hangs: all probes of a target, or its liveness
// probe. They are not warnings, since some programs offer nothing else to check.
func deafHints(set probe.Set) []string {
	var deaf []probe.ID
	hears := map[string]bool{} // targets with a probe that fails while the program hangs
	for id, p := range set {
		if h, ok := p.Handler.(interface{ KernelAnswers() bool }); ok && h.KernelAnswers() {
			deaf = append(deaf, id)
		} else {
			hears[id.Target] = true
		}
	}
	var all, live []string
	for _, id := range deaf {
		switch {
		case !hears[id.Target]:
			all = append(all, id.Target)
		case id.Kind == probe.Liveness:
			live = append(live, id.Target)
		}
	}
	return append(deafHint("no probe of %s fails while the program hangs", all), deafHint("the liveness probe of %s succeeds also while the program hangs", live)...)
}

// deafHint returns the hint about such probes of some targets, if there are any. In format %s is for the targets.
func deafHint(format string, targets []string) []string {
	if len(targets) == 0 {
		return nil
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	of := targets[0]
	if len(targets) > 1 {
		of += fmt.Sprintf(" and %d more", len(targets)-1)
	}
	return []string{fmt.Sprintf("hint: "+format+", since the kernel answers for it: expect an answer of the program (expect in tcp, or http)", of)}
}
