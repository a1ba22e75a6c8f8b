package manifests

import (
	"errors"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// grpcPlugin makes the handlers of grpc probes of pods, with the plugin that is built in.
type grpcPlugin struct{ plugin config.Handler }

// LoadGRPC loads the plugin for grpc probes with those of a configuration, so that it stays loaded as long as they do. One that is
// loaded already is reused. Without the plugin, only grpc probes cannot be made.
func (f *Flags) LoadGRPC(e config.Engine, p *handlers.Plugins) error {
	h, err := p.GRPC(e)
	if errors.Is(err, embedded.ErrNoGRPC) {
		return nil
	}
	if err == nil && f.grpc.plugin.Make == nil { // pods are read meanwhile, and a later configuration may not come into use
		f.grpc.plugin = h
	}
	return err
}

// handler makes the handler of a grpc probe, with the plugin's own defaults.
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
