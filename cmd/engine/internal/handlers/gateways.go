package handlers

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/adapter/gateway"
	"github.com/sonde-probe/sonde/adapter/gateway/agent"
	"github.com/sonde-probe/sonde/adapter/gateway/consul"
	"github.com/sonde-probe/sonde/adapter/gateway/envoy"
	"github.com/sonde-probe/sonde/adapter/gateway/haproxy"
	"github.com/sonde-probe/sonde/adapter/gateway/oracle"
	"github.com/sonde-probe/sonde/adapter/gateway/prometheus"
	"github.com/sonde-probe/sonde/adapter/gateway/render"
	"github.com/sonde-probe/sonde/adapter/gateway/traefik"
	"github.com/sonde-probe/sonde/config"
)

// output is a block of a gateway that says what keeps it up to date.
type output struct {
	settings config.Settings
	make     func(settings any) gateway.Output
}

// outputs are the blocks, by name.
var outputs = map[string]output{
	"agent":      outputOf(agent.Config.Check, agent.New),
	"consul":     outputOf(consul.Config.Check, consul.New),
	"envoy":      outputOf(envoy.Config.Check, envoy.New),
	"haproxy":    outputOf(haproxy.Config.Check, haproxy.New),
	"render":     outputOf(render.Config.Check, render.New),
	"oracle":     outputOf(oracle.Config.Check, oracle.New),
	"prometheus": outputOf(prometheus.Config.Check, prometheus.New),
	"traefik":    outputOf(traefik.Config.Check, traefik.New),
}

func outputOf[C any, O gateway.Output](check func(C) error, build func(C) O) output {
	return output{config.SettingsOf(check), func(settings any) gateway.Output { return build(settings.(C)) }}
}

// gatewaySettings returns what the blocks can contain.
func gatewaySettings() map[string]config.Settings {
	all := make(map[string]config.Settings, len(outputs))
	for name, o := range outputs {
		all[name] = o.settings
	}
	return all
}

// GatewaySpecs returns what keeps the gateways of a configuration up to date.
func GatewaySpecs(gateways map[string]config.Gateway) map[string]gateway.Spec {
	specs := make(map[string]gateway.Spec, len(gateways))
	for name, g := range gateways {
		o, ok := outputs[g.Output]
		if !ok {
			panic(fmt.Sprintf("handlers: gateway %q has the output %q, which Options does not have", name, g.Output))
		}
		specs[name] = gateway.Spec{Output: g.Output, Groups: g.Groups, Settings: g.Settings, Resources: resources(g.Settings), New: func() gateway.Output { return o.make(g.Settings) }}
	}
	return specs
}

// exclusive are the arguments of outputs that name what only one of them may use at once.
var exclusive = []string{"directory", "listen", "path", "socket"}

// resources returns what only one output may use at once, as gateway.Spec has it.
func resources(settings any) (all []string) {
	v := reflect.ValueOf(settings)
	for i := range v.NumField() {
		argument, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("hcl"), ",")
		if !slices.Contains(exclusive, argument) {
			continue
		}
		value := v.Field(i).String()
		switch {
		case value == "", argument == "listen" && strings.HasSuffix(value, ":0"): // the system chooses another port each time
			continue
		case argument == "path", argument == "directory", strings.Contains(value, "/"):
			if absolute, err := filepath.Abs(value); err == nil {
				value = absolute
			}
		}
		all = append(all, argument+" "+value)
	}
	return all
}
