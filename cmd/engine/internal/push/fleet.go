package push

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/access"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// flags are the flags of the commands.
type flags struct {
	access access.Flags

	message string
	yes     bool
	dryRun  bool
	force   bool
	to      string // the only engine that gets the revision; empty: all
	timeout time.Duration
}

// registerPush adds the flags of a command that makes a revision.
func (f *flags) registerPush(c *cobra.Command) {
	f.access.Register(c)
	c.Flags().StringVarP(&f.message, "message", "m", "", "why, for those who read the history")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
	c.Flags().BoolVar(&f.force, "force", false, "engines do not ask reload_guard how many targets may be removed or restarted")
	cli.DurationVar(c.Flags(), &f.timeout, "timeout", defaultTimeout, "how long to wait for the answers of the engines")
}

// defaultTimeout is that of --timeout: engines may have to compile plugins.
const defaultTimeout = time.Minute

// use calls a function of a command that makes a revision: see useFleet.
func (f *flags) use(c *cobra.Command, do func(*fleet) error) error {
	if f.timeout <= 0 {
		return cli.UsageError("--timeout is %v; it must be greater than 0", f.timeout)
	}
	return f.useFleet(c, do)
}

// fleet is the store of a cluster whose configuration is pushed.
type fleet struct{ *access.Store }

// useFleet calls a function of a command with the store that the files of an engine name: see access.Flags.Use.
func (f *flags) useFleet(c *cobra.Command, do func(*fleet) error) error {
	return f.access.Use(c, func(s *access.Store) error {
		if !s.Cluster.IsPushed() {
			return fmt.Errorf(`%s: engines with these files do not read what is pushed: write config = "etcd" into their cluster block, or name other files with --engine-config`, strings.Join(s.Paths, ", "))
		}
		return do(&fleet{s})
	})
}

// overview reads the revisions and the engines of the cluster.
func (f *fleet) overview(ctx context.Context) (revision.Overview, error) {
	seen, err := revision.Read(ctx, f.Store)
	return seen, f.Advise(err)
}
