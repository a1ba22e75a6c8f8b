package sondecaddy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// following is in the Caddyfile of docs/gateways that follows another Sonde.
const following = "follow http://127.0.0.1:9650 web"

// other is the Sonde that Caddy follows.
type other struct {
	t       *testing.T
	address string
	handler atomic.Pointer[http.Handler] // nil while nothing is known about the group
	stop    func()
}

func (o *other) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := o.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}

func newOther(t *testing.T) *other {
	o := &other{t: t, address: "127.0.0.1:0"}
	o.start()
	t.Cleanup(func() { o.stop() })
	return o
}

func (o *other) start() {
	o.t.Helper()
	o.address, o.stop = serveAPI(o.t, o.address, o)
}

// probe starts the engine. Nothing is known about the servers.
func (o *other) probe(rule group.Rule, servers []*gatewaytest.Server) *gatewaytest.Scene {
	o.t.Helper()
	return o.probeWithToken(rule, servers, "")
}

// probeWithToken is probe with a token that clients must send.
func (o *other) probeWithToken(rule group.Rule, servers []*gatewaytest.Server, token string) *gatewaytest.Scene {
	o.t.Helper()
	addresses := map[string]string{}
	for _, s := range servers {
		addresses[s.Name] = s.Address
	}
	rule.Port = "http"
	scene := gatewaytest.New(o.t, rule, addresses)
	api, err := api.New(api.Config{Engine: scene.Engine, Groups: scene.Groups, Token: token})
	if err != nil {
		o.t.Fatal(err)
	}
	h := http.Handler(api)
	o.handler.Store(&h)
	return scene
}

// No client notices that Sonde is not there yet, is away, or knows nothing after its restart.
func TestNoRequestFailsWhileCaddyFollows(t *testing.T) {
	o := newOther(t)
	e := documented(t, following, "127.0.0.1:9650", o.address)
	e.Without()
	e.Whole("before Sonde")
	first := o.probe(group.Rule{Panic: 0.01}, e.Servers)
	first.Say(map[string]probe.Outcome{"web-1": probe.Success, "web-2": probe.Success, "web-3": probe.Success})
	e.Await(probe.GatewayReady, e.Servers...)

	killed := e.Servers[0]
	killed.Kill()
	e.Load.Pass(t, 250)
	first.Say(map[string]probe.Outcome{"web-1": probe.Failure})
	e.Await(probe.GatewayDown, killed)
	e.Without(killed)
	e.Whole("kill")

	first.Stop()
	o.stop()
	killed.Start() // a gateway that forgot the verdict would send it requests
	e.Without(killed)
	e.reload(e.text)
	e.Without(killed)
	o.handler.Store(nil)
	o.start()
	second := o.probe(group.Rule{Panic: 0.01}, e.Servers)
	e.Without(killed)
	second.Say(map[string]probe.Outcome{"web-1": probe.Failure, "web-2": probe.Success})
	e.Without(killed)
	second.Say(map[string]probe.Outcome{"web-3": probe.Success})
	e.Whole("restart of Sonde")

	second.Leave("web-3")
	e.Await(probe.GatewayDraining, e.Servers[2])
	e.Without(killed, e.Servers[2])
	e.Servers[2].Kill()
	e.Whole("drain")
	second.Say(map[string]probe.Outcome{"web-1": probe.Success})
	e.Await(probe.GatewayReady, killed)
	e.Without(e.Servers[2])
}

func TestADegradedServerGetsItsShare(t *testing.T) {
	o := newOther(t)
	e := documented(t, following, "127.0.0.1:9650", o.address)
	s := o.probe(group.Rule{DegradedWeight: 0.25}, e.Servers)
	s.Say(map[string]probe.Outcome{"web-1": probe.Success, "web-2": probe.Success, "web-3": probe.Warning})
	e.Await(probe.GatewayDegraded, e.Servers[2])
	e.Load.Pass(t, 100)
	e.Load.Take()
	e.Load.Pass(t, 2500)
	served, failed, how := e.Load.Take()
	share := 1000 * served["web-3"] / (served["web-1"] + served["web-2"] + served["web-3"])
	if share < 81 || share > 141 || failed > 0 { // 25 of 225, 11.1%
		t.Errorf("%d requests failed: %s; served: %v", failed, how, served)
	}
}

func TestATokenMayBeAPlaceholder(t *testing.T) {
	o := newOther(t)
	t.Setenv("SONDE_TOKEN", "0123456789abcdef")
	e := documented(t, following, "127.0.0.1:9650 web", o.address+" web\ntoken {env.SONDE_TOKEN}")
	o.probeWithToken(group.Rule{}, e.Servers[:1], "0123456789abcdef").Say(map[string]probe.Outcome{e.Servers[0].Name: probe.Success})
	testsync.Until(t, "the group", func() bool { return e.view().Counts[probe.GatewayReady] == 1 })
	e.Without(e.Servers[1], e.Servers[2])
}

// A reload with another value of a placeholder follows another Sonde.
func TestTheAddressMayBeAPlaceholder(t *testing.T) {
	first, second := newOther(t), newOther(t)
	t.Setenv("SONDE_API", "http://"+first.address)
	e := documented(t, following, "http://127.0.0.1:9650", "{env.SONDE_API}")
	first.probe(group.Rule{}, e.Servers[:1]).Say(map[string]probe.Outcome{"web-1": probe.Success})
	second.probe(group.Rule{}, e.Servers[1:2]).Say(map[string]probe.Outcome{"web-2": probe.Success})
	e.Await(probe.GatewayReady, e.Servers[0])
	t.Setenv("SONDE_API", "http://"+second.address)
	e.reload(e.text)
	e.Await(probe.GatewayReady, e.Servers[1])
	e.Without(e.Servers[0], e.Servers[2])
}

// The token of the other Sonde is for no proxy.
func TestCaddyFollowsWithoutTheProxyOfTheEnvironment(t *testing.T) {
	const token = "0123456789abcdef"
	o := newOther(t)
	e := documented(t, following, "127.0.0.1:9650 web", strings.Replace(o.address, "127.0.0.1", "0.0.0.0", 1)+" web\ntoken "+token)
	o.probeWithToken(group.Rule{}, e.Servers[:1], token).Say(map[string]probe.Outcome{e.Servers[0].Name: probe.Success})
	testsync.Until(t, "the group", func() bool { return e.view().Counts[probe.GatewayReady] == 1 })
}

// A group whose members have no ports is an error, and Caddy uses its own upstreams.
func TestAGroupNeedsPorts(t *testing.T) {
	o := newOther(t)
	e := documented(t, following, "127.0.0.1:9650", o.address)
	s := o.probe(group.Rule{Port: "http"}, e.Servers)
	s.Say(map[string]probe.Outcome{"web-1": probe.Success, "web-2": probe.Success, "web-3": probe.Success})
	e.Await(probe.GatewayReady, e.Servers...)
	if err := s.Groups.Apply(map[string]group.Rule{"web": {}}); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the group without ports", func() bool {
		for m := range e.view().Members() {
			return m.Port == 0
		}
		return false
	})
	u := &Upstreams{source: e.sources()[0]}
	if _, err := u.GetUpstreams(httptest.NewRequest(http.MethodGet, "/", nil)); err == nil || !strings.Contains(err.Error(), "set port in the group") {
		t.Errorf("got %v", err)
	}
	e.Without(e.Servers[1], e.Servers[2]) // by the policy first
}
