// Package status implements the commands that query or change a running engine: sonde status, which shows its targets and
// probes, explain, history, plan, reload and others.
//
//	status.go    the command and its output modes: once, as a table on a terminal, as events
//	connect.go   how an engine is found and reached
//	table.go     the table and the lines below it
//	grid.go      fits the table to the terminal
//	explain.go   explains why a target is in its state
//	history.go   the transitions of a target
//	plan.go      previews a reload
//	reload.go    reloads the configuration
//	operate.go   restarts, stops and starts targets
//	pause.go     pauses and unpauses targets
//	beat.go      sends a beat
//	notify.go    sends a test notice
//	recorded.go  the recorded outcomes of a probe
//	cluster.go   sonde cluster: the engines that share targets
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// exitInTrouble is the exit code of sonde status --exit-code if a target is in trouble.
const exitInTrouble = 3

type flags struct {
	connection
	watch    bool
	output   string
	sort     string
	failing  bool
	exitCode bool
	labels   []string
	group    string
}

// Commands returns the commands that query an engine about its targets, or change it.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		statusCommand(), historyCommand(), explainCommand(), planCommand(), reloadCommand(), restartCommand(), stopCommand(),
		startCommand(), pauseCommand(), unpauseCommand(), testNotifyCommand(), beatCommand(),
	}
}

// statusCommand returns the command sonde status.
func statusCommand() *cobra.Command {
	var f flags
	asJSON := false
	c := &cobra.Command{
		Use:   "status [TARGET]",
		Short: "Show the targets and probes of a running engine",
		Long: "Status shows for each probe its verdict, the current run of equal outcomes towards another one\n" +
			"(\"2/3 failure\"), the time until the next attempt, and the result of the last one. On a narrow terminal\n" +
			"the results keep the room, and other columns go.\n\n" +
			"Targets in trouble come first, the worst state first. In TARGET, * stands for any text and ? for\n" +
			"one character.",
		Example: "  sonde status --watch\n  sonde status --failing -o wide\n  sonde status shop/web --json\n  sonde status 'shop/*' --label team=checkout --label tier!=canary",
		Args:    cli.Args(0, 1, "at most one TARGET is allowed"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if _, err := probe.NewSelector(nil, f.labels); err != nil {
				return cli.UsageError("--label: %v", strings.TrimPrefix(err.Error(), "labels has the "))
			}
			if asJSON {
				f.output = "json"
			}
			if err := f.check(cli.IsTerminal(c.OutOrStdout())); err != nil {
				return err
			}
			return run(ctx, c.OutOrStdout(), f, strings.Join(args, ""))
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.group, "group", "", "only members of the `group`")
	c.Flags().StringArrayVar(&f.labels, "label", nil, "only targets with the label `name=value`, or without it: name!=value; can be repeated")
	c.Flags().BoolVar(&f.watch, "watch", false, "keep running: redraw the table on a terminal, otherwise write a line for each probe and each change")
	c.Flags().BoolVar(&f.failing, "failing", false, "only targets in trouble: failing, crash-looping, degraded and so on")
	cli.WordVar(c.Flags(), &f.sort, "sort", "", "", "`order` of targets: trouble or name (default trouble, name with -o json and -o name)", "trouble", "name")
	cli.WordVar(c.Flags(), &f.output, "output", "o", "table", "`format`: table, wide, json or name", "table", "wide", "json", "name")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON, as the API does: -o json")
	c.Flags().BoolVar(&f.exitCode, "exit-code", false, fmt.Sprintf("exit with code %d when a target is in trouble", exitInTrouble))
	return c
}

// check validates the flags and sets their defaults. --watch shows a table on a terminal; elsewhere it follows probe events,
// which cannot be filtered by the state of targets.
func (f *flags) check(terminal bool) error {
	switch {
	case f.watch && f.output == "name":
		return cli.UsageError("--watch cannot show names only: use -o table, wide or json")
	case f.watch && f.failing && (!terminal || f.output == "json"):
		return cli.UsageError("--watch follows all targets where there is no table: leave out --failing, or use a terminal")
	}
	if f.sort == "" && f.isTable() {
		f.sort = "trouble"
	}
	return nil
}

func (f flags) isTable() bool { return f.output == "table" || f.output == "wide" }

func run(ctx context.Context, w io.Writer, f flags, target string) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	s := viewer{flags: f, client: client, out: w}
	switch {
	case probe.IsGlob(target) || target != "" && (len(f.labels) > 0 || f.group != "" || f.failing):
		s.names = []string{target}
	default:
		s.target = target
	}
	switch {
	case f.watch && f.isTable() && cli.IsTerminal(w):
		return s.redraw(ctx)
	case f.watch:
		return s.follow(ctx, f.output == "json")
	}
	return s.once(ctx)
}

