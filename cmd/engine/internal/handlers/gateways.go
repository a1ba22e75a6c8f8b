package handlers

import (
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/gateway/agent"
	"github.com/sonde-probe/sonde/gateway/haproxy"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/gateway/render"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart/process"
)

// block is a block inside a gateway or notify block that selects the output.
type block[M any] struct {
	settings config.Settings
	make     M // creates an output from the settings
}

// settingsOf returns the settings of blocks, by name.
func settingsOf[M any](blocks map[string]block[M]) map[string]config.Settings {
	all := make(map[string]config.Settings, len(blocks))
	for name, b := range blocks {
		all[name] = b.settings
	}
	return all
}

// outputs are the output blocks of gateways, by name.
var outputs = map[string]block[func(settings any) gateway.Output]{
	"agent":      outputOf(agent.Config.Check, agent.New),
	"consul":     outputOf(httpgateway.Consul.Check, httpgateway.Consul.Output),
	"envoy":      needingPort(outputOf(httpgateway.Envoy.Check, httpgateway.Envoy.Output)),
	"haproxy":    outputOf(haproxy.Config.Check, haproxy.New),
	"render":     outputOf(render.Config.Check, render.New),
	"oracle":     outputOf(httpgateway.Oracle.Check, httpgateway.Oracle.Output),
	"prometheus": outputOf(httpgateway.Prometheus.Check, httpgateway.Prometheus.Output),
	"traefik":    outputOf(httpgateway.Traefik.Check, httpgateway.Traefik.Output),
}

func outputOf[C any, O gateway.Output](check func(C) error, build func(C) O) block[func(settings any) gateway.Output] {
	return block[func(settings any) gateway.Output]{config.SettingsOf(check), func(settings any) gateway.Output { return build(settings.(C)) }}
}

// needingPort marks a block whose gateway omits members without a port.
func needingPort[M any](b block[M]) block[M] {
	b.settings.NeedsPort = true
	return b
}

// GatewaySpecs returns the specs of a configuration's gateways, by name.
func GatewaySpecs(gateways map[string]config.Gateway) map[string]gateway.Spec {
	specs := make(map[string]gateway.Spec, len(gateways))
	for name, g := range gateways {
		var exclusive []string
		for _, r := range resources(g) {
			exclusive = append(exclusive, r.name)
		}
		specs[name] = gateway.Spec{Output: g.Output, Groups: g.Groups, Settings: g.Settings, Resources: exclusive, New: func() gateway.Output { return outputs[g.Output].make(g.Settings) }}
	}
	return specs
}

// resource is a resource that only one gateway can use at a time.
type resource struct {
	argument string // of the gateway's block, which sets the resource
	name     string // for errors; equal for the same resource
	anyHost  bool   // of a listener that uses its port at all addresses of this machine
	port     uint16 // of a listener; 0 for other resources
}

// overlaps reports whether r and o cannot be used by two gateways at the same time.
func (r resource) overlaps(o resource) bool {
	return r.name == o.name || r.port != 0 && r.port == o.port && (r.anyHost || o.anyHost)
}

// remedies are the hints for arguments whose resource is in use by another gateway.
var remedies = map[string]string{
	"directory": "write another directory, or leave the group out of one of the gateways",
	"listen":    "write another address or port, or one gateway with groups instead of both",
	"path":      "write another path, or one gateway with groups instead of both",
	"log.file":  "write another path",
	"socket":    "write the backend of this gateway's servers, or one gateway with groups instead of both",
}

// gatewayConflict implements config.Options.GatewayConflict.
func gatewayConflict(a, b config.Gateway) *probe.FieldError {
	others := resources(a)
	_, isEngine := a.Settings.(config.Engine)
	for _, r := range resources(b) {
		switch isTaken := slices.ContainsFunc(others, r.overlaps); {
		case isTaken && isEngine && r.port == 0:
			return &probe.FieldError{Field: r.argument, Problem: "is where the engine keeps its state: only one can write the " + r.name, Hint: "write another path, or move state of the engine block"}
		case isTaken && isEngine:
			return &probe.FieldError{Field: "listen", Problem: "is where the engine listens itself: only one can have the " + r.name, Hint: "write another port, or move listen of the engine block"}
		case isTaken && b.Output == "": // a target
			return &probe.FieldError{Field: r.argument, Problem: "is also used by a gateway: only one can have the " + r.name, Hint: remedies[r.argument]}
		case isTaken:
			return &probe.FieldError{Field: r.argument, Problem: "is also used by another gateway: only one can have the " + r.name, Hint: remedies[r.argument]}
		}
	}
	return nil
}

// resources returns the exclusive resources of a gateway.
func resources(g config.Gateway) (all []resource) {
	switch settings := g.Settings.(type) {
	case config.Engine:
		if l, ok := listenerAt(settings.Listen); ok {
			all = append(all, l)
		}
		if settings.State != "" {
			all = append(all, resource{argument: "state", name: "file " + absolute(settings.State)}, resource{argument: "state", name: "file " + absolute(accepted.File(settings.State))})
		}
		return all
	case httpgateway.Envoy:
		if settings.Directory != "" {
			for _, of := range g.Groups {
				all = append(all, resource{argument: "directory", name: "file " + absolute(settings.FileOf(of))})
			}
		}
	case haproxy.Config:
		socket := settings.Socket
		if strings.Contains(socket, "/") {
			socket = absolute(socket)
		}
		for _, of := range g.Groups {
			all = append(all, resource{argument: "socket", name: "backend " + settings.BackendOf(of) + " of the HAProxy at " + socket})
		}
	case render.Config:
		all = append(all, resource{argument: "path", name: "file " + absolute(settings.Path)})
	case process.Config:
		if settings.Log != nil && settings.Log.File != "" {
			all = append(all, resource{argument: "log.file", name: "file " + absolute(settings.Log.File)})
		}
		return all
	}
	if l, ok := listenerOf(g.Settings); ok {
		all = append(all, l)
	}
	return all
}

// listenerOf returns the listener of an output with the argument listen. ok is false if the system chooses its port.
func listenerOf(settings any) (l resource, ok bool) {
	v := reflect.ValueOf(settings)
	if v.Kind() != reflect.Struct {
		return l, false
	}
	for i := range v.NumField() {
		if argument, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("hcl"), ","); argument == "listen" {
			return listenerAt(v.Field(i).String())
		}
	}
	return resource{}, false
}

// listenerAt returns the listener at an address. ok is false if the system chooses its port.
func listenerAt(listen string) (l resource, ok bool) {
	host, port, err := net.SplitHostPort(listen)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n == 0 {
		return resource{}, false
	}
	if host = dial.HostID(host); host == "localhost" {
		host = "127.0.0.1" // Go listens there for localhost
	}
	address, err := netip.ParseAddr(host)
	return resource{
		argument: "listen", name: "listener at " + net.JoinHostPort(host, strconv.Itoa(int(n))),
		anyHost: host == "" || err == nil && address.IsUnspecified(), port: uint16(n),
	}, true
}

// absolute returns the absolute form of a path, so that different spellings of the same path are equal.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}
