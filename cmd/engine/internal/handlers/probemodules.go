package handlers

import (
	"github.com/sonde-probe/sonde/api/blackbox"
	"github.com/sonde-probe/sonde/config"
)

// ProbeModules returns the modules of /probe that a configuration has.
func ProbeModules(modules map[string]config.ProbeModule) map[string]blackbox.Module {
	all := make(map[string]blackbox.Module, len(modules))
	for name, m := range modules {
		of := blackbox.Module{
			Handler: m.Handler, HandlerName: m.HandlerName,
			Port: m.Port, Timeout: m.Timeout, Allow: m.Allow, Settings: m.Settings,
		}
		if !m.NoPort {
			of.PortName = config.RequestPort
		}
		all[name] = of
	}
	return all
}
