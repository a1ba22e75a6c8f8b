package handlers

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/gateway/agent"
	"github.com/sonde-probe/sonde/gateway/haproxy"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/gateway/render"
)

// Exclusive resources are found whatever the other arguments of a block are.
func TestGatewaysHaveTheResourcesOfTheirArguments(t *testing.T) {
	out, err := filepath.Abs("out")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		output   string
		settings any
		want     []string
	}{
		"file":      {"render", render.Config{Path: "./x/../out", Template: "x", Command: []string{"true"}}, []string{"file " + out}},
		"listener":  {"oracle", httpgateway.Oracle{Listen: "127.0.0.1:9778", Token: "secret"}, []string{"listener at 127.0.0.1:9778"}},
		"any port":  {"agent", agent.Config{Listen: "127.0.0.1:0"}, nil},
		"socket":    {"haproxy", haproxy.Config{Socket: "/run//admin.sock"}, []string{"backend web of the HAProxy at /run/admin.sock", "backend db of the HAProxy at /run/admin.sock"}},
		"directory": {"envoy", httpgateway.Envoy{Directory: "/run/envoy/", Listen: ":9781"}, []string{"file /run/envoy/web.json", "file /run/envoy/db.json", "listener at :9781"}},
	} {
		specs := GatewaySpecs(map[string]config.Gateway{name: {Groups: []string{"web", "db"}, Output: c.output, Settings: c.settings}})
		if got := specs[name].Resources; !slices.Equal(got, c.want) {
			t.Errorf("%s: the resources are %q, want %q", name, got, c.want)
		}
	}
}

func TestOnlyOneGatewayCanHaveAResource(t *testing.T) {
	listen := func(address string) any { return agent.Config{Listen: address} }
	backend := func(name string) any { return haproxy.Config{Socket: "/run/admin.sock", Backend: name} }
	write := func(path string) any { return render.Config{Path: path} }
	gateway := func(settings any, groups ...string) config.Gateway {
		return config.Gateway{Groups: groups, Settings: settings}
	}
	for name, c := range map[string]struct {
		a, b config.Gateway
		want string // the wrong argument of b
	}{
		"one address":                       {gateway(listen("127.0.0.1:80")), gateway(httpgateway.Oracle{Listen: "127.0.0.1:080"}), "listen"},
		"localhost":                         {gateway(listen("127.0.0.1:80")), gateway(listen("localhost:80")), "listen"},
		"localhost with a dot":              {gateway(listen("127.0.0.1:80")), gateway(listen("LOCALHOST.:80")), "listen"},
		"IPv4 in IPv6":                      {gateway(listen("127.0.0.1:80")), gateway(httpgateway.Oracle{Listen: "[::ffff:127.0.0.1]:80"}), "listen"},
		"every address":                     {gateway(listen("127.0.0.1:80")), gateway(listen(":80")), "listen"},
		"every address by name":             {gateway(listen("[::]:80")), gateway(listen("10.0.0.1:80")), "listen"},
		"another address":                   {gateway(listen("127.0.0.1:80")), gateway(listen("127.0.0.2:80")), ""},
		"another port":                      {gateway(listen(":80")), gateway(listen("127.0.0.1:81")), ""},
		"ports of the system":               {gateway(listen("127.0.0.1:0")), gateway(listen("127.0.0.1:0")), ""},
		"one file":                          {gateway(write("/run/web")), gateway(write("/run/./web")), "path"},
		"another file":                      {gateway(write("/run/web")), gateway(write("/run/api")), ""},
		"a file in a directory":             {gateway(write("/run/web.json")), gateway(httpgateway.Envoy{Directory: "/run"}, "web"), "directory"},
		"one directory":                     {gateway(httpgateway.Envoy{Directory: "/run"}, "db", "web"), gateway(httpgateway.Envoy{Directory: "/run"}, "web"), "directory"},
		"one directory, other groups":       {gateway(httpgateway.Envoy{Directory: "/run"}, "db"), gateway(httpgateway.Envoy{Directory: "/run"}, "web"), ""},
		"one backend":                       {gateway(backend("all"), "db"), gateway(backend("all"), "web"), "socket"},
		"the backend of a group":            {gateway(backend(""), "web"), gateway(backend("web"), "db"), "socket"},
		"the backends of groups":            {gateway(backend(""), "web"), gateway(backend(""), "db"), ""},
		"one backend of different HAProxys": {gateway(backend(""), "web"), gateway(haproxy.Config{Socket: "127.0.0.1:9999"}, "web"), ""},
	} {
		got := gatewayConflict(c.a, c.b)
		switch {
		case c.want == "" && got != nil:
			t.Errorf("%s: %v", name, got)
		case c.want != "" && (got == nil || got.Field != c.want || got.Hint == ""):
			t.Errorf("%s: the error is %v, want one of %s", name, got, c.want)
		}
	}
}

func TestOnlyEnvoyNeedsPorts(t *testing.T) {
	for name, settings := range Options().Gateways {
		if settings.NeedsPort != (name == "envoy") {
			t.Errorf("%s: got NeedsPort %v", name, settings.NeedsPort)
		}
	}
}