// viewer shows a running engine.
type viewer struct {
	flags
	client *api.Client
	out    io.Writer
	target string   // the only target to show; "" for those selected by names and labels
	names  []string // as in api.Query; none for all
}

// query returns the query for the targets to show.
func (s viewer) query(limit int) api.Query {
	return api.Query{Probes: true, Limit: limit, Names: s.names, Labels: s.labels, Group: s.group, Trouble: s.failing, Sort: s.sort}
}

// once shows the current status once.
func (s viewer) once(ctx context.Context) error {
	all, err := s.targets(ctx)
	if err != nil {
		return advise(s.client, err)
	}
	if err := s.write(ctx, all); err != nil {
		return err
	}
	if s.exitCode && len(all.Targets) == 0 {
		if err := s.checkSelection(ctx); err != nil {
			return err
		}
	}
	for _, t := range all.Targets {
		if s.exitCode && t.InTrouble {
			return cli.ErrReported(exitInTrouble)
		}
	}
	return nil
}

// checkSelection returns an error if names, labels and group match no target at all, whether in trouble or not.
func (s viewer) checkSelection(ctx context.Context) error {
	if s.failing = false; !s.selects() {
		return nil
	}
	any, err := s.page(ctx, s.query(1))
	switch {
	case err != nil:
		return advise(s.client, err)
	case len(any.Targets) == 0:
		return errors.New("no target matches, and --exit-code needs at least one; sonde status shows all targets")
	}
	return nil
}

// selects reports whether the targets are filtered by names, labels or group.
func (s viewer) selects() bool { return s.group != "" || len(s.names)+len(s.labels) > 0 }

func (s viewer) write(ctx context.Context, all api.Targets) error {
	switch {
	case s.output == "name":
		_, err := io.WriteString(s.out, names(all.Targets))
		return err
	case s.isTable():
		on := cli.ScreenOf(s.out)
		_, err := io.WriteString(s.out, s.none(len(all.Targets))+table(all.Targets, time.Now(), on, s.output == "wide")+s.foot(ctx, on, all.Targets, maxGroupLines))
		return err
	case s.target != "":
		return cli.WriteJSON(s.out, all.Targets[0])
	}
	return cli.WriteJSON(s.out, all)
}

// none returns a line that explains why no target is shown, or "" if there are targets.
func (s viewer) none(targets int) string {
	selected := s.selects()
	switch {
	case targets > 0:
		return ""
	case s.failing && !selected:
		return "no target is in trouble\n"
	case s.failing || selected:
		return "no target matches\n"
	}
	return "the engine has no targets\n"
}

