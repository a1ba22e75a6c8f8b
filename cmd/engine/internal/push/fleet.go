package push

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
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

// run opens the store for a command that makes a revision, which SIGINT and SIGTERM end.
func (f *flags) run(c *cobra.Command, do func(*fleet) error) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.SetContext(ctx)
	if f.timeout <= 0 {
		return cli.UsageError("--timeout is %v; it must be greater than 0", f.timeout)
	}
	to, err := f.openFleet(c)
	if err != nil {
		return err
	}
	defer to.Close()
	return do(to)
}

// fleet is the store of a cluster whose configuration is pushed.
type fleet struct{ *access.Store }

// openFleet reads the files of an engine, and opens the store that they name.
func (f *flags) openFleet(c *cobra.Command) (*fleet, error) {
	store, err := f.access.OpenStore(c)
	if err != nil {
		return nil, err
	}
	if !store.Cluster.IsPushed() {
		_ = store.Close() // nothing was written
		return nil, fmt.Errorf(`%s: engines with these files do not read what is pushed: write config = "etcd" into their cluster block, or name other files with --engine-config`, strings.Join(store.Paths, ", "))
	}
	return &fleet{store}, nil
}

// overview reads the revisions and the engines of the cluster.
func (f *fleet) overview(ctx context.Context) (revision.Overview, error) {
	seen, err := revision.Read(ctx, f.Store)
	return seen, f.Advise(err)
}
