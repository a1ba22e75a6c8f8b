package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// Push returns the command sonde push. If open is nil, the command only prints which program implements it.
func Push(open daemon.OpenStore) *cobra.Command {
	if open == nil {
		return absent("push")
	}
	f := pushFlags{flags: flags{openStore: open}}
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
			return f.usePushed(c, func(to *store) error { return f.push(c, to, paths) })
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.to, "to", "", "`name` of the one engine that tries it")
	return c
}

const exitHelp = "The exit code is 0 if all engines use the revision, or if there was nothing to change, 3 if an engine refuses\n" +
	"it, whether or not all others answer in time, 2 for wrong arguments or flags, and 1 otherwise."

// pushFlags are the flags of a command that creates a revision.
type pushFlags struct {
	flags
	message string
	yes     bool
	dryRun  bool
	force   bool
	to      string // the only engine that gets the revision; empty for all
	timeout time.Duration
}

// defaultPushTimeout is the default of --timeout: engines may have to compile plugins.
const defaultPushTimeout = time.Minute

// register adds the flags to a command.
func (f *pushFlags) register(c *cobra.Command) {
	f.flags.register(c)
	c.Flags().StringVarP(&f.message, "message", "m", "", "why, for those who read the history")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
	c.Flags().BoolVar(&f.force, "force", false, "engines do not ask reload_guard how many targets may be removed or restarted")
	cli.DurationVar(c.Flags(), &f.timeout, "timeout", defaultPushTimeout, "how long to wait for the answers of the engines")
}

// usePushed calls do with the store of a cluster whose configuration is pushed: see flags.use.
func (f *pushFlags) usePushed(c *cobra.Command, do func(*store) error) error {
	if f.timeout <= 0 {
		return cli.UsageError("--timeout is %v; it must be greater than 0", f.timeout)
	}
	return f.use(c, func(s *store) error {
		if err := s.checkPushed(); err != nil {
			return err
		}
		return do(s)
	})
}

// checkPushed returns an error unless the configuration of the cluster is pushed.
func (s *store) checkPushed() error {
	if s.config.Cluster.IsPushed() {
		return nil
	}
	return fmt.Errorf(`%s: engines with these files do not use a pushed configuration: set config = "etcd" in their cluster block, or name other files with --engine-config`, strings.Join(s.paths, ", "))
}

// revisions reads the revisions and the engines of the cluster.
func (s *store) revisions(ctx context.Context) (revision.Overview, error) {
	seen, err := revision.Read(ctx, s.Store)
	return seen, s.advise(err)
}

// push pushes the configuration of paths.
func (f *pushFlags) push(c *cobra.Command, to *store, paths []string) error {
	progress := handlers.StartProgress(c)
	defer progress.Stop()
	after, files, err := to.readToPush(c, paths)
	if err != nil {
		return err
	}
	_, digest, err := files.Encode()
	if err != nil {
		return fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	seen, err := to.revisions(c.Context())
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
	progress.Step("comparing with the revision in use")
	before, err := to.loadRevision(c.Context(), seen.InUse())
	progress.Stop()
	if err != nil {
		before = nil
		fmt.Fprintf(c.ErrOrStderr(), "the plan is not complete: %v\n", err)
	}
	return f.propose(c, to, proposal{before: before, after: after, seen: seen, files: files})
}

// checkEngine returns an error if the named engine cannot try a revision. An empty name means no trial.
func checkEngine(seen revision.Overview, name string) error {
	var names []string
	for _, e := range seen.Engines {
		names = append(names, shown(e.Name))
	}
	switch {
	case name == "":
		return nil
	case seen.Current().Number == 0:
		return errors.New("no revision for all engines exists yet, so there is nothing to roll back to: push without --to first")
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("engine %.100q does not follow the configuration: no engine does now", name)
	}
	return fmt.Errorf("engine %.100q does not follow the configuration: use --to with one of %s", name, cli.SomeNames(names))
}

// isInUse reports whether the files with a digest are already in use: they are those of the revision that the engine (or, if it
// is "", every engine) is intended to run, no engine has refused that revision, and no other engine is on trial. A refused
// revision can be pushed again, for example with --force.
func isInUse(seen revision.Overview, engine, digest string) bool {
	wanted := seen.Wanted(engine)
	isRefused := slices.ContainsFunc(seen.Engines, func(e revision.Engine) bool { return e.HasRefused(wanted.Ref()) })
	trying := seen.Latest().Engine
	isOtherTrial := trying != "" && trying != engine
	return wanted.Digest == digest && !isRefused && !isOtherTrial
}

// readToPush reads the configuration of paths as an engine would, together with the engine's own files, and returns the bundle
// to push.
func (s *store) readToPush(c *cobra.Command, paths []string) (*config.Config, *revision.Bundle, error) {
	in, diags := accepted.ReadFleet(paths)
	if diags.HasErrors() {
		return nil, nil, cli.ShowDiagnostics(c, diags, cli.ExitFailed)
	}
	loaded, diags := s.parse(c.Context(), in)
	if err := cli.ShowDiagnostics(c, diags, cli.ExitFailed); err != nil {
		return nil, nil, err
	}
	bundle, local, err := in.Bundle(loaded.Secrets)
	if err != nil {
		return nil, nil, fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	own := s.inputs.Paths()
	for _, path := range local {
		if !slices.Contains(own, path) { // files that the engine's own files name are not mentioned
			fmt.Fprintf(c.ErrOrStderr(), "%s is not pushed: each engine reads its own\n", path)
		}
	}
	return loaded, bundle, nil
}
