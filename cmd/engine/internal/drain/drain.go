// Package drain is sonde cluster drain and undrain: an operator takes an engine out of service, and has it back.
package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/access"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// defaultTimeout is as long as an engine waits for an act, twice.
const defaultTimeout = 2 * coord.EndTimeout

// pollPeriod is how often it is looked at which shards the engine owns.
const pollPeriod = time.Second

// flags are the flags of the commands.
type flags struct {
	access  access.Flags
	force   bool
	timeout time.Duration
}

func newFlags(open daemon.OpenStore) flags {
	return flags{access: access.Flags{Open: open, Inputs: handlers.Inputs{AllowEmpty: true}}}
}

// Drain returns sonde cluster drain.
func Drain(open daemon.OpenStore) *cobra.Command {
	f := newFlags(open)
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
		RunE:    f.run(func(c *cobra.Command, s *access.Store, name string) error { return f.drain(c, s, name) }),
	}
	f.access.Register(c)
	c.Flags().BoolVar(&f.force, "force", false, "drain the engine also if it is the last one that is not drained: all have shards then as if none were")
	cli.DurationVar(c.Flags(), &f.timeout, "timeout", defaultTimeout, "how long to wait until the engine owns no shards; 0 does not wait")
	return c
}

// Undrain returns sonde cluster undrain.
func Undrain(open daemon.OpenStore) *cobra.Command {
	f := newFlags(open)
	c := &cobra.Command{
		Use:   "undrain [NAME]",
		Short: "Let an engine that is drained have its share of the targets again",
		Long: "Undrain ends what sonde-fleet cluster drain has begun, for the engine of this machine by default. An engine that does\n" +
			"not run the current revision of a pushed configuration stays drained until it does.\n\n" +
			"The exit code is 0 if no operator has the engine drained now, and 1 otherwise.",
		Example: "  sonde-fleet cluster undrain engine-2",
		Args:    cli.Args(0, 1, "name one engine, or none for that of this machine"),
		RunE:    f.run(undrain),
	}
	f.access.Register(c)
	return c
}

// run opens the store for a command about one engine.
func (f *flags) run(do func(c *cobra.Command, s *access.Store, name string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if f.timeout < 0 {
			return cli.UsageError("--timeout is %v, it must not be negative", f.timeout)
		}
		return f.access.Use(c, func(s *access.Store) error {
			given := ""
			if len(args) > 0 {
				given = args[0]
			}
			name, err := daemon.ClusterName(given, s.Cluster)
			if err != nil {
				return fmt.Errorf("%w: name the engine", err)
			}
			return do(c, s, name)
		})
	}
}

// drain drains an engine and waits until it owns no shards.
func (f *flags) drain(c *cobra.Command, s *access.Store, name string) error {
	out := c.OutOrStdout()
	isNew, err := putDrain(c.Context(), s, name, f.force)
	if err != nil {
		return explain(c.Context(), s, name, err)
	}
	if !isNew {
		fmt.Fprintf(out, "%s is drained already\n", access.Shown(name))
	}
	w := waiter{store: s, name: name, isForced: f.force, isUnsettled: isNew && f.timeout > 0, out: out, last: -1}
	return w.wait(c.Context(), f.timeout)
}

func putDrain(ctx context.Context, s *access.Store, name string, isForced bool) (isNew bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, access.RequestTimeout)
	defer cancel()
	by := probe.OneLine(access.Author(), coord.MaxDrainBy)
	return coord.PutDrain(ctx, s, coord.Drain{Name: name, By: by, At: time.Now().UTC()}, isForced)
}

// explain returns the error for which an engine is not drained, with what to do instead.
func explain(ctx context.Context, s *access.Store, name string, err error) error {
	if !errors.Is(err, coord.ErrNotMember) && !errors.Is(err, coord.ErrLastMember) {
		return s.Advise(err)
	}
	known, readErr := read(ctx, s)
	switch {
	case readErr != nil:
		return s.Advise(readErr)
	case errors.Is(err, coord.ErrNotMember):
		return unknown(name, known.Members)
	}
	return fmt.Errorf("%s is not drained: %w; start another engine first%s, or write --force: then all engines are drained, and have shards as if none were",
		access.Shown(name), err, orUndrain(known.Drains, name))
}

