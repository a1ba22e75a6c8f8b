package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// defaultDrainTimeout is twice the time for which an engine waits for an act.
const defaultDrainTimeout = 2 * coord.EndTimeout

// pollPeriod is the interval at which the engine's shards are polled.
const pollPeriod = time.Second

// drainFlags are the flags of the commands about one engine.
type drainFlags struct {
	flags
	force   bool
	timeout time.Duration
}

func newDrainFlags(open daemon.OpenStore) drainFlags {
	return drainFlags{flags: flags{openStore: open, inputs: handlers.Inputs{AllowEmpty: true}}}
}

// drainCommand returns the command sonde cluster drain, by which an operator takes an engine out of service.
func drainCommand(open daemon.OpenStore) *cobra.Command {
	f := newDrainFlags(open)
	c := &cobra.Command{
		Use:   "drain [NAME]",
		Short: "Have an engine give its shared targets to the others",
		Long: "Drain has an engine of a cluster give its shards to the engines that are not drained: by default the engine of\n" +
			"this machine, by the name in its cluster block, or that of the host. It waits until the engine owns none. A shard\n" +
			"is given up when the restarts of its targets that have begun have ended.\n\n" +
			"The engine remains a member, runs its process blocks, and probes what is not shared. It is drained until\n" +
			"sonde-fleet cluster undrain, also if it is stopped and started meanwhile. While all engines are drained, for example\n" +
			"since the others have died, all of them have shards.\n\n" +
			"The files of an engine, which have its cluster block, say where etcd is; --engine-config names them.\n\n" +
			"The exit code is 0 if the engine owns no shards, or may have some by --force, and 1 otherwise: also with --timeout 0.",
		Example: "  sonde-fleet cluster drain --engine-config /etc/sonde/config.hcl\n  sonde-fleet cluster drain engine-2 --timeout 10m",
		Args:    cli.Args(0, 1, "name one engine, or none for that of this machine"),
		RunE:    f.onEngine(func(c *cobra.Command, s *store, name string) error { return f.drain(c, s, name) }),
	}
	f.register(c)
	c.Flags().BoolVar(&f.force, "force", false, "drain the engine also if it is the last one that is not drained: all have shards then as if none were")
	cli.DurationVar(c.Flags(), &f.timeout, "timeout", defaultDrainTimeout, "how long to wait until the engine owns no shards; 0 does not wait")
	return c
}

// undrainCommand returns the command sonde cluster undrain.
func undrainCommand(open daemon.OpenStore) *cobra.Command {
	f := newDrainFlags(open)
	c := &cobra.Command{
		Use:   "undrain [NAME]",
		Short: "Let an engine that is drained have its share of the targets again",
		Long: "Undrain ends what sonde-fleet cluster drain has begun, for the engine of this machine by default. An engine that does\n" +
			"not run the current revision of a pushed configuration stays drained until it does.\n\n" +
			"The exit code is 0 if no operator has the engine drained now, and 1 otherwise.",
		Example: "  sonde-fleet cluster undrain engine-2",
		Args:    cli.Args(0, 1, "name one engine, or none for that of this machine"),
		RunE:    f.onEngine(undrain),
	}
	f.register(c)
	return c
}

// onEngine returns a RunE that opens the store and calls do for one engine.
func (f *drainFlags) onEngine(do func(c *cobra.Command, s *store, name string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if f.timeout < 0 {
			return cli.UsageError("--timeout is %v: it must not be negative", f.timeout)
		}
		return f.use(c, func(s *store) error {
			given := ""
			if len(args) > 0 {
				given = args[0]
			}
			name, err := daemon.ClusterName(given, *s.config.Cluster)
			if err != nil {
				return fmt.Errorf("%w: name the engine", err)
			}
			return do(c, s, name)
		})
	}
}

// drain drains an engine and waits until it owns no shards.
func (f *drainFlags) drain(c *cobra.Command, s *store, name string) error {
	out := c.OutOrStdout()
	isNew, err := putDrain(c.Context(), s, name, f.force)
	if err != nil {
		return undrained(c.Context(), s, name, err)
	}
	if !isNew {
		fmt.Fprintf(out, "%s is drained already\n", shown(name))
	}
	w := waiter{store: s, name: name, isForced: f.force, isUnsettled: isNew && f.timeout > 0, out: out, last: -1}
	return w.wait(c.Context(), f.timeout)
}

func putDrain(ctx context.Context, s *store, name string, isForced bool) (isNew bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	by := probe.OneLine(author(), coord.MaxDrainBy)
	return coord.PutDrain(ctx, s, coord.Drain{Name: name, By: by, At: time.Now().UTC()}, isForced)
}

// undrained returns the error of an engine that could not be drained, with a remedy.
func undrained(ctx context.Context, s *store, name string, err error) error {
	if !errors.Is(err, coord.ErrNotMember) && !errors.Is(err, coord.ErrLastMember) {
		return s.advise(err)
	}
	known, readErr := readEngines(ctx, s)
	switch {
	case readErr != nil:
		return s.advise(readErr)
	case errors.Is(err, coord.ErrNotMember):
		return unknown(name, known.Members)
	}
	return fmt.Errorf("%s is not drained: %w; start another engine first%s, or use --force: if all engines are drained, they share the shards as if none were",
		shown(name), err, orUndrain(known.Drains, name))
}

