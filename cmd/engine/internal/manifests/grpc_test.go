package manifests

import (
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

func TestAPluginsDefaultsAreGivenToIt(t *testing.T) {
	var got config.Values
	g := grpcPlugin{config.Handler{
		Schema: config.Schema{Fields: []config.Field{{Name: "port", Default: "1"}, {Name: "retries", Default: int64(3)}, {Name: "service"}}},
		Make:   func(v config.Values, _ config.Context) (probe.Handler, error) { got = v; return nil, nil },
	}}
	if _, err := g.handler(kube.Action{Port: "9000"}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["port"] != "9000" || got["retries"] != int64(3) {
		t.Errorf("the plugin is given %v", got)
	}
}
