package handlers

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/adapter/gateway/agent"
	"github.com/sonde-probe/sonde/adapter/gateway/envoy"
	"github.com/sonde-probe/sonde/adapter/gateway/haproxy"
	"github.com/sonde-probe/sonde/adapter/gateway/oracle"
	"github.com/sonde-probe/sonde/adapter/gateway/render"
	"github.com/sonde-probe/sonde/config"
)

// What only one gateway may use at once is known whatever else its block says.
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
		"file":      {"render", render.Config{Path: "./x/../out", Template: "x", Command: []string{"true"}}, []string{"path " + out}},
		"listener":  {"oracle", oracle.Config{Listen: "127.0.0.1:9778", Token: "secret"}, []string{"listen 127.0.0.1:9778"}},
		"any port":  {"agent", agent.Config{Listen: "127.0.0.1:0"}, nil},
		"socket":    {"haproxy", haproxy.Config{Socket: "/run//admin.sock", Backend: "web"}, []string{"socket /run/admin.sock"}},
		"directory": {"envoy", envoy.Config{Directory: "/run/envoy/"}, []string{"directory /run/envoy"}},
	} {
		specs := GatewaySpecs(map[string]config.Gateway{name: {Output: c.output, Settings: c.settings}})
		if got := specs[name].Resources; !slices.Equal(got, c.want) {
			t.Errorf("%s: the resources are %q, want %q", name, got, c.want)
		}
	}
}
