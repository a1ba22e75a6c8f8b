package handlers

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/restart/container"
)

// DefaultConfig is read when no configuration is named.
const DefaultConfig = "config.hcl"

// Inputs are the flags that give values to a configuration's variables.
type Inputs struct {
	vars  []config.Var
	files []string

	// AllowEmpty permits a configuration without targets.
	AllowEmpty bool

	// Beats receives the beats of targets; nil without an engine.
	Beats *beatprobe.Registry

	// Runtimes are the container runtimes that targets and probes share; nil without an engine.
	Runtimes *container.Runtimes

	// NoCluster makes a cluster block an error: the engine of this program cannot be a member of one.
	NoCluster bool

	// LookUp has programs, directories and users looked up on this machine: one that does not
	// exist is a warning. An engine does not wait for that, since a disk or a directory of
	// users may hang, and with it only the targets that need it may fail.
	LookUp bool
}

// Register adds the flags to a command.
func (in *Inputs) Register(c *cobra.Command) {
	c.Flags().Func("var", "set a variable, `name=value`; can be repeated", in.setVar)
	c.Flags().StringArrayVar(&in.files, "var-file", nil, "read variables from a `file`; can be repeated")
}

// reading is the first step of a command with a configuration.
const reading = "reading the configuration"

// StartProgress shows what a command with a configuration waits for: see cli.Progress.
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
	return in.Parse(sources, files, p)
}

// Read reads the texts of a configuration, and the files with variables.
func (in *Inputs) Read(paths []string) (sources, files []config.Source, diags config.Diagnostics) {
	sources, diags = config.Read(OrDefault(paths))
	files, more := config.Read(in.files)
	return sources, files, append(diags, more...)
}

// VarFiles returns the names of the files with variables.
func (in *Inputs) VarFiles() []string { return in.files }

// Parse parses sources that have been read.
func (in *Inputs) Parse(sources, files []config.Source, p *Plugins) (*config.Config, config.Diagnostics) {
	o := Options()
	o.Handlers = Builtin(in.Beats, in.Runtimes)
	grpc := o.Handlers["grpc"]
	grpc.Load = p.GRPC
	o.Handlers["grpc"] = grpc
	p.addInstalled(o.Handlers)
	o.Plugin, o.Script, o.Vars, o.VarFiles = p.open, p.script, in.vars, files
	o.Describe, o.NoCluster, o.Discovered = p.Describe, in.NoCluster, new(accepted.Inputs).Elements
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
	if p.Previous == nil { // a reload does not read the state's disk, which may hang
		o.EngineSettings.Warn = warnOfEngineFiles
	}
	return config.Parse(sources, o)
}

// OrDefault returns the paths of a configuration, or the default path for none.
func OrDefault(paths []string) []string {
	if len(paths) == 0 {
		return []string{DefaultConfig}
	}
	return paths
}

// setVar adds name=value.
func (in *Inputs) setVar(s string) error {
	name, value, found := strings.Cut(s, "=")
	if !found || name == "" {
		return errors.New("must be name=value")
	}
	in.vars = append(in.vars, config.Var{Name: name, Value: value})
	return nil
}
