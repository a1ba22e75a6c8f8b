package httpgateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

func TestStatusesOfEndpoints(t *testing.T) {
	for _, c := range []struct {
		member         group.Member
		degradedStatus bool
		health         string
		weight         int
	}{
		{group.Member{State: probe.GatewayReady, InRotation: true, Weight: 100}, false, "HEALTHY", 100},
		{group.Member{State: probe.GatewayReady, InRotation: true, Weight: 10}, true, "HEALTHY", 10},       // slow start
		{group.Member{State: probe.GatewayUndecided, InRotation: true, Weight: 100}, true, "HEALTHY", 100}, // as it was before
		{group.Member{State: probe.GatewayDegraded, InRotation: true, Weight: 25}, false, "HEALTHY", 25},
		{group.Member{State: probe.GatewayDegraded, InRotation: true, Weight: 25}, true, "DEGRADED", 25},
		{group.Member{State: probe.GatewayDown, InRotation: true, Weight: 100}, true, "HEALTHY", 100},     // panic
		{group.Member{State: probe.GatewayDraining, InRotation: true, Weight: 100}, true, "HEALTHY", 100}, // quorum
		{group.Member{State: probe.GatewayReady}, false, "DRAINING", 1},                                   // by a label with the weight 0
		{group.Member{State: probe.GatewayDegraded}, true, "DRAINING", 1},
		{group.Member{State: probe.GatewayDraining}, false, "DRAINING", 1},
		{group.Member{State: probe.GatewayDown}, false, "UNHEALTHY", 1},
		{group.Member{State: probe.GatewayUndecided}, false, "UNHEALTHY", 1},
	} {
		if health, weight := healthOf(&c.member, c.degradedStatus); health != c.health || weight != c.weight {
			t.Errorf("%+v is %s with the weight %d, want %s with %d", c.member, health, weight, c.health, c.weight)
		}
	}
}

func TestMembersThatEnvoyCannotHaveAreLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		members []*group.Member
		want    int
		problem string
	}{
		"no such target yet": {[]*group.Member{{Target: "a"}, {Target: "b", Address: "10.0.0.1", Port: 80}}, 1, ""},
		"no address":         {[]*group.Member{{Target: "a", Port: 80, State: probe.GatewayDown}}, 0, `member "a" is left out: endpoints need`},
		"a name":             {[]*group.Member{{Target: "a", Address: "web.example", Port: 80}}, 0, `"web.example" and 80`},
		"no port":            {[]*group.Member{{Target: "a", Address: "10.0.0.1"}}, 0, `"10.0.0.1" and 0`},
		"a zone":             {[]*group.Member{{Target: "a", Address: "fe80::1%eth0", Port: 80}}, 0, "endpoints need"},
		"another port":       {[]*group.Member{{Target: "a", Address: "10.0.0.1", Port: 80}, {Target: "b", Address: "10.0.0.1", Port: 81}}, 2, ""},
		"the same":           {[]*group.Member{{Target: "a", Address: "10.0.0.1", Port: 80}, {Target: "b", Address: "10.0.0.1", Port: 80}}, 1, `member "b" is left out: "a" has the same`},
	} {
		m := group.NewMirror("web")
		m.Publish(&group.View{}, c.members)
		all, problem := Endpoints(m.Group.View(), false)
		if len(all) != c.want || (problem == nil) != (c.problem == "") || problem != nil && !strings.Contains(problem.Error(), c.problem) {
			t.Errorf("%s: the endpoints are %v, %v", name, all, problem)
		}
	}
}

func TestTheNamesOfARequestAreBounded(t *testing.T) {
	for names, ok := range map[int]bool{MaxNames: true, MaxNames + 1: false} {
		text := `{"resource_names":["web"` + strings.Repeat(`,"web"`, names-1) + `]}`
		if _, err := parseDiscovery([]byte(text)); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "at most 10000") {
			t.Errorf("a request with %d names: %v", names, err)
		}
	}
}

func FuzzDiscoveryRequests(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"resource_names":["web"],"version_info":"1"}`, `{"resource_names":["a","a"],"type_url":"` + resourceType + `"}`,
		`{"error_detail":{"code":3},"response_nonce":"2"}`, `{"resource_names":null,"version_info":null}`, `[`, `"`, `{"node":{"id":"\ud800"}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseDiscovery(text)
		if err != nil {
			if len(r.names) > 0 || r.version != "" {
				t.Errorf("with the error %v there is %+v", err, r)
			}
			return
		}
		if !json.Valid(text) || len(r.names) > len(text)/2 || len(r.version) > 6*len(text) {
			t.Errorf("%q is read as %+v", text, r)
		}
	})
}
