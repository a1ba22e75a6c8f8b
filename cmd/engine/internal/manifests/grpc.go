package manifests

import (
	"errors"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// grpcPlugin creates the handlers of pods' grpc probes, using the built-in plugin.
type grpcPlugin struct{ plugin config.Handler }

// LoadGRPC loads the plugin for grpc probes together with a configuration's plugins, so that both stay loaded equally long. It
// reuses a plugin that is already loaded. If this program has no such plugin, only grpc probes cannot be created.
func (f *Flags) LoadGRPC(e config.Engine, p *handlers.Plugins) error {
	h, err := p.GRPC(e)
	if errors.Is(err, embedded.ErrNoGRPC) {
		return nil
	}
	if err == nil && f.grpc.plugin.Make == nil { // only once: pods are read concurrently
		f.grpc.plugin = h
	}
	return err
}

// handler creates the handler of a grpc probe, with the plugin's own defaults.
func (g *grpcPlugin) handler(action kube.Action) (probe.Handler, error) {
	if g.plugin.Make == nil {
		return nil, embedded.ErrNoGRPC
	}
	values := config.Values{"port": action.Port}
	if action.Service != "" {
		values["service"] = action.Service
	}
	for _, f := range g.plugin.Schema.Fields {
		if _, given := values[f.Name]; !given && f.Default != nil {
			values[f.Name] = f.Default
		}
	}
	return g.plugin.Make(values, config.Context{})
}
