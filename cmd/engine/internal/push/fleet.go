package push

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/coord/revision"
)

// flags are the flags of the commands.
type flags struct {
	open   daemon.OpenStore
	inputs handlers.Inputs
	engine []string // the files of an engine

	message      string
	yes          bool
	dryRun       bool
	force        bool
	ignoreSilent bool
	timeout      time.Duration
}

// register adds the flags that say where the store is.
func (f *flags) register(c *cobra.Command) {
	f.inputs.Register(c)
	c.Flags().StringArrayVar(&f.engine, "engine-config", nil, "`file` of an engine, which has its cluster block, or the folder with it; can be repeated (default "+handlers.DefaultConfig+")")
}

// registerPush adds the flags of a command that makes a revision.
func (f *flags) registerPush(c *cobra.Command) {
	c.Flags().StringVarP(&f.message, "message", "m", "", "why, for those who read the history")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, ask the engines whether they accept it, and change nothing")
	c.Flags().BoolVar(&f.force, "force", false, "engines do not ask reload_guard how many targets may be removed or restarted")
	c.Flags().BoolVar(&f.ignoreSilent, "ignore-silent", false, "engines that do not answer in time need not accept it")
	cli.DurationVar(c.Flags(), &f.timeout, "timeout", revision.DefaultTimeout, "how long to wait for the answers of engines, and then until they use it")
}

// check returns what is wrong with the flags of a command that makes a revision.
func (f *flags) check() error {
	if f.timeout <= 0 {
		return cli.UsageError("--timeout is %v; it must be greater than 0", f.timeout)
	}
	return nil
}

// The time for requests to a store that cannot be reached, and for all parts of a revision.
const (
	requestTimeout = 10 * time.Second
	loadTimeout    = 2 * time.Minute
)

// fleet is the store of a cluster, with the files of one of its engines.
type fleet struct {
	inputs         *handlers.Inputs
	sources, files []config.Source  // of the engine, with absolute names; and with variables
	own            *accepted.Inputs // what else they name
	alone          *config.Config   // what they ask for without what is pushed
	cluster        config.Cluster
	store          daemon.Store
}

// openFleet reads the files of an engine, and opens the store that they name.
func (f *flags) openFleet(c *cobra.Command) (*fleet, error) {
	var paths []string
	for _, path := range handlers.OrDefault(f.engine) {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	to := &fleet{inputs: &f.inputs, own: &accepted.Inputs{}}
	var diags config.Diagnostics
	if to.sources, to.files, diags = f.inputs.Read(paths); !diags.HasErrors() {
		to.alone, diags = to.parse(c.Context(), to.own)
	}
	if diags.HasErrors() {
		return nil, cli.ShowDiagnostics(c, diags, cli.ExitFailed)
	}
	if !to.alone.Cluster.IsPushed() {
		return nil, fmt.Errorf(`%s: engines with these files do not read what is pushed: write config = "etcd" into their cluster block, or name other files with --engine-config`, strings.Join(paths, ", "))
	}
	to.cluster = *to.alone.Cluster
	var err error
	to.store, err = f.open(to.cluster)
	return to, err
}

// parse parses the files of the engine, and the texts that Inputs have.
func (f *fleet) parse(ctx context.Context, in *accepted.Inputs) (*config.Config, config.Diagnostics) {
	p := handlers.NewPlugins(ctx, handlers.WaitForConfigure, handlers.Silent)
	p.Inputs, p.Describe = in, true
	defer p.Close()
	return f.inputs.Parse(slices.Concat(f.sources, in.Sources), f.files, p, nil)
}

// localOf returns those of the paths that are not only named by the files of the engine.
func (f *fleet) localOf(paths []string) []string {
	own := f.own.Paths()
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return slices.Contains(own, path) })
}

// current returns the current revision, one without Number if there is none.
func (f *fleet) current(ctx context.Context) (revision.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := revision.Current(ctx, f.store)
	return r, f.advise(err)
}

// load returns the configuration of an engine with a revision.
func (f *fleet) load(ctx context.Context, r revision.Revision) (*config.Config, error) {
	if r.Number == 0 {
		return f.alone, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	bundle, err := revision.Load(ctx, f.store, r)
	if err != nil {
		return nil, f.advise(err)
	}
	loaded, diags := f.parse(ctx, accepted.OfBundle(bundle))
	if diags.HasErrors() {
		return nil, fmt.Errorf("revision %d cannot be read with the files and the environment of this machine: %w", r.Number, diags.Err())
	}
	return loaded, nil
}

// advise adds to the error of a request where the store is that was not reached.
func (f *fleet) advise(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("etcd does not answer at %s: %w", strings.Join(f.cluster.Endpoints, ", "), err)
	}
	return err
}
