// Package handlers loads configurations, with the built-in handlers and those of plugins.
//
//	handlers.go the built-in handlers, drivers and settings
//	gateways.go the outputs of gateways
//	notifiers.go  the outputs of notifiers
//	choose.go   selects probes of a configuration by arguments
//	load.go     the flags --var and --var-file, and loading
//	exec.go     exec blocks, which run inside the target's container if it has one
//	warnings.go warnings about probable mistakes in blocks of the built-in handlers and drivers
//	statefile.go  the directory of a state file and its directory of processes
//	plugins.go  the modules that a configuration has loaded
//	grpc.go     the built-in module of grpc blocks
//	installed.go  plugins installed by packages
//	scripts.go  script blocks, and the plugin that runs them
package handlers

import (
	"errors"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/blackbox"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	icmpprobe "github.com/sonde-probe/sonde/builtin/icmp"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/restart/container"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/restart/systemd"
	"github.com/sonde-probe/sonde/wasmhost"
)

// Options returns the blocks and arguments of a configuration without plugins: the handler blocks of probes, the blocks
// container, process, restart and unit of targets, the output blocks of gateways and notifiers, and the arguments that packages
// restart and wasmhost declare.
func Options() config.Options {
	return config.Options{
		Handlers: Builtin(nil, nil),
		Drivers: map[string]config.Driver{
			"container": containerDriver(),
			"process":   processDriver(),
			"restart":   restartDriver(),
			"unit":      unitDriver(),
		},
		Gateways:        settingsOf(outputs),
		GatewayConflict: gatewayConflict,
		Notifiers:       settingsOf(notifyOutputs),
		CheckAllowed:    blackbox.CheckAllowed,
		Listen:          api.DefaultListen,
		EngineSettings:  config.SettingsOf(restart.Config.Check),
		TargetSettings:  config.SettingsOf(restart.Unit.Check),
		PluginSettings:  config.SettingsOf[wasmhost.Config](nil), // wasmhost.Load validates them
	}
}

func processDriver() config.Driver {
	d := config.DriverOf(checkProcess, func(c process.Config) probe.Target {
		return probe.Target{Address: "127.0.0.1", Env: c.Env, Dir: c.Dir, User: c.User} // it runs on this machine
	})
	d.IsLocal, d.WarnOfTarget = true, warnOfProcessTarget
	return d
}

func containerDriver() config.Driver {
	d := config.DriverOf(checkContainer, func(c container.Config) probe.Target {
		return probe.Target{Runtime: c.Runtime(), Env: c.Env}
	})
	d.OfTarget = func(settings any, t probe.Target) any {
		c := settings.(container.Config)
		c.Target, c.Ports = t.Name, t.Ports
		return c
	}
	d.IsLocal, d.WarnOfTarget = true, warnOfProcessTarget
	return d
}

// checkContainer validates a container block. A container that the engine creates outlives the engine, and is found again by
// the path of the state file.
func checkContainer(c container.Config, engine config.Context) error {
	if err := c.Check(); err != nil || !c.Owns() || engine.State != "" {
		return err
	}
	return probe.FieldErrorf("image", "needs a state file, since the container outlives the engine: set state in the engine block")
}

func unitDriver() config.Driver {
	d := config.DriverOf(func(c systemd.Config, _ config.Context) error { return c.Check() }, func(systemd.Config) probe.Target {
		return probe.Target{Address: "127.0.0.1"} // it runs on this machine
	})
	d.IsLocal, d.WarnOfTarget = true, warnOfUnitTarget
	return d
}

func restartDriver() config.Driver {
	d := config.DriverOf(func(c command.Config, _ config.Context) error { return c.Check() }, nil)
	d.ByProbes, d.WarnOfTarget = true, warnOfNoRestart
	return d
}

// checkProcess validates a process block. Processes that outlive the engine are found in a directory beside the state file.
func checkProcess(c process.Config, engine config.Context) error {
	if err := c.Check(); err != nil || !c.Adopt || engine.State != "" {
		return err
	}
	return probe.FieldErrorf("adopt", "needs a state file: set state in the engine block")
}

// errNoPlugins is the error about a block of the built-in plugin if plugins cannot be loaded.
var errNoPlugins = errors.New("plugins cannot be used here")

// Builtin returns the built-in handler blocks by name. The grpc block has no plugin yet. beats receives the beats of targets,
// and runtimes are the container runtimes; both are nil without an engine.
func Builtin(beats *beatprobe.Registry, runtimes *container.Runtimes) map[string]config.Handler {
	exec, http, tcp := config.Of(newExec(runtimes)), config.Of(httpprobe.New), config.Of(tcpprobe.New)
	http.Warn, tcp.Warn = warnOfHTTP, warnOfTCP
	icmp := config.Of(icmpprobe.New)
	icmp.NoPort, icmp.Warn = true, warnOfHostName
	beat := config.Of(beats.New)
	beat.NoCluster = "a beat reaches one engine, and another may own the target"
	grpc := config.Handler{Schema: grpcSchema, Load: func(config.Engine) (config.Handler, error) { return config.Handler{}, errNoPlugins }}
	return map[string]config.Handler{"beat": beat, "exec": exec, "grpc": grpc, "http": http, "icmp": icmp, "tcp": tcp}
}
