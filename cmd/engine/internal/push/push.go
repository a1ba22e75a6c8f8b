// Package push is sonde push, and sonde cluster revisions and rollback: the configuration of a fleet.
//
//	push.go      sonde push
//	fleet.go     fleet: the configurations in the store of a cluster
//	propose.go   what the commands share: plan, question, and push
//	await.go     waits for the answers of the engines
//	history.go   sonde cluster revisions and rollback
package push

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

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
			"It checks the configuration here as an engine would, shows what would change, and asks. Then it is the current\n" +
			"revision: each engine reloads with it, by its own environment, limits and reload_guard. Push waits, and writes\n" +
			"which engines use it. One that refuses it keeps what it runs; sonde-fleet cluster rollback takes it away.\n\n" +
			"With --to one engine tries it first. The next push without --to makes it, or another one, current for all,\n" +
			"and a rollback ends the trial.\n\n" +
			"The files of an engine, which have its cluster block, say where etcd is; --engine-config names them.\n" +
			"Variables, and files with absolute paths, are those of the machine that reads them: of this one now, and\n" +
			"of each engine later. Secrets in files that are pushed are errors: each engine reads its own, by env, file or a variable.\n\n" + exitHelp,
		Example: "  sonde-fleet push fleet/ --engine-config /etc/sonde/config.hcl -m \"probe the new shop\"\n" +
			"  sonde-fleet push fleet/ --to engine-1",
		Args: cli.Args(1, math.MaxInt, "name the files or the folder to push"),
		RunE: func(c *cobra.Command, paths []string) error {
			return f.use(c, func(to *fleet) error { return f.push(c, to, paths) })
		},
	}
	f.registerPush(c)
	c.Flags().StringVar(&f.to, "to", "", "`name` of the one engine that tries it")
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

const exitHelp = "The exit code is 0 if all engines use the revision, or if there was nothing to change, 3 if an engine refuses\n" +
	"it, whether or not all others answer in time, 2 for wrong arguments or flags, and 1 otherwise."

// push pushes the configuration of paths.
func (f *flags) push(c *cobra.Command, to *fleet, paths []string) error {
	after, files, err := to.read(c, paths)
	if err != nil {
		return err
	}
	_, digest, err := files.Encode()
	if err != nil {
		return fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	seen, err := to.overview(c.Context())
	if err != nil {
		return err
	}
	if err := checkEngine(seen, f.to); err != nil {
		return err
	}
	if isInUse(seen, f.to, digest) {
		_, err := fmt.Fprintf(c.OutOrStdout(), "no changes: revision %d has the same files\n", seen.Wanted(f.to).Number)
		return err
	}
	before, err := to.LoadRevision(c.Context(), seen.InUse())
	if err != nil {
		before = nil
		fmt.Fprintf(c.ErrOrStderr(), "the plan is not complete: %v\n", err)
	}
	return f.propose(c, to, proposal{before: before, after: after, seen: seen, files: files})
}

// checkEngine returns an error if an engine cannot try a revision; "" is none.
func checkEngine(seen revision.Overview, name string) error {
	var names []string
	for _, e := range seen.Engines {
		names = append(names, access.Shown(e.Name))
	}
	switch {
	case name == "":
		return nil
	case seen.Current().Number == 0:
		return errors.New("nothing is pushed to all engines yet, which they could return to: push without --to first")
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("no engine %.100q follows the configuration: there is none now", name)
	}
	return fmt.Errorf("no engine %.100q follows the configuration: write --to with one of %s", name, cli.SomeNames(names))
}

// isInUse reports whether files are those of the revision that an engine, or for "" each engine, is to run, and none has
// refused it. A revision that was refused can be pushed again, such as with --force.
func isInUse(seen revision.Overview, engine, digest string) bool {
	wanted := seen.Wanted(engine)
	isRefused := slices.ContainsFunc(seen.Engines, func(e revision.Engine) bool { return e.HasRefused(wanted.Ref()) })
	isOtherTrial := seen.Trial.Engine != "" && seen.Trial.Engine != engine
	return wanted.Digest == digest && !isRefused && !isOtherTrial
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
	own := f.Inputs.Paths()
	for _, path := range local {
		if !slices.Contains(own, path) { // the files of the engine name those themselves
			fmt.Fprintf(c.ErrOrStderr(), "%s is not pushed: each engine reads its own\n", path)
		}
	}
	return loaded, bundle, nil
}
