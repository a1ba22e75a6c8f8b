package container

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
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

// If a restart gives a container another address, it is probed there, and is not restarted for that reason.
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

// If the network of a container is not reachable, its published ports are probed. Any other port of the machine belongs
// to something else: an attempt at it is unknown, and restarts nothing.
func TestPublishedPortsAreProbedWhereTheNetworkIsNotReached(t *testing.T) {
	tier.CI(t)
	r := dockertest.DockerApart(t)
	r.Post(t, "/networks/create", `{"Name":"sonde-test","Driver":"bridge","IPAM":{"Config":[{"Subnet":"10.213.49.0/28"}]}}`)
	t.Cleanup(func() { r.DeleteNetwork(t, "sonde-test") })
	spec := docker.Spec{Cmd: []string{"serve", ":8080"}, ExposedPorts: map[string]struct{}{"8080/tcp": {}}}
	spec.HostConfig.NetworkMode = "sonde-test"
	spec.HostConfig.PortBindings = map[string][]docker.PortBinding{"8080/tcp": {{HostIP: dockertest.ApartAddress, HostPort: "18080"}}}
	r.ContainerOf(t, "web", spec)
	w := newWorld(t, r)
	w.HTTP("web", "192.0.2.1:8080")
	other, err := tcpprobe.New(tcpprobe.Config{Port: "18080"}) // of the machine, where it listens for port 8080 of the container
	if err != nil {
		t.Fatal(err)
	}
	id := probe.ID{Target: "web", Kind: probe.Liveness, Name: "other"}
	w.Probes[id] = probe.Probe{Rule: drivertest.Rule, Handler: other, HandlerName: "tcp"}
	w.Run(map[string]restart.Unit{"web": w.attach("web")}, nil)
	s := w.Until("web", "ready", drivertest.IsReady)
	if s.Instance.Address != dockertest.ApartAddress || s.Instance.Ports["8080"] != 18080 {
		t.Errorf("instance: %+v", s.Instance)
	}
	testsync.Until(t, "an attempt at the other port", func() bool { p, _ := w.Engine.Status(id); return p.Result.Reason == probe.ReasonNoPort })
	if p, _ := w.Engine.Status(id); p.Verdict == probe.Failing || !strings.Contains(p.Result.Detail, "does not publish") {
		t.Errorf("probe of the other port: %+v", p)
	}
	before := r.Inspect(t, "web")
	drivertest.Get(t, dockertest.ApartAddress+":18080", "/fail")
	w.Until("web", "restart", func(now engine.TargetStatus) bool { return drivertest.IsReady(now) && now.Instance.ID != s.Instance.ID })
	if after := r.Inspect(t, "web"); after.State.StartedAt.Equal(before.State.StartedAt) {
		t.Errorf("the container was not restarted: %+v", after.State)
	}
}
