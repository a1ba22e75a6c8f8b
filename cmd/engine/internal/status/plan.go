package status

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// exitChanges is the exit code of sonde plan if a reload would change something, as with terraform plan -detailed-exitcode.
const exitChanges = 2

// planCommand returns the command sonde plan.
func planCommand() *cobra.Command {
	var f connection
	output := ""
	c := &cobra.Command{
		Use:   "plan [CONFIG...]",
		Short: "Show what a reload would do to a running engine",
		Long: "Plan shows what a reload would do now, and changes nothing: targets and probes that would be added,\n" +
			"changed or removed, the arguments that differ, the processes that would be started, restarted or\n" +
			"ended, and whether reload_guard would forbid it. Values of sensitive arguments are not shown.\n\n" +
			"The engine reads the files, with its variables, its environment and its rights: those that it was\n" +
			"started with, or CONFIG, files or directories of this machine.\n\n" +
			"The exit code is 0 if nothing would change, 2 if something would, 1 if a reload would be rejected or\n" +
			"the engine cannot be asked, and 64 for wrong usage.\n\n" + controlHelp,
		Example: "  sonde plan\n  sonde plan /etc/sonde.new -o json",
		RunE: func(c *cobra.Command, args []string) error {
			paths, err := absolute(args)
			if err != nil {
				return noPlan(err)
			}
			interrupted := false
			p, err := withController(c, f, func(ctx context.Context, client *api.Client) (api.Plan, error) {
				progress := cli.StartProgress(c.ErrOrStderr(), "waiting until the engine has planned")
				defer progress.Stop()
				client.Engine = nil // the engine's name is not printed, since nothing changes
				p, err := client.Plan(ctx, paths)
				interrupted = ctx.Err() != nil
				return p, err
			})
			if interrupted && err != nil { // the usual advice does not apply: a plan leaves nothing behind
				err = errors.New("interrupted")
			}
			if err != nil {
				return noPlan(err)
			}
			return showPlan(c, p, output == "json")
		},
	}
	cli.MarkAttempts(c)
	f.register(c)
	cli.OutputVar(c.Flags(), &output)
	return c
}

// noPlan returns the error of a failed plan with an exit code that cannot be mistaken for exitChanges.
func noPlan(err error) error {
	if usage, ok := errors.AsType[*cli.ExitError](err); ok && usage.Code == cli.ExitUsage {
		return &cli.ExitError{Code: cli.ExitNoAttempt, Err: usage.Err}
	}
	return &cli.ExitError{Code: cli.ExitFailed, Err: err}
}

// absolute returns absolute paths, since the engine may have another working directory.
func absolute(paths []string) (out []string, err error) {
	for _, path := range paths {
		if path == cli.Stdin {
			return nil, cli.UsageError("the engine cannot read standard input: name a file")
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		out = append(out, path)
	}
	return out, nil
}

// showPlan writes a plan, and returns the error with its exit code.
func showPlan(c *cobra.Command, p api.Plan, asJSON bool) error {
	switch err := show(c, p, asJSON, p.Problems, PlanText(cli.ScreenOf(c.OutOrStdout()), p)); {
	case err != nil:
		return err
	case p.Error != nil && asJSON:
		return cli.ErrReported(cli.ExitFailed)
	case p.Error != nil:
		return &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("a reload would be rejected: %s", p.Error.Message)}
	case p.Changed:
		return cli.ErrReported(exitChanges)
	}
	return nil
}

// signs are the signs at the start of a plan's lines, by action.
var signs = map[string]string{"added": "+", "changed": "~", "updated": "~", "replaced": "~", "removed": "-"}

// effects describe the changes to a probe or an instance.
var effects = map[string]string{
	"updated": "keeps its state", "replaced": "starts a new run",
	"start": "starts its process", "restart": "restarts its process", "end": "ends its process",
}

// signColors are the colours of the signs on a terminal.
var signColors = map[byte]cli.Color{'+': cli.Green, '~': cli.Yellow, '-': cli.Red}

// paintSigns colours the lines that begin with a sign.
func paintSigns(on cli.Screen, text string) string {
	var s strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		body := strings.TrimLeft(line, " ")
		if len(body) > 1 && body[1] == ' ' {
			line = line[:len(line)-len(body)] + on.Paint(signColors[body[0]], body)
		}
		s.WriteString(line + "\n")
	}
	return s.String()
}

// PlanText formats a plan, with a line for each target, probe and argument.
func PlanText(on cli.Screen, p api.Plan) string {
	var s strings.Builder
	line := func(indent int, sign, name, effect string) {
		text := strings.Repeat(" ", indent) + sign + " " + probe.OneLine(name, maxID)
		if effect != "" {
			text += "  (" + effect + ")"
		}
		fmt.Fprintln(&s, text)
	}
	for _, t := range p.Changes {
		line(0, signs[t.Action], t.Name, effects[t.Instance])
		writeArguments(&s, 4, t.Arguments)
		for _, one := range t.Probes {
			if t.Action != "changed" { // the target's line is enough
				continue
			}
			effect := effects[one.Action]
			if one.Moved {
				effect = "is undecided: it probes another address"
			}
			line(4, signs[one.Action], one.ID, effect)
			writeArguments(&s, 8, one.Arguments)
		}
	}
	if p.Omitted > 0 {
		fmt.Fprintf(&s, "… and %s more\n", cli.Plural(p.Omitted, "target"))
	}
	s.WriteString(blocksText(p.Blocks))
	if len(p.Settings) > 0 {
		line(0, "~", "engine", "")
		writeArguments(&s, 4, p.Settings)
	}
	if p.Error == nil || p.Changed {
		s.WriteString(summary(p))
	}
	return paintSigns(on, s.String())
}

func writeArguments(s *strings.Builder, indent int, all []api.ArgumentChange) {
	for _, a := range all {
		fmt.Fprintf(s, "%*s%s: %s → %s", indent, "", probe.OneLine(a.Name, maxID), value(a.Before), value(a.After))
		if a.Restart {
			s.WriteString("  (when the engine is started again)")
		}
		s.WriteString("\n")
	}
}

// value formats the value of an argument for display.
func value(text string) string {
	if text == "" {
		return "not set"
	}
	return probe.OneLine(text, maxID)
}

// summary returns the counts of a plan.
func summary(p api.Plan) string {
	if !p.Changed {
		text := fmt.Sprintf("no changes: %s, %s\n", cli.Plural(p.Targets.Kept, "target"), cli.Plural(p.Probes.Kept, "probe"))
		if p.Partial {
			text += "the configuration in use was not saved: changes to restarts and to the engine block are unknown\n"
		}
		return text
	}
	t := p.Targets
	text := fmt.Sprintf("targets: %d added, %d changed, %d removed, %d kept\nprobes: %s\n", t.Added, t.Changed, t.Removed, t.Kept, counts(&p.Probes))
	return text + instancesText(p.Instances)
}

// blocksText returns a line for each change of a block.
func blocksText(changes []api.BlockChange) string {
	var s strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&s, "%s %s %s\n", signs[c.Action], c.Type, probe.OneLine(c.Name, maxID))
		writeArguments(&s, 4, c.Arguments)
	}
	return s.String()
}

// instancesText returns a line about started, restarted and ended processes, or "" if there are none.
func instancesText(i api.InstanceChanges) string {
	if i == (api.InstanceChanges{}) {
		return ""
	}
	return fmt.Sprintf("processes: %d started, %d restarted, %d ended\n", i.Started, i.Restarted, i.Ended)
}
