package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/probe"
)

// flags are the flags that locate the store.
type flags struct {
	openStore daemon.OpenStore // required
	inputs    handlers.Inputs  // of the files of the engine
	engine    []string         // paths of these files
}

// register adds the flags to a command.
func (f *flags) register(c *cobra.Command) {
	f.inputs.Register(c)
	c.Flags().StringArrayVar(&f.engine, "engine-config", nil, "`file` of an engine, which has its cluster block, or the folder with it; can be repeated (default "+handlers.DefaultConfig+")")
}

// requestTimeout limits a request to a store that may be unreachable.
const requestTimeout = 10 * time.Second

// store is the store of a cluster, with the files of one of its engines, which name its endpoints and user.
type store struct {
	daemon.Store
	flags *flags

	paths          []string         // of the engine's files, absolute
	sources, files []config.Source  // the engine's files, and files with variables
	inputs         *accepted.Inputs // other inputs that the files name
	config         *config.Config   // of the engine's files alone
}

// use calls do with the store that the files of an engine name. Meanwhile, SIGINT and SIGTERM cancel the context of the
// command.
func (f *flags) use(c *cobra.Command, do func(*store) error) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.SetContext(ctx)
	s, err := f.open(c)
	if err != nil {
		return err
	}
	defer s.Close()
	checking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := coord.CheckLayout(checking, s); err != nil {
		return s.advise(err)
	}
	return do(s)
}

// open reads the files of an engine, and opens the store that they name. It does not wait for the store.
func (f *flags) open(c *cobra.Command) (*store, error) {
	s := &store{flags: f, inputs: &accepted.Inputs{}}
	for _, path := range handlers.OrDefault(f.engine) {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		s.paths = append(s.paths, path)
	}
	var diags config.Diagnostics
	if s.sources, s.files, diags = f.inputs.Read(s.paths); !diags.HasErrors() {
		s.config, diags = s.parse(c.Context(), s.inputs)
	}
	if diags.HasErrors() {
		return nil, cli.ShowDiagnostics(c, diags, cli.ExitFailed)
	}
	if s.config.Cluster == nil {
		return nil, fmt.Errorf("%s: there is no cluster block: name the files of an engine of the cluster with --engine-config", strings.Join(s.paths, ", "))
	}
	var err error
	s.Store, err = f.openStore(*s.config.Cluster)
	return s, err
}

// parse parses the files of the engine together with the sources in the Inputs.
func (s *store) parse(ctx context.Context, in *accepted.Inputs) (*config.Config, config.Diagnostics) {
	p := handlers.NewPlugins(ctx, handlers.WaitForChecks, handlers.Silent)
	p.Inputs, p.Describe = in, true
	defer p.Close()
	return s.flags.inputs.Parse(slices.Concat(s.sources, in.Sources), s.files, p)
}

// advise adds the endpoints of the store to an error if the store did not respond.
func (s *store) advise(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, coord.ErrUnreachable) {
		return fmt.Errorf("etcd does not respond at %s: %w", strings.Join(s.config.Cluster.Endpoints, ", "), err)
	}
	return err
}

// loadRevision returns the configuration of an engine with a revision, or that of the engine's files if r.Number is 0.
func (s *store) loadRevision(ctx context.Context, r revision.Revision) (*config.Config, error) {
	if r.Number == 0 {
		return s.config, nil
	}
	bundle, err := revision.Load(ctx, s, r)
	if err != nil {
		return nil, s.advise(err)
	}
	loaded, diags := s.parse(ctx, accepted.OfRevision(r.Ref(), bundle))
	if diags.HasErrors() {
		return nil, fmt.Errorf("revision %d cannot be read with the files and the environment of this machine: %w", r.Number, diags.Err())
	}
	return loaded, nil
}

// shown sanitizes the name of an engine for display, since everyone with write access to the store can choose it.
func shown(name string) string { return probe.OneLine(name, probe.MaxGroupName) }

// author returns the user who runs the command as USER@HOST.
func author() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // empty on error
	return name + "@" + host
}
