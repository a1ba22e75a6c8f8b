// Package access opens the store of a cluster for commands that read or write it, by the files of one of its engines,
// which say where it is and with which user.
package access

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

// Flags are the flags that say where the store is.
type Flags struct {
	Open   daemon.OpenStore // required
	Inputs handlers.Inputs  // of the files of the engine

	engine []string // these files
}

// Register adds the flags to a command.
func (f *Flags) Register(c *cobra.Command) {
	f.Inputs.Register(c)
	c.Flags().StringArrayVar(&f.engine, "engine-config", nil, "`file` of an engine, which has its cluster block, or the folder with it; can be repeated (default "+handlers.DefaultConfig+")")
}

// RequestTimeout bounds a request to a store that cannot be reached.
const RequestTimeout = 10 * time.Second

// Store is the store of a cluster, with the files of one of its engines.
type Store struct {
	daemon.Store
	Cluster config.Cluster
	Config  *config.Config   // what the files ask for without what is pushed
	Inputs  *accepted.Inputs // what else they name
	Paths   []string         // of the files, absolute

	flags          *Flags
	sources, files []config.Source // the files; and those with variables
}

// Use calls a function of a command with the store that the files of an engine name. SIGINT and SIGTERM end the context of the
// command meanwhile.
func (f *Flags) Use(c *cobra.Command, do func(*Store) error) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.SetContext(ctx)
	s, err := f.open(c)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

// open reads the files of an engine, and opens the store that they name. It does not wait for it.
func (f *Flags) open(c *cobra.Command) (*Store, error) {
	s := &Store{flags: f, Inputs: &accepted.Inputs{}}
	for _, path := range handlers.OrDefault(f.engine) {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		s.Paths = append(s.Paths, path)
	}
	var diags config.Diagnostics
	if s.sources, s.files, diags = f.Inputs.Read(s.Paths); !diags.HasErrors() {
		s.Config, diags = s.Parse(c.Context(), s.Inputs)
	}
	if diags.HasErrors() {
		return nil, cli.ShowDiagnostics(c, diags, cli.ExitFailed)
	}
	if s.Config.Cluster == nil {
		return nil, fmt.Errorf("%s: there is no cluster block: name the files of an engine of the cluster with --engine-config", strings.Join(s.Paths, ", "))
	}
	s.Cluster = *s.Config.Cluster
	var err error
	s.Store, err = f.Open(s.Cluster)
	return s, err
}

// Parse parses the files of the engine, and the texts that Inputs have.
func (s *Store) Parse(ctx context.Context, in *accepted.Inputs) (*config.Config, config.Diagnostics) {
	p := handlers.NewPlugins(ctx, handlers.WaitForChecks, handlers.Silent)
	p.Inputs, p.Describe = in, true
	defer p.Close()
	return s.flags.Inputs.Parse(slices.Concat(s.sources, in.Sources), s.files, p)
}

// Advise adds to the error of a request where the store is that was not reached.
func (s *Store) Advise(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, coord.ErrUnreachable) {
		return fmt.Errorf("etcd does not answer at %s: %w", strings.Join(s.Cluster.Endpoints, ", "), err)
	}
	return err
}

// LoadRevision returns the configuration of an engine with a revision, or that of its files for one without Number.
func (s *Store) LoadRevision(ctx context.Context, r revision.Revision) (*config.Config, error) {
	if r.Number == 0 {
		return s.Config, nil
	}
	bundle, err := revision.Load(ctx, s, r)
	if err != nil {
		return nil, s.Advise(err)
	}
	loaded, diags := s.Parse(ctx, accepted.OfBundle(bundle))
	if diags.HasErrors() {
		return nil, fmt.Errorf("revision %d cannot be read with the files and the environment of this machine: %w", r.Number, diags.Err())
	}
	return loaded, nil
}

// Shown returns the name of an engine, which all who can write to the store can choose, as people are shown it.
func Shown(name string) string { return probe.OneLine(name, probe.MaxGroupName) }

// Author returns who runs the command, as people are shown: USER@HOST.
func Author() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // it may have none
	return name + "@" + host
}
