package httpgateway_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

const token = "0123456789abcdef"

func startOracle(s *gatewaytest.Scene, c httpgateway.Oracle) *gatewaytest.Output {
	return s.Serve(func() gateway.Output { return c.Output() })
}

func TestAnAnswerSaysWhetherAServerIsInRotation(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "8080"}, map[string]string{"a": "10.0.0.1", "shop/b": "10.0.0.2", "c": "fd00::3", "d": "10.0.0.4"})
	o := startOracle(s, httpgateway.Oracle{Listen: "127.0.0.1:0"})
	if status, body := gatewaytest.Get(t, o.URL+"/v1/ready/a"); status != 200 || !strings.Contains(body, "nothing is known yet") {
		t.Errorf("before anything is known the answer is %d %q", status, body)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "shop/b": probe.Failure, "c": probe.Warning, "d": probe.Success})
	s.Leave("d")
	for _, c := range []struct {
		path, header string
		status       int
		body         string
	}{
		{"/a", "", 200, "ready"},
		{"/shop/b", "", 503, "down: exec.exit"},
		{"/web/shop/b", "", 503, "down: exec.exit"},
		{"/c", "", 200, "degraded"},
		{"/d", "", 503, "draining"},
		{"/none", "", 404, `no group of this gateway has the target "none"`},
		{"", "", 404, `no group of this gateway has the target ""`},
		{"", "X-Target: a", 200, "ready"},
		{"", "X-Target: 10.0.0.1:8080", 200, "ready"},
		{"", "X-Target: 10.0.0.2", 503, "down: exec.exit"},
		{"", "X-Target: [fd00::3]:8080", 200, "degraded"},
		{"", "X-Target: 10.0.0.1:8081", 404, `no group of this gateway has the target "10.0.0.1:8081"`},
		{"", "X-Haproxy-Server-State: UP 2/3; name=backend/a; node=lb; weight=1/2; scur=0/1; qcur=0", 200, "ready"},
		{"", "X-Haproxy-Server-State: DOWN; name=web/shop/b", 503, "down: exec.exit"},
		{"", "X-Haproxy-Server-State: UP; address=10.0.0.1", 404, `no group of this gateway has the target ""`},
		{"/a", "X-Target: shop/b", 200, "ready"},
	} {
		var headers []string
		if c.header != "" {
			headers = append(headers, c.header)
		}
		if status, body := gatewaytest.Get(t, o.URL+"/v1/ready"+c.path, headers...); status != c.status || body != c.body {
			t.Errorf("%q, %q: the answer is %d %q, want %d %q", c.path, c.header, status, body, c.status, c.body)
		}
	}
	if status, _ := gatewaytest.Do(t, http.MethodOptions, o.URL+"/v1/ready/a", ""); status != 200 {
		t.Errorf("OPTIONS gets %d", status)
	}
	if status, _ := gatewaytest.Do(t, http.MethodPost, o.URL+"/v1/ready/a", ""); status != 405 {
		t.Errorf("POST gets %d", status)
	}
	if st := o.Gateways.Statuses()[0]; st.Error != "" || st.Errors != 0 || st.Refused != 4 || st.Outputs < 12 {
		t.Errorf("the status is %+v", st)
	}
}

// Of two targets with one address the first one decides.
func TestOfTwoTargetsWithOneAddressTheFirstDecides(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.7", "b": "10.0.0.7", "c": "10.0.0.8"})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure, "c": probe.Success})
	o := startOracle(s, httpgateway.Oracle{Listen: "127.0.0.1:0"})
	for name, want := range map[string]int{"10.0.0.7": 200, "a": 200, "b": 503} {
		if status, body := gatewaytest.Get(t, o.URL+"/v1/ready/"+name); status != want {
			t.Errorf("the answer about %s is %d %q", name, status, body)
		}
	}
	selector, err := probe.NewSelector([]string{"c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Groups.Apply(map[string]group.Rule{"web": {Members: selector}}); err != nil {
		t.Fatal(err)
	}
	s.Await(func(v *group.View) bool { return v.Member("a") == nil })
	if status, _ := gatewaytest.Get(t, o.URL+"/v1/ready/10.0.0.7"); status != 404 {
		t.Errorf("the answer about an address that has left is %d", status)
	}
	if st := o.Gateways.Statuses()[0]; st.Failing != 0 || !st.ErrorSince.IsZero() {
		t.Errorf("the status is %+v", st)
	}
}

// If too few members are ready, all are in rotation.
func TestPanicIsObeyed(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Panic: 0.5}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"})
	o := startOracle(s, httpgateway.Oracle{Listen: "127.0.0.1:0"})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure})
	if status, _ := gatewaytest.Get(t, o.URL+"/v1/ready/b"); status != 503 {
		t.Errorf("the answer is %d", status)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	s.Await(func(v *group.View) bool { return v.Panicking })
	if status, _ := gatewaytest.Get(t, o.URL+"/v1/ready/b"); status != 200 {
		t.Errorf("in panic the answer is %d", status)
	}
}

