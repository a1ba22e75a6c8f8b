// Package push is sonde push, and sonde cluster revisions and rollback: the configuration of a fleet.
//
//	push.go      sonde push
//	fleet.go     fleet: the configurations in the store of a cluster
//	propose.go   what the commands share: plan, question, push, and the wait for the engines
//	history.go   sonde cluster revisions and rollback
package push

import (
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/access"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// Command returns sonde push.
func Command(open daemon.OpenStore) *cobra.Command {
	f := flags{access: access.Flags{Open: open}}
	c := &cobra.Command{
		Use:   "push CONFIG...",
		Short: "Give all engines of a cluster another configuration",
		Long: "Push puts files of one folder, or all *.hcl and *.hcl.json files of it, and the files that they name by\n" +
			"relative paths, into the etcd of a cluster whose engines have config = \"etcd\" in their cluster block.\n\n" +
			"It shows what would change and asks. Then each engine checks the configuration with what only it has,\n" +
			"such as its environment, its limits and reload_guard. If all accept it, it is the current revision, which\n" +
			"they use; push waits for that. If one refuses it nothing is changed anywhere. With --dry-run only the engines are asked.\n\n" +
			"The files of an engine, which have its cluster block, say where etcd is; --engine-config names them.\n" +
			"Variables, and files with absolute paths, are those of the machine that reads them: of this one now, and\n" +
			"of each engine later. Secrets in files that are pushed are errors: each engine reads its own, by env, file or a variable.\n\n" + exitHelp,
		Example: "  sonde-fleet push fleet/ --engine-config /etc/sonde/config.hcl -m \"probe the new shop\"",
		Args:    cli.Args(1, math.MaxInt, "name the files or the folder to push"),
		RunE: func(c *cobra.Command, paths []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			c.SetContext(ctx)
			return f.push(c, paths)
		},
	}
	f.registerPush(c)
	return c
}

// Absent returns a hidden command that says which program has the command of this name.
func Absent(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		Short: "Say which program has this command",
		RunE: func(c *cobra.Command, _ []string) error {
			_, path, _ := strings.Cut(c.CommandPath(), " ")
			return fmt.Errorf("this program has no client of etcd: run sonde-fleet %s, which takes the same arguments and flags", path)
		},
	}
}

const exitHelp = "The exit code is 0 if all engines use the revision, or if there was nothing to change, 2 for wrong\n" +
	"arguments or flags, and 1 otherwise. With --dry-run it is 0 if all engines accept it."

// push pushes the configuration of paths.
func (f *flags) push(c *cobra.Command, paths []string) error {
	if err := f.check(); err != nil {
		return err
	}
	fleet, err := f.openFleet(c)
	if err != nil {
		return err
	}
	defer fleet.Close()
	after, bundle, err := fleet.read(c, paths)
	if err != nil {
		return err
	}
	current, err := fleet.CurrentRevision(c.Context())
	if err != nil {
		return err
	}
	_, digest, err := bundle.Encode()
	if err != nil {
		return fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	if digest == current.Bundle.Digest {
		_, err := fmt.Fprintf(c.OutOrStdout(), "no changes: revision %d has the same files\n", current.Number)
		return err
	}
	before, err := fleet.LoadRevision(c.Context(), current)
	if err != nil {
		before = nil
		fmt.Fprintf(c.ErrOrStderr(), "the plan is not complete: %v\n", err)
	}
	return f.propose(c, fleet, before, after, revision.Request{Bundle: bundle, Base: current.Number})
}

// read reads the configuration of paths as an engine would, with its own files, and returns what of it is pushed.
func (f *fleet) read(c *cobra.Command, paths []string) (*config.Config, *revision.Bundle, error) {
	in, diags := accepted.ReadFleet(paths)
	if diags.HasErrors() {
		return nil, nil, cli.ShowDiagnostics(c, diags, cli.ExitFailed)
	}
	loaded, diags := f.Parse(c.Context(), in)
	if err := cli.ShowDiagnostics(c, diags, cli.ExitFailed); err != nil {
		return nil, nil, err
	}
	bundle, local, err := in.Bundle(loaded.Secrets)
	if err != nil {
		return nil, nil, fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	for _, path := range f.localOf(local) {
		fmt.Fprintf(c.ErrOrStderr(), "%s is not pushed: each engine reads its own\n", path)
	}
	return loaded, bundle, nil
}
