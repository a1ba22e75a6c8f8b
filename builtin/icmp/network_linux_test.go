package icmpprobe

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestATargetIsProbedFromItsNetwork(t *testing.T) {
	tier.CI(t)
	needRoot(t)
	faulttest.NetworkNamespace(t, "blue", "ip addr add 198.18.9.9/32 dev lo")
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		h := newHandler(t, Config{})
		h.onlyRaw = onlyRaw
		for name, test := range map[string]struct {
			network *probe.Network
			outcome probe.Outcome
			reason  probe.Reason
		}{
			"of the engine":     {nil, probe.Failure, probe.ReasonICMPUnreachable},
			"of the target":     {&probe.Network{Namespace: "blue", Source: "198.18.9.9", Interface: "lo"}, probe.Success, ""},
			"no such namespace": {&probe.Network{Namespace: "red"}, probe.Unknown, probe.ReasonNetwork},
			"a foreign source":  {&probe.Network{Namespace: "blue", Source: "198.18.9.8"}, probe.Unknown, probe.ReasonICMPSource},
		} {
			got := h.Probe(t.Context(), probe.Target{Name: "web", Address: "198.18.9.9", Network: test.network})
			if got.Outcome != test.outcome || got.Reason != test.reason {
				t.Errorf("%s: got %v %v %q", name, got.Outcome, got.Reason, got.Detail)
			}
		}
	})
}
