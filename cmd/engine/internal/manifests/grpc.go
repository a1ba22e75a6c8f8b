package manifests

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

// GRPCPlugin is the flag --grpc-plugin: the module with the handler of grpc probes.
// It is read once, so that every configuration of a running engine has the same.
type GRPCPlugin struct {
	File string // empty: the flag is not given

	module []byte
	make   func(config.Values, config.Context) (probe.Handler, error)
	fields []config.Field
}

// Register adds the flag to a command.
func (g *GRPCPlugin) Register(c *cobra.Command) {
	c.Flags().StringVar(&g.File, "grpc-plugin", "", "the `file` of the plugin for grpc probes, which need one")
}

// Load loads the module with the plugins of a configuration, so that it stays
// loaded as long as they do. A module that is loaded already is reused. It may dial the probed target only.
func (g *GRPCPlugin) Load(e config.Engine, p *handlers.Plugins) (err error) {
	if g.File == "" {
		return nil
	}
	if g.module == nil {
		if g.module, err = files.ReadRegular(g.File, wasmhost.DefaultModuleSize); err != nil {
			return fmt.Errorf("--grpc-plugin: %w", err)
		}
	}
	block := config.Plugin{Name: "grpc", Source: g.File, SHA256: cli.SHA256(g.module), Settings: wasmhost.Config{Grant: wasmhost.Grant{Dial: []string{"target"}}}}
	h, err := p.Handler(e, block, g.module)
	if err != nil {
		return fmt.Errorf("--grpc-plugin: %w", err)
	}
	if g.make == nil {
		g.make, g.fields = h.Make, h.Schema.Fields
	}
	return nil
}

// handler makes the handler of a grpc probe, with the plugin's own defaults.
func (g *GRPCPlugin) handler(action kube.GRPC) (probe.Handler, error) {
	values := config.Values{"port": action.Port}
	if action.Service != "" {
		values["service"] = action.Service
	}
	for _, f := range g.fields {
		if _, given := values[f.Name]; !given && f.Default != nil {
			values[f.Name] = f.Default
		}
	}
	return g.make(values, config.Context{})
}