// unknown returns the error for an engine that is not a member.
func unknown(name string, members []coord.Member) error {
	if len(members) == 0 {
		return fmt.Errorf("no engine %q is a member of the cluster: it has none now", name)
	}
	names := make([]string, 0, len(members))
	for _, m := range members {
		names = append(names, access.Shown(m.Name))
	}
	hint := cli.DidYouMean(name, names)
	if hint == "" {
		hint = "; its members are " + cli.SomeNames(names)
	}
	return fmt.Errorf("no engine %q is a member of the cluster%s", name, hint)
}

// orUndrain proposes to undrain one of the other engines, if one is drained.
func orUndrain(drains []coord.Drain, name string) string {
	for _, d := range drains {
		if d.Name != name {
			return fmt.Sprintf(", or undrain %s", access.Shown(d.Name))
		}
	}
	return ""
}

// read reads the engines of the cluster.
func read(ctx context.Context, s *access.Store) (coord.Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, access.RequestTimeout)
	defer cancel()
	return coord.ReadOverview(ctx, s)
}

// waiter waits until an engine owns no shards.
type waiter struct {
	store    *access.Store
	name     string
	isForced bool // it may keep its shards
	out      io.Writer

	isUnsettled bool // it may claim shards that it was to have before it was drained: one look without any is not enough

	last int   // number of shards that was written; -1 for none
	err  error // why the store was not read at the last look; nil if it was
}

// wait looks until the engine owns no shards, or for a time; once if that is 0.
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
			return w.unfinished(fmt.Sprintf(" after %v: restarts of their targets have not ended, or it cannot reach etcd; its log says why. sonde-fleet cluster drain waits again", timeout))
		case <-ctx.Done():
			return fmt.Errorf("not waited for the end: %s is drained, and may own shards still; sonde-fleet cluster drain waits again", access.Shown(w.name))
		}
	}
}

// unfinished returns the error of a wait that has ended before the engine owned no shards, with what to do then.
func (w *waiter) unfinished(advice string) error {
	if w.err != nil {
		return fmt.Errorf("%s is drained; it is not known whether it owns shards still: %w", access.Shown(w.name), w.store.Advise(w.err))
	}
	return fmt.Errorf("%s is drained, and owns %s still%s", access.Shown(w.name), cli.Plural(w.last, "shard"), advice)
}

// look writes how many shards the engine owns if that has changed, and reports whether there is nothing to wait for.
func (w *waiter) look(ctx context.Context) (isDone bool, err error) {
	known, err := read(ctx, w.store)
	if w.err = err; err != nil {
		return false, nil // etcd may have elected another leader
	}
	if !slices.ContainsFunc(known.Drains, func(d coord.Drain) bool { return d.Name == w.name }) {
		return false, fmt.Errorf("%s is no longer drained: an operator has undrained it meanwhile", access.Shown(w.name))
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
	keeps := fmt.Sprintf("%s is drained, and has %s: all engines are drained", access.Shown(w.name), cli.Plural(shards, "shard"))
	switch {
	case shards == 0:
		_, err = fmt.Fprintf(w.out, "%s is drained, and owns no shards\n", access.Shown(w.name))
	case hasOther && shards != w.last:
		_, err = fmt.Fprintf(w.out, "%s owns %s\n", access.Shown(w.name), cli.Plural(shards, "shard"))
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
func undrain(c *cobra.Command, s *access.Store, name string) error {
	ctx, cancel := context.WithTimeout(c.Context(), access.RequestTimeout)
	defer cancel()
	was, err := coord.DeleteDrain(ctx, s, name)
	if err != nil {
		return s.Advise(err)
	}
	text := "is no longer drained"
	if !was {
		known, err := read(ctx, s)
		if err != nil {
			return s.Advise(err)
		}
		if !slices.ContainsFunc(known.Members, func(m coord.Member) bool { return m.Name == name }) {
			return unknown(name, known.Members)
		}
		text = "is not drained by an operator"
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s %s\n", access.Shown(name), text)
	return err
}
