package gateways

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

const token = "0123456789abcdef"

// HashiCorp's client follows a group by blocking queries, even across engines.
func TestHashiCorpsClientFollows(t *testing.T) {
	client := func(s *gatewaytest.Scene) *api.Client {
		o := s.Serve(func() gateway.Output { return httpgateway.Consul{Listen: "127.0.0.1:0", Token: token}.Output() })
		client, err := api.NewClient(&api.Config{Address: strings.TrimPrefix(o.URL, "http://"), Token: token})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	var index uint64
	passing := func(c *api.Client, waitsFor string) {
		t.Helper()
		for {
			entries, meta, err := c.Health().Service("web", "", true, &api.QueryOptions{WaitIndex: index, WaitTime: 10 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			index = meta.LastIndex
			var all []string
			for _, e := range entries {
				all = append(all, fmt.Sprintf("%s %s:%d %s", e.Service.ID, e.Service.Address, e.Service.Port, e.Checks.AggregatedStatus()))
			}
			if strings.Join(all, ", ") == waitsFor {
				return
			}
		}
	}
	addresses := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}
	s := gatewaytest.New(t, group.Rule{Port: "8080"}, addresses)
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success})
	first := client(s)
	passing(first, "a 10.0.0.1:8080 passing, b 10.0.0.2:8080 passing")
	s.Say(map[string]probe.Outcome{"b": probe.Failure})
	passing(first, "a 10.0.0.1:8080 passing")

	services, _, err := first.Catalog().Services(nil)
	if _, ok := services["web"]; err != nil || !ok {
		t.Errorf("the services are %v, %v", services, err)
	}
	catalog, _, err := first.Catalog().Service("web", "", nil)
	if err != nil || len(catalog) != 2 || catalog[1].ServicePort != 8080 || catalog[1].Node != "b" {
		t.Errorf("the catalog is %+v, %v", catalog, err)
	}
	checks, _, err := first.Health().State(api.HealthCritical, nil)
	if err != nil || len(checks) != 1 || checks[0].Node != "b" || checks[0].Output != "down: exec.exit" {
		t.Errorf("the checks are %+v, %v", checks, err)
	}
	if self, err := first.Agent().Self(); err != nil || self["Config"]["Datacenter"] != "dc1" {
		t.Errorf("the agent is %v, %v", self, err)
	}
	if leader, err := first.Status().Leader(); err != nil || leader == "" {
		t.Errorf("the leader is %q, %v", leader, err)
	}

	next := gatewaytest.New(t, group.Rule{Port: "8080"}, addresses)
	second := client(next)
	next.Say(map[string]probe.Outcome{"a": probe.Failure, "b": probe.Success})
	passing(second, "b 10.0.0.2:8080 passing") // with the index of the first engine
}