// unknown returns the error for an engine that is not a member.
func unknown(name string, members []coord.Member) error {
	if len(members) == 0 {
		return fmt.Errorf("engine %q is not a member of the cluster: the cluster has no members now", name)
	}
	names := make([]string, 0, len(members))
	for _, m := range members {
		names = append(names, shown(m.Name))
	}
	hint := cli.DidYouMean(name, names)
	if hint == "" {
		hint = "; its members are " + cli.SomeNames(names)
	}
	return fmt.Errorf("engine %q is not a member of the cluster%s", name, hint)
}

// orUndrain returns a hint to undrain another engine, if another one is drained.
func orUndrain(drains []coord.Drain, name string) string {
	for _, d := range drains {
		if d.Name != name {
			return fmt.Sprintf(", or undrain %s", shown(d.Name))
		}
	}
	return ""
}

// readEngines reads the engines of the cluster.
func readEngines(ctx context.Context, s *store) (coord.Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return coord.ReadOverview(ctx, s)
}

// waiter waits until an engine owns no shards.
type waiter struct {
	store    *store
	name     string
	isForced bool // the engine may keep its shards
	out      io.Writer

	isUnsettled bool // the engine may still claim shards assigned before the drain: a first count of zero is not final

	last int   // number of shards last written; -1 for none
	err  error // error of the last read of the store; nil for none
}

// wait polls until the engine owns no shards or the timeout has passed. With a timeout of 0 it polls once.
func (w *waiter) wait(ctx context.Context, timeout time.Duration) error {
	late := time.After(timeout)
	for {
		if isDone, err := w.look(ctx); isDone || err != nil {
			return err
		}
		if timeout == 0 {
			return w.unfinished("; sonde-fleet cluster drain waits until it owns none")
		}
		select {
		case <-time.After(pollPeriod):
		case <-late:
			return w.unfinished(fmt.Sprintf(" after %v: restarts of their targets are still in progress, or the engine cannot reach etcd; see its log, and run sonde-fleet cluster drain to wait again", timeout))
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %s is drained but may still own shards; run sonde-fleet cluster drain to wait again", shown(w.name))
		}
	}
}

// unfinished returns the error of a wait that ended while the engine may still own shards. advice is the remedy.
func (w *waiter) unfinished(advice string) error {
	if w.err != nil {
		return fmt.Errorf("%s is drained, but it is unknown whether it still owns shards: %w", shown(w.name), w.store.advise(w.err))
	}
	return fmt.Errorf("%s is drained but still owns %s%s", shown(w.name), cli.Plural(w.last, "shard"), advice)
}

// look writes the number of the engine's shards if it has changed, and reports whether the wait is over.
func (w *waiter) look(ctx context.Context) (isDone bool, err error) {
	known, err := readEngines(ctx, w.store)
	if w.err = err; err != nil {
		return false, nil // retry: etcd may just be electing another leader
	}
	if !slices.ContainsFunc(known.Drains, func(d coord.Drain) bool { return d.Name == w.name }) {
		return false, fmt.Errorf("%s is no longer drained: an operator has undrained it meanwhile", shown(w.name))
	}
	shards, hasOther := 0, false
	for _, m := range known.Members {
		if m.Name == w.name {
			shards = m.Shards
		}
		hasOther = hasOther || !m.Drained
	}
	if shards == 0 && w.isUnsettled && w.last < 0 {
		w.last = 0
		return false, nil
	}
	keeps := fmt.Sprintf("%s is drained, and has %s: all engines are drained", shown(w.name), cli.Plural(shards, "shard"))
	switch {
	case shards == 0:
		_, err = fmt.Fprintf(w.out, "%s is drained, and owns no shards\n", shown(w.name))
	case hasOther && shards != w.last:
		_, err = fmt.Fprintf(w.out, "%s owns %s\n", shown(w.name), cli.Plural(shards, "shard"))
	case hasOther:
	case w.isForced:
		_, err = fmt.Fprintln(w.out, keeps)
	default:
		err = errors.New(keeps)
	}
	w.last = shards
	return shards == 0 || !hasOther, err
}

// undrain ends the drain of an engine.
func undrain(c *cobra.Command, s *store, name string) error {
	ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
	defer cancel()
	was, err := coord.DeleteDrain(ctx, s, name)
	if err != nil {
		return s.advise(err)
	}
	text := "is no longer drained"
	if !was {
		known, err := readEngines(ctx, s)
		if err != nil {
			return s.advise(err)
		}
		if !slices.ContainsFunc(known.Members, func(m coord.Member) bool { return m.Name == name }) {
			return unknown(name, known.Members)
		}
		text = "is not drained by an operator"
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s %s\n", shown(name), text)
	return err
}