func TestOnlyThoseWithTheTokenMayAsk(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	guarded, open := startOracle(s, httpgateway.Oracle{Listen: "127.0.0.1:0", Token: token}), startOracle(s, httpgateway.Oracle{Listen: "127.0.0.1:0"})
	for _, c := range []struct {
		o      *gatewaytest.Output
		header string
		status int
	}{
		{guarded, "Authorization: Bearer " + token, 200},
		{guarded, "authorization: bearer " + token, 200},
		{guarded, "X-Consul-Token: " + token, 200},
		{guarded, "Authorization: Bearer " + token + "x", 401},
		{guarded, "Authorization: Basic " + token, 401},
		{guarded, "X: y", 401},
		{open, "X: y", 200},
		{open, "Host: ", 200}, // the address
		{open, "Host: sonde", 200},
		{open, "Host: rebound.example.com", 403},
		{open, "Host: 10.0.0.1:80", 403},
		{open, "Origin: http://example.com", 403},
		{open, "Sec-Fetch-Site: cross-site", 403},
		{open, "Sec-Fetch-Site: none", 200},
	} {
		if status, _ := gatewaytest.Get(t, c.o.URL+"/v1/ready/a", c.header); status != c.status {
			t.Errorf("%q: the answer is %d, want %d", c.header, status, c.status)
		}
	}
	for listen, ok := range map[httpgateway.Oracle]bool{
		{Listen: "127.0.0.1:0"}: true, {Listen: "[::1]:1"}: true, {Listen: "0.0.0.0:9"}: false, {Listen: ":9"}: false, {Listen: "x"}: false, {Listen: "127.0.0.1:http"}: false,
		{Listen: ":9", Token: token}: true, {Listen: ":9", Token: "short"}: false, {Listen: "127.0.0.1:9", Token: token + " x"}: false,
	} {
		if err := listen.Check(); (err == nil) != ok {
			t.Errorf("%+v gives %v", listen, err)
		}
	}
}

// Clients that connect and stay, up to the limit and beyond, do not shut out a gateway.
func TestOpenConnectionsDoNotShutOutOthers(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	o := startOracle(s, httpgateway.Oracle{Listen: "127.0.0.1:0"})
	for range 1030 { // the limit is 1024
		conn, err := net.Dial("tcp", strings.TrimPrefix(o.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if status, _ := gatewaytest.Get(t, o.URL+"/v1/ready/a"); status != 200 {
		t.Errorf("the answer is %d", status)
	}
	if st := o.Gateways.Statuses()[0]; st.Error != "" {
		t.Errorf("the status is %+v", st)
	}
}

func FuzzRequest(f *testing.F) {
	s := gatewaytest.New(f, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1", "shop/b": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "shop/b": probe.Failure})
	groups := []*group.Group{s.Groups.Get("web")}
	f.Add("a", "", "")
	f.Add("", "10.0.0.1:80", "")
	f.Add("", "", "UP; name=web/shop/b; node=x")
	f.Fuzz(func(t *testing.T, path, target, state string) {
		name, m := httpgateway.Find(groups, path, target, state)
		if m == nil {
			return
		}
		if !strings.Contains(name, m.Target) && !strings.Contains(name, m.Address) {
			t.Errorf("%q is taken for %q", name, m.Target)
		}
	})
}
