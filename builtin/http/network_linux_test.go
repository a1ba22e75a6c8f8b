package httpprobe_test

import (
	"net/http"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestATargetIsProbedFromItsNetwork(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	listener := faulttest.ListenIn(t, faulttest.NetworkNamespace(t, "blue", "true"), "tcp", "127.0.0.1:0")
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.RemoteAddr)) }))
	target := targetOf(listener.Addr())
	for name, c := range map[string]httpprobe.Config{"plain": {}, "a body": {Body: "x", Method: "POST"}, "kept": {ReuseConnection: true}} {
		c.Port = "web"
		for from, n := range map[string]*probe.Network{"": nil, "127.0.0.1:": {Namespace: "blue"}, "127.0.0.9:": {Namespace: "blue", Source: "127.0.0.9"}} {
			c.BodyContains, target.Network = from, n
			outcome, reason := probe.Success, probe.Reason("")
			if n == nil {
				outcome, reason = probe.Failure, probe.ReasonTCPRefused
			}
			wantResult(t, attempt(t, c, target, plenty), outcome, reason)
			got, stepped := nonblocktest.InTime(t, plenty, handler(t, c).Handler, target)
			if wantResult(t, got, outcome, reason); stepped != (name != "a body") {
				t.Errorf("%s: made in steps: %v", name, stepped)
			}
		}
	}
}
