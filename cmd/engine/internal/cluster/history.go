package cluster

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/probe"
)

// revisionsCommand returns the command sonde cluster revisions.
func revisionsCommand(open daemon.OpenStore) *cobra.Command {
	f := flags{openStore: open}
	c := &cobra.Command{
		Use:   "revisions",
		Short: "Show the configurations that were pushed to a cluster",
		Long: fmt.Sprintf("Revisions shows the latest %d configurations that sonde-fleet push has put into etcd, who has pushed them, and how\n"+
			"many engines use each. The last one is current, unless it is a trial of one engine.", revision.MaxHistory),
		Example: "  sonde-fleet cluster revisions --engine-config /etc/sonde/config.hcl",
		Args:    cli.Args(0, 0, "no arguments are allowed"),
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.use(c, func(of *store) error {
			if err := of.checkPushed(); err != nil {
				return err
			}
			seen, err := of.revisions(c.Context())
			if err != nil {
				return err
			}
			return writeRevisions(c.OutOrStdout(), seen)
		})
	}
	f.register(c)
	return c
}

func writeRevisions(w io.Writer, seen revision.Overview) error {
	using := map[revision.Ref]int{}
	for _, e := range seen.Engines {
		using[e.Running]++
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REVISION\tPUSHED\tBY\tUSED BY\tNOTE")
	for _, r := range seen.History {
		if err := r.Err(); err != nil {
			fmt.Fprintf(table, "%d\t\t\t\t%s\n", r.Number, probe.OneLine(err.Error(), revision.MaxError))
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", r.Number, r.At.Local().Format(time.DateTime), probe.OneLine(r.Author, revision.MaxAuthor),
			cli.Plural(using[r.Ref()], "engine"), noteOf(r))
	}
	return table.Flush()
}

// noteOf returns the note column of a revision: its trial, the restored revision and its message.
func noteOf(r revision.Revision) string {
	var notes []string
	if r.Engine != "" {
		notes = append(notes, "a trial at "+shown(r.Engine))
	}
	if r.Restores > 0 {
		notes = append(notes, fmt.Sprintf("has the files of %d", r.Restores))
	}
	if r.Message != "" {
		notes = append(notes, probe.OneLine(r.Message, revision.MaxMessage))
	}
	return strings.Join(notes, ": ")
}

// rollbackCommand returns the command sonde cluster rollback.
func rollbackCommand(open daemon.OpenStore) *cobra.Command {
	f := pushFlags{flags: flags{openStore: open}}
	c := &cobra.Command{
		Use:   "rollback [REVISION]",
		Short: "Give all engines of a cluster an earlier configuration",
		Long: "Rollback pushes the files of an earlier revision again, as a new one: by default those of the latest that had\n" +
			"other files than the current. If an engine tries a revision, it pushes those of the current, which ends the\n" +
			"trial. Like sonde-fleet push it shows what would change, asks, and waits for the engines.\n" +
			"Without REVISION a second rollback goes forth again, to the files of before the first.\n\n" + exitHelp,
		Example: "  sonde-fleet cluster rollback\n  sonde-fleet cluster rollback 17 --yes -m \"the shop is back\"",
		Args:    cli.Args(0, 1, "name one revision, or none for the latest with other files"),
		RunE: func(c *cobra.Command, args []string) error {
			number := int64(0)
			if len(args) > 0 {
				var err error
				if number, err = strconv.ParseInt(args[0], 10, 64); err != nil || number < 1 {
					return cli.UsageError("%q is not the number of a revision", args[0])
				}
			}
			return f.usePushed(c, func(to *store) error { return f.rollback(c, to, number) })
		},
	}
	f.register(c)
	return c
}

// rollback pushes the files of an earlier revision: see pick.
func (f *pushFlags) rollback(c *cobra.Command, to *store, number int64) error {
	seen, err := to.revisions(c.Context())
	if err != nil {
		return err
	}
	earlier, files, err := f.load(c, to, seen, number)
	if err != nil {
		return err
	}
	if isInUse(seen, "", earlier.Digest) {
		_, err := fmt.Fprintf(c.OutOrStdout(), "no changes: revision %d has the files of revision %d\n", seen.Current().Number, earlier.Number)
		return err
	}
	before, err := to.loadRevision(c.Context(), replaced(seen))
	after, afterErr := to.loadRevision(c.Context(), earlier)
	for _, err := range []error{err, afterErr} {
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "cannot show the changes: %v\n", err)
		}
	}
	return f.propose(c, to, proposal{before: before, after: after, seen: seen, files: files, restores: earlier.Number})
}

// load returns the revision to roll back to, with its files: see pick. If number is 0, it skips damaged revisions and writes
// which ones.
func (f *pushFlags) load(c *cobra.Command, to *store, seen revision.Overview, number int64) (revision.Revision, *revision.Bundle, error) {
	for {
		earlier, err := pick(seen, number)
		if err != nil {
			return earlier, nil, err
		}
		files, err := revision.Load(c.Context(), to.Store, earlier)
		if number != 0 || !errors.Is(err, revision.ErrDamaged) {
			return earlier, files, to.advise(err)
		}
		fmt.Fprintf(c.ErrOrStderr(), "left out: %v\n", err)
		seen.History = slices.DeleteFunc(slices.Clone(seen.History), func(r revision.Revision) bool { return r.Number == earlier.Number })
	}
}

// replaced returns the revision that a rollback replaces: a trial that its engine runs, else the revision in use.
func replaced(seen revision.Overview) revision.Revision {
	latest := seen.Latest()
	if slices.ContainsFunc(seen.Engines, func(e revision.Engine) bool { return e.Name == latest.Engine && e.Running == latest.Ref() }) {
		return latest
	}
	return seen.InUse()
}

// pick returns the revision with a number. If number is 0, it returns the current revision during a trial, else the latest one
// with other files.
func pick(seen revision.Overview, number int64) (revision.Revision, error) {
	current, isTrial := seen.Current(), seen.Latest().Engine != ""
	for _, r := range slices.Backward(seen.History) {
		isEarlier := r.Engine == "" && (isTrial || r.Digest != current.Digest)
		if r.Number == number || number == 0 && isEarlier {
			if r.Number == current.Number && !isTrial {
				return revision.Revision{}, fmt.Errorf("revision %d is the current one", number)
			}
			return r, nil
		}
	}
	switch {
	case number == 0:
		return revision.Revision{}, errors.New("there is no earlier revision")
	case current.Number == 0:
		return revision.Revision{}, errors.New("there is no revision")
	}
	return revision.Revision{}, fmt.Errorf("there is no revision %d: those from %d to %d are kept", number, seen.History[0].Number, seen.Latest().Number)
}
