package sondecaddy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// probing is in the Caddyfile of docs/gateways whose servers an engine in Caddy probes.
const probing = "http /ready"

// No client notices that servers are killed, hang or drain, or that none is ready.
func TestNoRequestThroughCaddyFails(t *testing.T) {
	e := documented(t, probing)
	e.LoseServers()
	e.Servers[0].Drain()
	e.Servers[1].Drain()
	e.Await(probe.GatewayDown, e.Servers...)
	e.Whole("panic")
}

// Reloads keep known results, including reloads that fail or that change the settings.
func TestReloadsKeepWhatIsKnown(t *testing.T) {
	e := documented(t, probing)
	down := e.Servers[0]
	e.Await(probe.GatewayReady, e.Servers...)
	down.Kill()
	before := e.sources()[0].(*probed)
	testsync.Until(t, "a verdict", func() bool {
		st, _ := before.prober.engine.Status(before.id(down.Address))
		return st.Verdict == probe.Failing // what requests say ends with the settings
	})
	for range 5 {
		e.reload(e.text)
	}
	if e.sources()[0] != source(before) {
		t.Error("a reload has replaced the source")
	}
	e.Without(down)

	if err := load(strings.Replace(strings.Replace(e.text, "period 1s", "period 3s", 1), "dial_timeout 1s", "dial_timeout 1s\n\t\t\ttls_trust_pool file /nonexistent", 1)); err == nil {
		t.Error("an invalid configuration was loaded")
	}
	if open := e.sources(); len(open) != 1 || open[0] != source(before) {
		t.Errorf("after an invalid configuration the sources are %v", open)
	}

	e.Servers[1].Hang() // requests that wait for it go on at others, by the configuration that they began with
	e.Load.Pass(t, 20)
	for _, period := range []string{"2s", "700ms", "1s"} {
		e.reload(strings.Replace(e.text, "period 1s", "period "+period, 1))
		if v := e.view(); v.Frozen || state(v, down) != probe.GatewayDown {
			t.Errorf("after a reload the view is %+v", v)
		}
		e.Load.Pass(t, 100)
	}
	e.Servers[1].Continue()
	e.Await(probe.GatewayReady, e.Servers[1], e.Servers[2])
	e.Without(down)
	e.Whole("reloads")
	down.Start()
	e.Await(probe.GatewayReady, down)
}

// Blocks with equal settings share a source; those of others do not depend on them.
func TestSitesShareAnEngine(t *testing.T) {
	e := documented(t, probing)
	e.Await(probe.GatewayReady, e.Servers...)
	site := e.text[strings.Index(e.text, "http:// {"):]
	second := strings.Replace(site, "http:// {", "http://second {", 1)
	third := strings.NewReplacer("http:// {", "http://third {", "period 1s", "period 5s", e.Servers[2].Address, "").Replace(site)
	e.reload(e.text + second + third)
	open := e.sources()
	if len(open) != 2 || open[0].(*probed).prober != open[1].(*probed).prober {
		t.Fatalf("the sources are %v", open)
	}
	for _, s := range open {
		if v := s.group().View(); v.Frozen || v.State != probe.GatewayReady {
			t.Errorf("the view is %+v", v)
		}
	}
	e.reload(strings.Replace(e.text, "http:// {", "http://first {", 1) + second)
	if v := e.view(); v.Counts[probe.GatewayReady] != 3 {
		t.Errorf("the view is %+v", v)
	}
}

// With the policy of docs/gateways, servers get requests by their weights.
func TestServersGetRequestsByWeight(t *testing.T) {
	e := documented(t, probing)
	e.reload(strings.Replace(e.text, "period 1s", fmt.Sprintf("period 1s\n weight %s 100\n weight %s 25\n weight %s 0",
		e.Servers[0].Address, e.Servers[1].Address, e.Servers[2].Address), 1))
	e.Await(probe.GatewayReady, e.Servers...)
	e.Load.Pass(t, 50)
	e.Load.Take()
	e.Load.Pass(t, 2500)
	served, failed, how := e.Load.Take()
	total := served["web-1"] + served["web-2"] + served["web-3"]
	share := 100 * served["web-2"] / total
	if share < 17 || share > 23 || served["web-3"] > 0 || failed > 0 {
		t.Errorf("%d requests failed: %s; served: %v", failed, how, served)
	}
}

// checked starts a server that answers all probes, instead of the servers themselves, once open
// is called. It returns the setting for that.
func checked(t *testing.T) (setting string, open func()) {
	gate := make(chan struct{})
	open = sync.OnceFunc(func() { close(gate) })
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gate }))
	t.Cleanup(func() { open(); s.Close() })
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http /ready {\nport " + port + "\n}", open
}

// A server that passes its probe, and answers no requests, is out of rotation.
func TestWhatRequestsSayTakesAServerOut(t *testing.T) {
	setting, open := checked(t)
	open()
	e := documented(t, probing, "http /ready", setting, "period 1s", "period 1h")
	e.Await(probe.GatewayReady, e.Servers...)
	e.Servers[0].Kill()
	testsync.Until(t, "the server to be out", func() bool {
		e.Load.Pass(t, 100)
		before := state(e.view(), e.Servers[0])
		e.Load.Pass(t, 100) // its probe has passed once more
		return before == probe.GatewayDown && state(e.view(), e.Servers[0]) == probe.GatewayDown
	})
	e.Servers[0].Start()
	e.Without(e.Servers[0])
}

// Caddy uses all servers until something is known.
func TestAllServersAreUsedBeforeTheFirstVerdict(t *testing.T) {
	setting, open := checked(t)
	e := documented(t, probing, "http /ready", setting, "timeout 500ms", "timeout 1h", "period 1s", "period 1h")
	e.Without()
	if !e.view().Frozen {
		t.Error("something is known already")
	}
	open()
	e.Await(probe.GatewayReady, e.Servers...)
	e.Without()
}
