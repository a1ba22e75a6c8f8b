package sondecaddy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// probing is in the Caddyfile of docs/gateways whose servers an engine in Caddy probes.
const probing = "http /ready"

// No client notices that servers are killed, hang or drain, or that none is ready.
func TestNoRequestThroughCaddyFails(t *testing.T) {
	e := documented(t, probing)
	killed, hung, drained := e.servers[0], e.servers[1], e.servers[2]
	e.await(group.Ready, e.servers...)
	e.whole("begin")

	killed.Kill()
	e.load.Pass(t, 500)
	e.await(group.Down, killed)
	e.without(killed)
	killed.Start()
	e.await(group.Ready, killed)
	e.whole("kill")

	hung.Hang()
	e.load.Pass(t, 500)
	e.await(group.Down, hung)
	e.without(hung)
	hung.Continue()
	e.await(group.Ready, hung)
	e.whole("hang")

	drained.Drain()
	e.await(group.Down, drained)
	e.without(drained)
	drained.Exit()
	e.whole("drain")

	killed.Drain()
	hung.Drain()
	e.await(group.Down, e.servers...)
	e.whole("panic")
}

// Reloads keep what is known, also those that fail and those that change the settings.
func TestReloadsKeepWhatIsKnown(t *testing.T) {
	e := documented(t, probing)
	down := e.servers[0]
	e.await(group.Ready, e.servers...)
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
	e.without(down)

	if err := load(strings.Replace(strings.Replace(e.text, "period 1s", "period 3s", 1), "dial_timeout 1s", "dial_timeout 1s\n\t\t\ttls_trust_pool file /nonexistent", 1)); err == nil {
		t.Error("an invalid configuration was loaded")
	}
	if open := e.sources(); len(open) != 1 || open[0] != source(before) {
		t.Errorf("after an invalid configuration the sources are %v", open)
	}

	e.servers[1].Hang() // requests that wait for it go on at others, by the configuration that they began with
	e.load.Pass(t, 20)
	for _, period := range []string{"2s", "700ms", "1s"} {
		e.reload(strings.Replace(e.text, "period 1s", "period "+period, 1))
		if v := e.view(); v.Frozen || state(v, down) != group.Down {
			t.Errorf("after a reload the view is %+v", v)
		}
		e.load.Pass(t, 100)
	}
	e.servers[1].Continue()
	e.await(group.Ready, e.servers[1], e.servers[2])
	e.without(down)
	e.whole("reloads")
	down.Start()
	e.await(group.Ready, down)
}

// Blocks with equal settings share a source; those of others do not depend on them.
func TestSitesShareAnEngine(t *testing.T) {
	e := documented(t, probing)
	e.await(group.Ready, e.servers...)
	site := e.text[strings.Index(e.text, "http:// {"):]
	second := strings.Replace(site, "http:// {", "http://second {", 1)
	third := strings.NewReplacer("http:// {", "http://third {", "period 1s", "period 5s", e.servers[2].Address, "").Replace(site)
	e.reload(e.text + second + third)
	open := e.sources()
	if len(open) != 2 || open[0].(*probed).prober != open[1].(*probed).prober {
		t.Fatalf("the sources are %v", open)
	}
	for _, s := range open {
		if v := s.group().View(); v.Frozen || v.State != group.Ready {
			t.Errorf("the view is %+v", v)
		}
	}
	e.reload(strings.Replace(e.text, "http:// {", "http://first {", 1) + second)
	if v := e.view(); v.Counts[group.Ready] != 3 {
		t.Errorf("the view is %+v", v)
	}
}

// With the policy of docs/gateways, servers get requests by their weights.
func TestServersGetRequestsByWeight(t *testing.T) {
	e := documented(t, probing)
	e.reload(strings.Replace(e.text, "period 1s", fmt.Sprintf("period 1s\n weight %s 100\n weight %s 25\n weight %s 0",
		e.servers[0].Address, e.servers[1].Address, e.servers[2].Address), 1))
	e.await(group.Ready, e.servers...)
	e.load.Pass(t, 50)
	e.load.Take()
	e.load.Pass(t, 2500)
	served, failed, how := e.load.Take()
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
	e.await(group.Ready, e.servers...)
	e.servers[0].Kill()
	testsync.Until(t, "the server to be out", func() bool {
		e.load.Pass(t, 100)
		before := state(e.view(), e.servers[0])
		e.load.Pass(t, 100) // its probe has passed once more
		return before == group.Down && state(e.view(), e.servers[0]) == group.Down
	})
	e.servers[0].Start()
	e.without(e.servers[0])
}

// Caddy uses all servers until something is known.
func TestAllServersAreUsedBeforeTheFirstVerdict(t *testing.T) {
	setting, open := checked(t)
	e := documented(t, probing, "http /ready", setting, "timeout 500ms", "timeout 1h", "period 1s", "period 1h")
	e.without()
	if !e.view().Frozen {
		t.Error("something is known already")
	}
	open()
	e.await(group.Ready, e.servers...)
	e.without()
}
