package httpprobe_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

// A retransmitted request results in a warning: the server has responded, but some of the packets to it are lost.
func TestARequestThatIsSentAgainIsAWarning(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	ca := dialtest.NewAuthority(t)
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	secure := serveTLS(t, serverConfig(ca.Sign(t, time.Hour, "127.0.0.1")), false)
	for name, c := range map[string]struct {
		config httpprobe.Config
		target probe.Target
		steps  bool
	}{
		"in steps":    {httpprobe.Config{Port: "web"}, plain, true},
		"kept":        {httpprobe.Config{Port: "web", ReuseConnection: true}, plain, true},
		"by net/http": {httpprobe.Config{Port: "web"}, plain, false},
		"over TLS":    {httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}}, secure, false},
	} {
		p := handler(t, c.config)
		p.steps = c.steps
		if got := p.Probe(t.Context(), c.target); got.Outcome != probe.Success {
			t.Errorf("%s, without loss: got %v %s: %s", name, got.Outcome, got.Reason, got.Detail)
		}
		p.Close()
		p = handler(t, c.config)
		p.steps = c.steps
		remove := faulttest.Filter(t, fmt.Sprintf("chain c { type filter hook input priority 0; tcp dport %d tcp flags & psh == psh limit rate 1/hour burst 1 packets drop; }", c.target.Ports["web"]))
		got := p.Probe(t.Context(), c.target)
		remove()
		if got.Outcome != probe.Warning || got.Reason != probe.ReasonTCPLoss || !strings.HasPrefix(got.Detail, "answered after a retransmission: status ") {
			t.Errorf("%s: got %v %s: %s", name, got.Outcome, got.Reason, got.Detail)
		}
	}
}
