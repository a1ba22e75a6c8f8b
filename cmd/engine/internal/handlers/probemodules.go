package handlers

import (
	"github.com/sonde-probe/sonde/adapter/blackbox"
	"github.com/sonde-probe/sonde/config"
)

// ProbeModules returns the modules of /probe that a configuration has.
func ProbeModules(modules map[string]config.ProbeModule) map[string]blackbox.Module {
	all := make(map[string]blackbox.Module, len(modules))
	for name, m := range modules {
		all[name] = blackbox.Module{
			Handler: m.Handler, HandlerName: m.HandlerName, PortName: config.RequestPort,
			Port: m.Port, Timeout: m.Timeout, Allow: m.Allow, Settings: m.Settings,
		}
	}
	return all
}
