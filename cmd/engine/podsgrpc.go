package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

// grpcPlugin is the flag --grpc-plugin: the module that makes the grpc probes of
// pods. Its bytes are read once, so that every configuration has the same.
type grpcPlugin struct {
	file   string
	module []byte
	make   func(config.Values, config.Context) (probe.Handler, error)
	fields []config.Field
}

func (g *grpcPlugin) flag(c *cobra.Command) {
	c.Flags().StringVar(&g.file, "grpc-plugin", "", "the `file` of the plugin for grpc probes, which need one")
}

// block returns the plugin block that stands for the flag. The plugin may dial the
// probed target, and no more.
func (g *grpcPlugin) block() config.Plugin {
	return config.Plugin{Name: "grpc", Source: g.file, SHA256: sum(g.module), Grant: config.PluginGrant{Dial: []string{"target"}}}
}

// read reads the module, once.
func (g *grpcPlugin) read() (err error) {
	if g.file == "" || g.module != nil {
		return nil
	}
	if g.module, err = readBounded(g.file, wasmhost.DefaultModuleSize); err != nil {
		return fmt.Errorf("--grpc-plugin: %w", err)
	}
	return nil
}

// load loads the module with the plugins of a configuration, so that it lives as
// long as they do. What is loaded already is taken over.
func (g *grpcPlugin) load(e config.Engine, p *plugins) error {
	if g.file == "" {
		return nil
	}
	if err := g.read(); err != nil {
		return err
	}
	h, err := p.handler(e, g.block(), g.module)
	if err != nil {
		return fmt.Errorf("--grpc-plugin: %w", err)
	}
	if g.make == nil {
		g.make, g.fields = h.Make, h.Schema.Fields
	}
	return nil
}

// handler makes the handler of a grpc probe, with the plugin's own defaults.
func (g *grpcPlugin) handler(action kube.GRPC) (probe.Handler, error) {
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
