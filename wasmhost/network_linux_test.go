package wasmhost_test

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

func TestAPluginConnectsFromTheNetworkOfTheTarget(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	listener := faulttest.ListenIn(t, faulttest.NetworkNamespace(t, "blue", "true"), "tcp", "127.0.0.1:0")
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go echoBack(conn)
		}
	}()
	target := targetOf(listener.Addr())
	h := handler(t, load(t, wasmhost.Config{Module: dialer("tcp", listener.Addr().String(), ""), Grant: wasmhost.Grant{Dial: []string{"tcp://" + listener.Addr().String()}}}), nil)
	for name, test := range map[string]struct {
		network *probe.Network
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"of the engine":     {nil, probe.Failure, probe.ReasonTCPRefused},
		"of the target":     {&probe.Network{Namespace: "blue", Source: "127.0.0.9"}, probe.Success, ""},
		"no such namespace": {&probe.Network{Namespace: "red"}, probe.Unknown, probe.ReasonNetwork},
	} {
		target.Network = test.network
		got := attempt(t, h, target, plenty)
		if got.Outcome != test.outcome || got.Reason != test.reason {
			t.Errorf("%s: got %v %v %q", name, got.Outcome, got.Reason, got.Detail)
		}
	}
}