// targets returns the targets to show, with their probes, as one page.
func (s viewer) targets(ctx context.Context) (all api.Targets, err error) {
	all.Targets = []api.Target{} // an empty list in JSON, not null
	for q := s.query(api.MaxListed); ; {
		page, err := s.page(ctx, q)
		if err != nil {
			return all, err
		}
		all.Targets, all.Counts = append(all.Targets, page.Targets...), page.Counts
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	all.Total = len(all.Targets)
	return all, nil
}

// page returns the only target to show, or one page of all targets. It fails if the engine does not respond within
// requestTimeout.
func (s viewer) page(ctx context.Context, q api.Query) (api.Targets, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if s.target == "" {
		return s.client.Targets(ctx, q)
	}
	t, err := s.client.Target(ctx, s.target)
	return api.Targets{Targets: []api.Target{t}, Total: 1}, err
}

// redrawPeriod is the time between two requests to the engine.
const redrawPeriod = time.Second

// redraw shows the table on a terminal until ctx is done. Errors are shown in place of the table, since the engine may become
// reachable again.
func (s viewer) redraw(ctx context.Context) error {
	tick := time.NewTicker(redrawPeriod)
	defer tick.Stop()
	for {
		text, err := s.screen(ctx)
		if err != nil {
			text = advise(s.client, err).Error() + "\n"
		}
		if _, err := io.WriteString(s.out, "\x1b[H\x1b[J"+text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// screen returns the part of the table that fits on the terminal. It requests no more targets than fit.
func (s viewer) screen(ctx context.Context) (string, error) {
	on := cli.ScreenOf(s.out)
	page, err := s.page(ctx, s.query(min(on.Height, api.MaxListed)))
	if err != nil {
		return "", err
	}
	foot := s.foot(ctx, on, page.Targets, min(on.Height/4, maxGroupLines))
	if page.Next != "" {
		foot = fmt.Sprintf("… and %d more targets\n", page.Total-len(page.Targets)) + foot
	}
	return s.none(len(page.Targets)) + fill(table(page.Targets, time.Now(), on, s.output == "wide"), foot, on.Height), nil
}

// follow writes a line for each probe, and then a line for each change, until ctx is done.
func (s viewer) follow(ctx context.Context, asJSON bool) error {
	for event, err := range s.client.Events(ctx, api.EventOptions{Target: s.target, Group: s.group, Names: s.names, Labels: s.labels, Snapshot: true}) {
		if err != nil {
			return advise(s.client, err)
		}
		if err := s.line(event, asJSON); err != nil {
			return err
		}
	}
	return nil
}

// foot returns the lines below the table: about logs, groups, gateways, discoveries, maintenances, the cluster and notifiers,
// at most most lines of each, and about the engine itself. It includes only lines that are relevant to the targets shown.
func (s viewer) foot(ctx context.Context, on cli.Screen, targets []api.Target, most int) string {
	now, text := time.Now(), logLines(on, targets, most)
	if s.target != "" {
		text += instanceLines(on, targets, now)
	} else {
		if all, err := s.client.Groups(ctx); err == nil {
			text += groupLines(on, all.Groups, s.group, most)
		}
		if all, err := s.client.Gateways(ctx); err == nil {
			text += gatewayLines(on, all.Gateways, s.group, most, now)
		}
		if all, err := s.client.Discoveries(ctx); err == nil && s.group == "" {
			text += discoveryLines(on, all.Discoveries, most, now)
		}
		if all, err := s.client.Maintenances(ctx); err == nil {
			text += maintenanceLines(on, all.Maintenances, most, now)
		}
	}
	if s.target == "" && s.group == "" {
		if c, err := s.client.Cluster(ctx); err == nil && c.Name != "" {
			text += on.Wrap(clusterLine(c, now), indent)
		}
		if all, err := s.client.Notifiers(ctx); err == nil {
			text += notifierLines(on, all.Notifiers, most, now)
		}
	}
	if stats, err := s.client.Stats(ctx); err == nil {
		text += engineLines(on, stats)
	}
	return text
}

func (s viewer) line(e api.Event, asJSON bool) error {
	p := e.Probe
	if asJSON {
		return json.NewEncoder(s.out).Encode(p)
	}
	is := verdictOf(p)
	if e.Type == api.RemovedEvent {
		is = "removed"
	}
	line := fmt.Sprintf("%s %s %s %s", p.Since.Local().Format(time.RFC3339), probe.OneLine(p.ID, maxID), is, result(p))
	_, err := fmt.Fprintln(s.out, strings.TrimRight(line, " "))
	return err
}
