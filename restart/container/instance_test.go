package container

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
)

func TestWhereAContainerIsReached(t *testing.T) {
	bridge := map[string]netip.Prefix{"b": netip.MustParsePrefix("172.18.0.2/16"), "a": netip.MustParsePrefix("10.1.0.2/24")}
	published := map[string]netip.AddrPort{"8080/tcp": netip.MustParseAddrPort("127.0.0.1:32768"), "53/udp": netip.MustParseAddrPort("127.0.0.1:5353"), "9/tcp": netip.MustParseAddrPort("10.0.0.1:9")}
	ports := map[string]uint16{"http": 8080, "other": 1}
	for name, c := range map[string]struct {
		container docker.Container
		own       []string
		address   string
		ports     map[string]uint16
	}{
		"network of the machine":   {docker.Container{NetworkMode: "host", Published: published}, nil, "127.0.0.1", nil},
		"a network of the machine": {docker.Container{Addresses: bridge, Published: published}, []string{"192.168.0.1/24", "172.18.0.1/16"}, "172.18.0.2", nil},
		"both networks":            {docker.Container{Addresses: bridge}, []string{"10.1.0.1/24", "172.18.0.1/16"}, "10.1.0.2", nil},
		"published":                {docker.Container{Addresses: bridge, Published: published}, []string{"192.168.0.1/24"}, "127.0.0.1", map[string]uint16{"8080": 32768, "http": 32768, "53": 5353}},
		"neither":                  {docker.Container{Addresses: bridge}, []string{"192.168.0.1/24"}, "10.1.0.2", nil},
		"none":                     {docker.Container{NetworkMode: "none"}, nil, "", nil},
	} {
		var own []netip.Prefix
		for _, p := range c.own {
			own = append(own, netip.MustParsePrefix(p))
		}
		if address, got := endpoint(c.container, ports, own); address != c.address || !maps.Equal(got, c.ports) {
			t.Errorf("%s: %q %v, want %q %v", name, address, got, c.address, c.ports)
		}
	}
}

// A container that gets another address by a restart is probed there, and is not restarted for it.
func TestAnotherAddressIsNoReasonToRestart(t *testing.T) {
	r := dockertest.Docker(t)
	r.Post(t, "/networks/create", `{"Name":"sonde-test","Driver":"bridge","IPAM":{"Config":[{"Subnet":"10.213.47.0/28"}]},"Options":{"com.docker.network.bridge.name":"sonde-test0"}}`)
	t.Cleanup(func() { r.DeleteNetwork(t, "sonde-test") })
	spec := docker.Spec{Cmd: []string{"serve", ":8080"}}
	spec.HostConfig.NetworkMode = "sonde-test"
	id := r.ContainerOf(t, "web", spec)
	w := newWorld(t, r)
	w.HTTP("web", "192.0.2.1:8080")
	w.Run(map[string]restart.Unit{"web": w.attach("web")}, nil)
	first := w.Until("web", "ready", drivertest.IsReady)
	if err := r.Client.Stop(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	spec.Cmd = []string{"sleep", "1000"}
	r.ContainerOf(t, "other", spec) // takes the address
	if err := r.Client.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	second := w.Until("web", "ready again", func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != first.Instance.ID })
	if second.Instance.Address == first.Instance.Address || second.Instance.Address != fmt.Sprint(r.Inspect(t, id).Addresses["sonde-test"].Addr()) {
		t.Errorf("first %+v, second %+v", first.Instance, second.Instance)
	}
}
