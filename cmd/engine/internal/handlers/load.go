package handlers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/compose"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/restart/container"
)

// DefaultConfig is the configuration file that is read by default.
const DefaultConfig = "config.hcl"

// Inputs are the flags for variables and compose files, and options for parsing a configuration.
type Inputs struct {
	vars    []config.Var
	files   []string
	compose []string // paths of compose files

	// AllowEmpty allows a configuration without targets.
	AllowEmpty bool

	// Beats receives the beats of targets; nil without an engine.
	Beats *beatprobe.Registry

	// Runtimes are the container runtimes that targets and probes share; nil without an engine.
	Runtimes *container.Runtimes

	// NoCluster makes a cluster block an error, since the engine of this program cannot be a member of a cluster.
	NoCluster bool

	// RunsTargets sets config.Options.RunsTargets.
	RunsTargets bool

	// LookUp makes Parse look up programs, directories and users on this machine and warn about missing ones. An engine does
	// not set it, since a disk or a directory of users may hang, and then only the targets that need it should fail.
	LookUp bool
}

// Register adds the flags to a command.
func (in *Inputs) Register(c *cobra.Command) {
	c.Flags().Func("var", "set a variable, `name=value`; can be repeated", in.setVar)
	c.Flags().StringArrayVar(&in.files, "var-file", nil, "read variables from a `file`; can be repeated")
}

// RegisterCompose adds the flag for compose files to a command.
func (in *Inputs) RegisterCompose(c *cobra.Command) {
	c.Flags().StringArrayVar(&in.compose, "compose", nil, "also follow the containers of a compose `file`, with their health checks as probes; can be repeated")
}

// reading is the first step of a command with a configuration.
const reading = "reading the configuration"

// StartProgress shows the step that a command with a configuration waits for: see cli.Progress.
func StartProgress(c *cobra.Command) *cli.Progress {
	return cli.StartProgress(c.ErrOrStderr(), reading)
}

// Load reads a configuration for a command, and loads its plugins. It starts nothing.
func (in *Inputs) Load(c *cobra.Command, paths []string, p *Plugins) (*config.Config, config.Diagnostics) {
	p.Progress = StartProgress(c)
	defer p.Progress.Stop()
	sources, files, diags := in.Read(paths)
	if diags.HasErrors() {
		return nil, diags
	}
	loaded, more := in.Parse(sources, files, p)
	return loaded, append(diags, more...)
}

// Read reads the sources of a configuration, and the files with variables. Each compose file is converted to one of the
// sources.
func (in *Inputs) Read(paths []string) (sources, files []config.Source, diags config.Diagnostics) {
	if len(paths) > 0 || len(in.compose) == 0 {
		sources, diags = config.Read(OrDefault(paths))
	}
	for _, path := range in.compose {
		source, more := readCompose(path)
		sources, diags = append(sources, source), append(diags, more...)
	}
	files, more := config.Read(in.files)
	return sources, files, append(diags, more...)
}

// readCompose converts a compose file to a configuration source.
func readCompose(path string) (config.Source, config.Diagnostics) {
	refuse := func(err error) (config.Source, config.Diagnostics) {
		return config.Source{}, config.Diagnostics{{Summary: err.Error()}}
	}
	text, err := files.Read(path, compose.MaxBytes)
	if err != nil {
		var inPath *os.PathError
		if errors.As(err, &inPath) {
			err = inPath.Err // without the name of the system call
		}
		return refuse(fmt.Errorf("cannot read the compose file %s: %w", path, err))
	}
	doc, warnings, err := compose.Write(path, text, os.LookupEnv)
	if err != nil {
		return refuse(err)
	}
	var diags config.Diagnostics
	for _, warning := range warnings {
		diags = append(diags, config.Diagnostic{IsWarning: true, Summary: warning})
	}
	return config.Source{Name: path + " (as HCL)", Bytes: doc.Bytes()}, diags
}

// Paths returns the paths of a configuration, including compose files.
func (in *Inputs) Paths(paths []string) []string {
	if len(in.compose) == 0 {
		return OrDefault(paths)
	}
	return slices.Concat(paths, in.compose)
}

// Files returns the names of the other files that are read together with Paths.
func (in *Inputs) Files() []string {
	names := slices.Clone(in.files)
	for _, path := range in.compose {
		names = append(names, compose.Beside(path)...)
	}
	return names
}

// Parse parses sources and files with variables that have been read.
func (in *Inputs) Parse(sources, files []config.Source, p *Plugins) (*config.Config, config.Diagnostics) {
	o := Options()
	o.Handlers = Builtin(in.Beats, in.Runtimes)
	grpc := o.Handlers["grpc"]
	grpc.Load = p.GRPC
	o.Handlers["grpc"] = grpc
	p.addInstalled(o.Handlers, sources)
	o.Plugin, o.Script, o.Vars, o.VarFiles = p.open, p.script, in.vars, files
	o.Describe, o.NoCluster, o.RunsTargets, o.Discovered = p.Describe, in.NoCluster, in.RunsTargets, new(accepted.Inputs).Elements
	if p.Inputs != nil {
		p.Inputs.Sources, p.Inputs.VarFiles = sources, files
		o.IsPushed, o.ToPush = accepted.IsOfFleet, p.Inputs.ToPush()
		o.Env, o.ReadFile, o.IsFile = p.Inputs.LookupEnv, p.Inputs.ReadFile, p.Inputs.IsFile
		o.Discovered = p.Inputs.Elements
	}
	o.RequireTargets, o.MoreTargets = !in.AllowEmpty, in.AllowEmpty
	if in.LookUp {
		lookUp(&o)
	}
	if p.Previous == nil { // not at a reload: the disk of the state file may hang
		o.EngineSettings.Warn = warnOfEngineFiles
	}
	return config.Parse(sources, o)
}

// OrDefault returns paths, or the default path if there are none.
func OrDefault(paths []string) []string {
	if len(paths) == 0 {
		return []string{DefaultConfig}
	}
	return paths
}

// HasCompose reports whether compose files are set.
func (in *Inputs) HasCompose() bool { return len(in.compose) > 0 }

// setVar adds a variable, given as name=value.
func (in *Inputs) setVar(s string) error {
	name, value, found := strings.Cut(s, "=")
	if !found || name == "" {
		return errors.New("must be name=value")
	}
	in.vars = append(in.vars, config.Var{Name: name, Value: value})
	return nil
}
