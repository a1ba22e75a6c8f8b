package push

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/access"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/probe"
)

// Revisions returns sonde cluster revisions.
func Revisions(open daemon.OpenStore) *cobra.Command {
	f := flags{access: access.Flags{Open: open}}
	asJSON := false
	c := &cobra.Command{
		Use:   "revisions",
		Short: "Show the configurations that were pushed to a cluster",
		Long: fmt.Sprintf("Revisions shows the latest %d configurations that sonde-fleet push has put into etcd, who has pushed them, and how\n"+
			"many engines have accepted each. The last one is current.", revision.MaxHistory),
		Example: "  sonde-fleet cluster revisions --engine-config /etc/sonde/config.hcl",
		Args:    cli.Args(0, 0, "no arguments are allowed"),
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		fleet, err := f.openFleet(c)
		if err != nil {
			return err
		}
		defer fleet.Close()
		all, err := fleet.history(c.Context())
		switch {
		case err != nil:
			return err
		case asJSON:
			return writeRevisionsJSON(c.OutOrStdout(), all)
		}
		return writeRevisions(c.OutOrStdout(), all)
	}
	f.access.Register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// history returns the revisions that are kept, the current one last.
func (f *fleet) history(ctx context.Context) ([]revision.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, access.RequestTimeout)
	defer cancel()
	all, err := revision.History(ctx, f.Store)
	return all, f.Advise(err)
}

// writeRevisionsJSON writes the revisions as JSON: of one that cannot be read its number, and why.
func writeRevisionsJSON(w io.Writer, all []revision.Revision) error {
	type unreadable struct {
		Number int64  `json:"number"`
		Error  string `json:"error"`
	}
	rows := make([]any, 0, len(all))
	for _, r := range all {
		if err := r.Err(); err != nil {
			rows = append(rows, unreadable{r.Number, err.Error()})
		} else {
			rows = append(rows, r)
		}
	}
	return cli.WriteJSON(w, rows)
}

func writeRevisions(w io.Writer, all []revision.Revision) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REVISION\tPUSHED\tBY\tACCEPTED BY\tNOTE")
	for _, r := range all {
		if err := r.Err(); err != nil {
			fmt.Fprintf(table, "%d\t\t\t\t%s\n", r.Number, probe.OneLine(err.Error(), revision.MaxError))
			continue
		}
		note := probe.OneLine(r.Message, revision.MaxMessage)
		if r.Restores > 0 {
			note = strings.TrimSuffix(fmt.Sprintf("has the files of %d: %s", r.Restores, note), ": ")
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", r.Number, r.At.Local().Format(time.DateTime), probe.OneLine(r.Author, revision.MaxAuthor), cli.Plural(r.Accepted, "engine"), note)
	}
	return table.Flush()
}

// Rollback returns sonde cluster rollback.
func Rollback(open daemon.OpenStore) *cobra.Command {
	f := flags{access: access.Flags{Open: open}}
	c := &cobra.Command{
		Use:   "rollback [REVISION]",
		Short: "Give all engines of a cluster an earlier configuration",
		Long: "Rollback pushes the files of an earlier revision again, as a new one; by default those of the one before the\n" +
			"current. Like sonde-fleet push it shows what would change and asks, and changes nothing unless all engines accept it.\n" +
			"Without REVISION a second rollback goes forth again, to the files of before the first.\n\n" + exitHelp,
		Example: "  sonde-fleet cluster rollback\n  sonde-fleet cluster rollback 17 --yes -m \"the shop is back\"",
		Args:    cli.Args(0, 1, "name one revision, or none for the one before the current"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			c.SetContext(ctx)
			number := int64(0)
			if len(args) > 0 {
				var err error
				if number, err = strconv.ParseInt(args[0], 10, 64); err != nil || number < 1 {
					return cli.UsageError("%q is not the number of a revision", args[0])
				}
			}
			return f.rollback(c, number)
		},
	}
	f.registerPush(c)
	return c
}

// rollback pushes the files of an earlier revision, of the one before the current for 0.
func (f *flags) rollback(c *cobra.Command, number int64) error {
	if err := f.check(); err != nil {
		return err
	}
	fleet, err := f.openFleet(c)
	if err != nil {
		return err
	}
	defer fleet.Close()
	all, err := fleet.history(c.Context())
	if err != nil {
		return err
	}
	earlier, current, err := pick(all, number)
	if err != nil {
		return err
	}
	before, err := fleet.LoadRevision(c.Context(), current)
	if err == nil && current.Bundle.Digest == earlier.Bundle.Digest {
		_, err := fmt.Fprintf(c.OutOrStdout(), "no changes: revision %d has the files of revision %d\n", current.Number, earlier.Number)
		return err
	}
	after, afterErr := fleet.LoadRevision(c.Context(), earlier)
	for _, err := range []error{err, afterErr} {
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "what would change cannot be shown: %v\n", err)
		}
	}
	return f.propose(c, fleet, before, after, revision.Request{Restore: earlier.Number, Base: current.Number})
}

// pick returns the revision with a number, for 0 the one before the current, and the current one.
func pick(all []revision.Revision, number int64) (earlier, current revision.Revision, err error) {
	if len(all) < 2 {
		return earlier, current, fmt.Errorf("there is no earlier revision")
	}
	current = all[len(all)-1]
	if number == 0 {
		return all[len(all)-2], current, nil
	}
	for _, r := range all {
		if r.Number == number && number != current.Number {
			return r, current, nil
		}
	}
	if number == current.Number {
		return earlier, current, fmt.Errorf("revision %d is the current one", number)
	}
	return earlier, current, fmt.Errorf("there is no revision %d: those from %d to %d are kept", number, all[0].Number, current.Number)
}
